"""Variants of an attention that consists of several ops: scale, mask, heads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.normalization import split_constant_operand
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
from syncpoint.diagnosis.variants.solving import format_number, solve_number

Values = NDArray[np.float64]
_MAX_MASKED_SCORE = -1e4
"""Maximum value of a score that masks a position."""


def vary_attention_steps(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary a scale, a mask, or a rearrangement of heads."""
    if tested_op.kind in ("mul", "div"):
        yield from _vary_scale(tested_op)
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


def _vary_scale(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
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
            yield Hypothesis("scale-other", text, solution.value, simplicity=1)


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
        yield Hypothesis("causal-off-by-one", text, cut(x, diagonal + step), simplicity=3)
    yield Hypothesis(
        "causal-missing",
        f"returns its input unchanged; the reference applies {tested_op.kind}",
        x,
        simplicity=2,
    )
    text = f"computes {'tril' if tested_op.kind == 'triu' else 'triu'} instead of {tested_op.kind}"
    yield Hypothesis("causal-transposed", text, cut_opposite(x, -diagonal), simplicity=2)
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
