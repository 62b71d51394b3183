"""Variants of attention, as one op or as several: scale, mask, heads, order of operands, head
layout (a reshape that merges two adjacent axes)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.normalization import split_constant_operand
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.softmax import softmax
from syncpoint.diagnosis.variants.solving import format_number, solve_number

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]

_MAX_MASKED_SCORE = -1e4
"""Maximum value of a score that masks a position."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """An attention with all its settings; operands are (..., heads, positions, width)."""

    query: Values
    key: Values
    value: Values
    scale: float
    visible: Mask | None = None
    """Key positions that each query may attend to (True); None without a mask."""
    score_bias: Values | None = None
    """Mask that is added to the scores."""
    repeats_as_block: bool = False
    """Key heads are repeated as a block (0 1 0 1), not one by one (0 0 1 1)."""

    def compute(self, index: int = 0) -> Values:
        """Compute output 0 (the attended values) or 1 (the log-sum-exp of the scores)."""
        key, value = self._repeat_heads(self.key), self._repeat_heads(self.value)
        scores = self.scale * (self.query @ np.swapaxes(key, -1, -2))
        if self.score_bias is not None:
            scores = scores + self.score_bias
        if self.visible is not None:
            scores = np.where(self.visible, scores, -np.inf)
        if index:
            peak = scores.max(-1)
            log_sum_exp: Values = peak + np.log(np.exp(scores - peak[..., None]).sum(-1))
            return log_sum_exp
        attended: Values = softmax(scores, -1) @ value
        return attended

    def _repeat_heads(self, heads: Values) -> Values:
        if heads.ndim < 3 or self.query.ndim < 3 or heads.shape[-3] == self.query.shape[-3]:
            return heads
        repeats = self.query.shape[-3] // max(heads.shape[-3], 1)
        if self.repeats_as_block:
            return np.concatenate([heads] * repeats, -3)
        return np.repeat(heads, repeats, -3)


def vary_attention(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary an attention that is one op."""
    if tested_op.kind != "attention":
        return
    attention = _read_settings(tested_op)
    if attention is None:
        return
    for kind, text, other, simplicity in _vary_settings(tested_op, attention):
        try:
            value = other.compute(tested_op.index)
        except ValueError:  # the shapes of the operands do not fit when they are swapped
            continue
        yield Hypothesis(kind, text, value, simplicity=simplicity)


def _read_settings(tested_op: OpUnderTest) -> Attention | None:
    """Read the settings of the op; None if they do not reproduce its output."""
    operands = [a for a in tested_op.arguments[:3] if a is not None and a.dtype.kind == "f"]
    if len(operands) < 3 or any(a.ndim < 2 for a in operands):
        return None
    query, key, value = (np.asarray(a, np.float64) for a in operands)
    scale = tested_op.attribute("scale")
    attention = Attention(
        query=query, key=key, value=value, scale=float(scale or query.shape[-1] ** -0.5)
    )
    mask = tested_op.argument(3)
    if mask is not None and mask.dtype == bool:
        attention = replace(attention, visible=mask)
    elif mask is not None:
        attention = replace(attention, score_bias=np.asarray(mask, np.float64))
    if tested_op.attribute("is_causal", default=False):
        attention = replace(attention, visible=_causal_mask(attention))
    try:
        output = attention.compute(tested_op.index)
    except ValueError:
        return None
    if output.shape != tested_op.output.shape:
        return None
    is_reproduced = np.allclose(output, tested_op.output, rtol=1e-7, atol=1e-9, equal_nan=True)
    return attention if is_reproduced else None


def _causal_mask(attention: Attention, diagonal: int = 0) -> Mask:
    return np.tri(attention.query.shape[-2], attention.key.shape[-2], diagonal, dtype=np.bool_)


def _vary_settings(
    tested_op: OpUnderTest, attention: Attention
) -> Iterator[tuple[str, str, Attention, int]]:
    yield from _vary_scale(tested_op, attention)
    yield from _vary_mask(tested_op, attention)
    yield from _vary_operands(attention)


def _vary_scale(
    tested_op: OpUnderTest, attention: Attention
) -> Iterator[tuple[str, str, Attention, int]]:
    width = attention.query.shape[-1]
    heads = attention.query.shape[-3] if attention.query.ndim > 2 else 1
    variant_by_scale = {
        1.0: ("scale-missing", "does not scale its scores", 3),
        attention.scale**2: (
            "scale-twice",
            f"scales its scores twice (by {format_number(attention.scale**2)} in total)",
            2,
        ),
        1 / width: ("scale-by-width", f"divides its scores by the head width {width}", 3),
        (heads * width) ** -0.5: (
            "scale-of-model",
            f"divides its scores by sqrt({heads * width}), from the width of all heads",
            2,
        ),
        width**0.5: ("scale-inverted", f"multiplies its scores by sqrt({width})", 2),
    }
    for scale, (kind, text, simplicity) in variant_by_scale.items():
        if not np.isclose(scale, attention.scale):
            title = f"{text}; the reference scales them by {format_number(attention.scale)}"
            yield kind, title, replace(attention, scale=scale), simplicity
    starts = [attention.scale * f for f in (0.1, 0.35, 0.7, 1.4, 3.0, 10.0)]
    solution = solve_number(
        tested_op,
        lambda s: replace(attention, scale=s).compute(tested_op.index),
        starts,
        variant_by_scale,
    )
    if solution is not None and not np.isclose(solution.number, attention.scale, rtol=1e-3):
        text = (
            f"scales its scores by {format_number(solution.number)}"
            f" instead of {format_number(attention.scale)}"
        )
        yield "scale-other", text, replace(attention, scale=solution.number), 1


def _vary_mask(
    tested_op: OpUnderTest, attention: Attention
) -> Iterator[tuple[str, str, Attention, int]]:
    causal = _causal_mask(attention)
    is_unmasked = attention.visible is None and attention.score_bias is None
    if is_unmasked:
        yield (
            "causal-added",
            "applies a causal mask; the reference applies no mask",
            replace(attention, visible=causal),
            3,
        )
        return
    if attention.score_bias is not None:
        yield "mask-ignored", "ignores its mask", replace(attention, score_bias=None), 3
        yield (
            "mask-twice",
            "adds its mask twice",
            replace(attention, score_bias=2 * attention.score_bias),
            2,
        )
        yield (
            "mask-subtracted",
            "subtracts its mask instead of adding it",
            replace(attention, score_bias=-attention.score_bias),
            1,
        )
        if (
            attention.score_bias.ndim >= 2
            and attention.score_bias.shape[-1] == attention.score_bias.shape[-2]
        ):
            transposed = replace(attention, score_bias=np.swapaxes(attention.score_bias, -1, -2))
            yield "mask-transposed", "transposes its mask", transposed, 2
    if attention.visible is None:
        return
    is_causal = attention.visible.shape == causal.shape and bool(
        (attention.visible == causal).all()
    )
    name = "causal" if is_causal else "mask"
    mask_text = "causal mask" if is_causal else "mask"
    missing = f"{name}-missing" if is_causal else "mask-ignored"
    yield missing, f"ignores its {mask_text}", replace(attention, visible=None), 3
    yield (
        f"{name}-inverted",
        f"inverts its {mask_text}",
        replace(attention, visible=~attention.visible),
        2,
    )
    if attention.visible.ndim >= 2 and attention.visible.shape[-1] == attention.visible.shape[-2]:
        transposed_mask = replace(attention, visible=np.swapaxes(attention.visible, -1, -2))
        yield f"{name}-transposed", f"transposes its {mask_text}", transposed_mask, 2
        size = attention.visible.shape[-1]
        own_place = np.eye(size, dtype=np.bool_)
        next_place = np.eye(size, k=1, dtype=np.bool_)
        for shift_text, shifted in (
            ("each query sees one position too many", attention.visible | next_place),
            ("no query sees its own position", attention.visible & ~own_place),
        ):
            text = f"shifts its {mask_text} by one position: {shift_text}"
            yield f"{name}-off-by-one", text, replace(attention, visible=shifted), 2
    if is_causal and causal.shape[0] != causal.shape[1]:
        text = "aligns its causal mask to the bottom right instead of the top left"
        aligned = _causal_mask(attention, causal.shape[1] - causal.shape[0])
        yield "causal-alignment", text, replace(attention, visible=aligned), 2


def _vary_operands(attention: Attention) -> Iterator[tuple[str, str, Attention, int]]:
    swapped = replace(attention, query=attention.key, key=attention.query)
    yield "query-key-exchanged", "swaps query and key", swapped, 1
    swapped = replace(attention, key=attention.value, value=attention.key)
    yield "key-value-exchanged", "swaps key and value", swapped, 1
    swapped = replace(attention, query=attention.value, value=attention.query)
    yield "query-value-exchanged", "swaps query and value", swapped, 0
    if attention.query.ndim > 2:
        heads, key_heads = attention.query.shape[-3], attention.key.shape[-3]
        if heads != key_heads:
            text = "repeats its key heads as a block (0 1 0 1) instead of one by one (0 0 1 1)"
            yield "heads-repeated", text, replace(attention, repeats_as_block=True), 2
        distinct_heads = _count_distinct_heads(attention.key)
        if heads == key_heads and 1 < distinct_heads < heads:
            # The heads were repeated before this op: try them in the other order.
            order = np.arange(heads).reshape(distinct_heads, heads // distinct_heads).T.reshape(-1)
            text = "repeats its key heads as a block (0 1 0 1) instead of one by one (0 0 1 1)"
            other = replace(
                attention,
                key=attention.key[..., order, :, :],
                value=attention.value[..., order, :, :],
            )
            yield "heads-repeated", text, other, 2
        for name, axis in (("heads", -3), ("places", -2)):
            other = replace(
                attention, key=np.flip(attention.key, axis), value=np.flip(attention.value, axis)
            )
            yield f"key-{name}-reversed", f"reverses the {name} of its keys", other, 0
    for shift in (1, -1):
        text = "shifts its keys and values by one position"
        other = replace(
            attention,
            key=np.roll(attention.key, shift, -2),
            value=np.roll(attention.value, shift, -2),
        )
        yield "key-places-moved", text, other, 0


def _count_distinct_heads(key: Values) -> int:
    """Count the distinct heads if each is repeated equally often in a row; else all heads."""
    heads = key.shape[-3]
    is_new_head = [
        h == 0 or not np.array_equal(key[..., h, :, :], key[..., h - 1, :, :]) for h in range(heads)
    ]
    runs = sum(is_new_head)
    return runs if heads % runs == 0 else heads


def vary_attention_steps(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary a scale, a mask, or a rearrangement of heads."""
    if tested_op.kind in ("mul", "div"):
        yield from _vary_scale_step(tested_op)
    elif tested_op.kind == "where":
        yield from _vary_filled_mask(tested_op)
    elif tested_op.kind == "add":
        yield from _vary_added_mask(tested_op)
    elif tested_op.kind in ("triu", "tril"):
        yield from _vary_triangle(tested_op)
    elif tested_op.kind in ("ge", "le", "greater", "less", "greaterorequal", "lessorequal"):
        yield from _vary_comparison(tested_op)
    elif tested_op.kind in ("reshape", "transpose"):
        yield from _vary_head_layout(tested_op)


def _vary_scale_step(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    operand_and_constant = split_constant_operand(tested_op)
    if (
        operand_and_constant is None
        or operand_and_constant[0].dtype.kind != "f"
        or operand_and_constant[0].shape != tested_op.output.shape
    ):
        return
    x, number = np.asarray(operand_and_constant[0], np.float64), operand_and_constant[1]
    if number == 0 or not np.isfinite(number):
        return
    factor = 1 / number if tested_op.kind == "div" else number
    if not np.allclose(x * factor, tested_op.output, rtol=1e-9) or factor == 1:
        return
    text = f"does not apply the scale {format_number(factor)}"
    yield Hypothesis("scale-missing", text, x, simplicity=3)
    text = f"applies the scale {format_number(factor)} twice"
    yield Hypothesis("scale-twice", text, x * factor**2, simplicity=2)
    text = f"divides by the scale {format_number(factor)} instead of multiplying by it"
    yield Hypothesis("scale-inverted", text, x / factor, simplicity=1)
    if factor > 0:
        starts = [factor * f for f in (0.1, 0.35, 0.7, 1.4, 3.0, 10.0)]
        solution = solve_number(tested_op, lambda s: x * s, starts)
        if solution is not None and not np.isclose(solution.number, factor, rtol=1e-3):
            text = (
                f"applies the scale {format_number(solution.number)}"
                f" instead of {format_number(factor)}"
            )
            setting = ("the scale", format_number(factor))
            yield Hypothesis("scale-other", text, solution.value, setting=setting, simplicity=1)


def _vary_filled_mask(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary a mask that fills positions with a number."""
    arrays = [a for a in tested_op.arguments if a is not None]
    masks = [a for a in arrays if a.dtype == bool]
    float_arrays = [a for a in arrays if a.dtype.kind == "f"]
    if len(masks) != 1 or not float_arrays:
        return
    mask = np.broadcast_to(masks[0], tested_op.output.shape)
    x = max(float_arrays, key=lambda a: a.size)
    if x.size == 1 or not mask.any():
        return
    x = np.broadcast_to(np.asarray(x, np.float64), tested_op.output.shape)
    # Runtimes differ in whether True or False selects the filled positions.
    is_unchanged = np.isclose(tested_op.output, x, rtol=1e-12, atol=0, equal_nan=True)
    hidden = mask if not (is_unchanged & ~mask).sum() < (~mask).sum() else ~mask
    filled = tested_op.output[hidden]
    if not filled.size or not (filled == filled[0]).all():
        return
    yield from _vary_hidden_positions(x, hidden, float(filled[0]))


def _vary_added_mask(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary a mask that is added: very low at hidden positions, 0 elsewhere."""
    operands = [a for a in tested_op.arguments if a is not None and a.dtype.kind == "f"]
    if len(operands) != 2:
        return
    masks = [
        a for a in operands if a.size > 1 and (a <= _MAX_MASKED_SCORE).any() and (a <= 0).all()
    ]
    if len(masks) != 1 or not (masks[0] == 0).any():
        return
    (x,) = (a for a in operands if a is not masks[0])
    shape = tested_op.output.shape
    x, mask = np.broadcast_to(x, shape), np.broadcast_to(masks[0], shape)
    yield from _vary_hidden_positions(
        np.asarray(x, np.float64), mask <= _MAX_MASKED_SCORE, float(mask.min()), is_added=True
    )


def _vary_hidden_positions(
    x: Values, hidden: Array, low: float, is_added: bool = False
) -> Iterator[Hypothesis]:
    def with_mask(where: Array) -> Values:
        if is_added:
            return x + np.where(where, low, 0.0)
        return np.where(where, low, x)

    is_square = x.ndim >= 2 and x.shape[-1] == x.shape[-2]
    is_causal = is_square and bool((hidden == ~np.tri(x.shape[-1], dtype=bool)).all())
    name, mask_text = ("causal", "causal mask") if is_causal else ("mask", "mask")
    missing = "causal-missing" if is_causal else "mask-ignored"
    yield Hypothesis(missing, f"ignores its {mask_text}", x, simplicity=3)
    text = f"inverts its {mask_text}"
    yield Hypothesis(f"{name}-inverted", text, with_mask(~hidden), simplicity=2)
    if is_added:
        text = "adds its mask twice"
        yield Hypothesis("mask-twice", text, with_mask(hidden) + np.where(hidden, low, 0.0))
    if not is_square:
        return
    text = f"transposes its {mask_text}"
    transposed = np.swapaxes(hidden, -1, -2)
    yield Hypothesis(f"{name}-transposed", text, with_mask(transposed), simplicity=2)
    size = x.shape[-1]
    next_position = np.tri(size, k=1, dtype=bool) & ~np.tri(size, dtype=bool)
    text = f"shifts its {mask_text} by one position: one position too many is visible"
    yield Hypothesis(f"{name}-off-by-one", text, with_mask(hidden & ~next_position), simplicity=2)
    hidden_with_own = hidden | np.eye(size, dtype=bool)
    text = f"shifts its {mask_text} by one position: no query sees its own position"
    yield Hypothesis(f"{name}-off-by-one", text, with_mask(hidden_with_own), simplicity=2)


def _vary_triangle(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    x = tested_op.argument(0)
    if x is None or x.ndim < 2:
        return
    cut = np.triu if tested_op.kind == "triu" else np.tril
    cut_opposite = np.tril if tested_op.kind == "triu" else np.triu
    diagonal = int(tested_op.attribute("diagonal", "k", default=0))
    for step in (1, -1):
        text = f"cuts its triangle at diagonal {diagonal + step} instead of {diagonal}"
        yield Hypothesis(
            "causal-off-by-one",
            text,
            cut(x, diagonal + step),
            setting=("the diagonal", str(diagonal)),
            simplicity=3,
        )
    yield Hypothesis(
        "causal-missing",
        f"returns its input unchanged; the reference applies {tested_op.kind}",
        x,
        simplicity=2,
    )
    other = "tril" if tested_op.kind == "triu" else "triu"
    text = f"computes {other} instead of {tested_op.kind}"
    advice = (
        f"in the target, replace {other} with {tested_op.kind} ({tested_op.op.key} of the"
        " reference)"
    )
    value = cut_opposite(x, -diagonal)
    yield Hypothesis("causal-transposed", text, value, next=advice, simplicity=2)
    complement = np.asarray(np.where(cut(np.ones_like(x), diagonal), 0, x), x.dtype)
    yield Hypothesis(
        "causal-inverted", "keeps what lies outside its triangle", complement, simplicity=1
    )


def _vary_comparison(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    a, b = tested_op.argument(0), tested_op.argument(1)
    number = tested_op.attribute("other")
    if b is None and isinstance(number, int | float):
        b = np.asarray(number)
    if a is None or b is None:
        return
    compare = {
        **{"ge": np.greater_equal, "greaterorequal": np.greater_equal, "greater": np.greater},
        **{"le": np.less_equal, "lessorequal": np.less_equal, "less": np.less},
    }[tested_op.kind]
    compare_other_ties = {
        np.greater_equal: np.greater,
        np.greater: np.greater_equal,
        np.less_equal: np.less,
        np.less: np.less_equal,
    }[compare]
    strict_text = "compares strictly; the reference counts equal positions too"
    loose_text = "counts equal positions too; the reference compares strictly"
    text = strict_text if compare in (np.greater_equal, np.less_equal) else loose_text
    yield Hypothesis("causal-off-by-one", text, compare_other_ties(a, b), simplicity=3)
    text = "compares its operands in the opposite order"
    yield Hypothesis("causal-transposed", text, compare(b, a), simplicity=1)
    yield Hypothesis(
        "causal-inverted", "returns the opposite of its comparison", ~compare(a, b), simplicity=2
    )


def _vary_head_layout(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    x = tested_op.argument(0)
    if x is None or x.size != tested_op.output.size or x.ndim < 2:
        return
    if tested_op.kind == "transpose":
        text = "reshapes instead of transposing: heads and positions are mixed up"
        yield Hypothesis("transpose-missing", text, x.reshape(tested_op.output.shape), simplicity=1)
        return
    axis = _find_merged_axis(x.shape, tested_op.output.shape)
    if axis is None:
        return
    other = np.swapaxes(x, axis, axis + 1).reshape(tested_op.output.shape)
    first = np.take(x, [0], axis + 1)
    if x.shape[axis + 1] > 1 and np.array_equal(np.broadcast_to(first, x.shape), x):
        text = "repeats its heads as a block (0 1 0 1) instead of one by one (0 0 1 1)"
        yield Hypothesis("heads-repeated", text, other, simplicity=3)
    else:
        text = f"merges axes {axis} and {axis + 1} in the opposite order"
        yield Hypothesis("joined-order", text, other, simplicity=1)


def _find_merged_axis(input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> int | None:
    """Return the axis that a reshape merges with the next; None if it does anything else."""
    if len(input_shape) != len(output_shape) + 1:
        return None
    for axis in range(len(output_shape)):
        joined = (
            *input_shape[:axis],
            input_shape[axis] * input_shape[axis + 1],
            *input_shape[axis + 2 :],
        )
        if joined == output_shape and input_shape[axis] > 1 and input_shape[axis + 1] > 1:
            return axis
    return None
