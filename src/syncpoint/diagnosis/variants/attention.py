"""Variants of an attention that is one op: scale, mask, heads, order of operands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.softmax import softmax
from syncpoint.diagnosis.variants.solving import format_number, solve_number

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]


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
