"""Variants of any op's result: factor or offset (one, or fitted per channel or position), moved,
swapped or reversed axes, zeroed channels, another part read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
from syncpoint.run.model import Role

_MIN_SLICE_ELEMENTS = 4
"""Minimum size of a slice that can be reported as zeroed."""
_MIN_ELEMENTS_PER_INDEX = 16
"""Minimum number of elements per index of an axis to fit a factor for each index."""

_GENERAL_KINDS_TEXT = (
    "op-missing zeros negated scale offset scale-and-offset shifted reversed first-repeated"
    " axes-exchanged layout-misread slice-zero offsets-along-axis factors-along-axis"
)
GENERAL_KINDS = frozenset(_GENERAL_KINDS_TEXT.split())
"""All kinds of this file. They are cheap: the op is not run again."""


def vary_any_op(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary the result of any op that the target records."""
    target, output = tested_op.target, tested_op.output
    if target is None or output.dtype.kind != "f" or target.shape != output.shape:
        return
    x = tested_op.argument(0)
    if x is not None and x.shape == output.shape and x.dtype.kind == "f":
        text = f"returns its input unchanged; the reference applies {tested_op.kind}"
        yield Hypothesis("op-missing", text, x, simplicity=0)
    yield Hypothesis("zeros", "returns only zeros", np.zeros_like(output), simplicity=-1)
    yield from _fit_scale_and_offset(tested_op, output, target)
    yield from _move_elements(tested_op, output)
    yield from _find_zeroed_slices(tested_op, output, target)
    yield from _fit_each_index(tested_op, output, target)


def _fit_scale_and_offset(
    tested_op: OpUnderTest, output: Array, target: Array
) -> Iterator[Hypothesis]:
    is_finite = tested_op.without_masked(np.isfinite(output) & np.isfinite(target))
    if not is_finite.any():
        return
    output_values, target_values = output[is_finite], target[is_finite]
    energy = float(np.sum(output_values * output_values))
    if energy:
        factor = float(np.sum(output_values * target_values)) / energy
        text = (
            "negates its result"
            if abs(factor + 1) < 1e-3
            else f"multiplies its result by {_format_factor(factor)}; the reference does not"
        )
        yield Hypothesis(
            "negated" if abs(factor + 1) < 1e-3 else "scale",
            text, factor * output, simplicity=-1, solved=1,
            next=f"find where the target multiplies the result of {tested_op.op.key} by"
            f" {_format_factor(factor)}, and remove that",
        )  # fmt: skip
    shift = float(np.mean(target_values - output_values))
    text = f"adds {shift:.6g} to its result"
    advice = f"find what the target adds to the result of {tested_op.op.key}, such as a bias"
    yield Hypothesis("offset", text, output + shift, next=advice, simplicity=-1, solved=1)
    variance = float(np.var(output_values))
    if variance:
        centered_output = output_values - output_values.mean()
        centered_target = target_values - target_values.mean()
        slope = float(np.mean(centered_output * centered_target)) / variance
        intercept = float(target_values.mean() - slope * output_values.mean())
        text = f"multiplies its result by {_format_factor(slope)} and adds {intercept:.4g}"
        value = slope * output + intercept
        advice = f"find where the target scales and shifts the result of {tested_op.op.key}"
        yield Hypothesis("scale-and-offset", text, value, next=advice, simplicity=-2, solved=2)


def _format_factor(factor: float) -> str:
    """Format a factor, as a fraction (`1/8`, `1/sqrt(64)`) if it is close to one."""
    for number in (2, 3, 4, 6, 8, 16, 32, 64, 128, 255, 256, 1000):
        if abs(factor * number - 1) < 1e-4:
            return f"1/{number}"
    root = np.sqrt(round(1 / factor**2)) if factor > 0 and 1 < 1 / factor**2 < 4096 else 0.0
    if root and abs(factor * root - 1) < 1e-4:
        return f"1/sqrt({round(1 / factor**2)})"
    return f"{factor:.5g}"


def _move_elements(tested_op: OpUnderTest, output: Array) -> Iterator[Hypothesis]:
    """Move the elements: shift, reverse, repeat, swap axes, change the layout."""
    if output.ndim > 5:
        return
    for axis, n in enumerate(output.shape):
        if n < 2:
            continue
        for step in (1, -1):
            text = f"shifts its result by {step} along axis {axis}"
            moved = np.roll(output, step, axis)
            yield Hypothesis("shifted", f"{text}, wrapped around", moved, simplicity=-1)
            zero_filled = moved.copy()
            edge = [slice(None)] * output.ndim
            edge[axis] = slice(0, 1) if step > 0 else slice(n - 1, n)
            zero_filled[tuple(edge)] = 0
            yield Hypothesis("shifted", f"{text}, filled with zeros", zero_filled, simplicity=-1)
        text = f"reverses its result along axis {axis}"
        advice = f"find where the target reverses axis {axis} of {tested_op.op.key}"
        yield Hypothesis("reversed", text, np.flip(output, axis), next=advice, simplicity=-1)
        first = np.take(output, [0], axis)
        text = f"returns the values of index 0 for every index of axis {axis}"
        value = np.broadcast_to(first, output.shape)
        advice = f"check the broadcast or the stride of axis {axis} of {tested_op.op.key}"
        yield Hypothesis("first-repeated", text, value, next=advice, simplicity=-1)
    for a, b in combinations(range(output.ndim), 2):
        if output.shape[a] < 2 or output.shape[b] < 2:
            continue
        moved = np.swapaxes(output, a, b)
        if moved.shape == output.shape:
            text = f"swaps axes {a} and {b} of its result"
            yield Hypothesis("axes-exchanged", text, moved, simplicity=-1)
        else:
            text = f"writes its result with axes {a} and {b} swapped in memory"
            value = moved.reshape(output.shape)
            yield Hypothesis("layout-misread", text, value, simplicity=-1)
    if output.ndim == 4:
        for order, layout_text in (
            ((0, 2, 3, 1), "channels last"),
            ((0, 3, 1, 2), "channels first"),
        ):
            text = f"writes its result {layout_text}; it is read in the reference's layout"
            value = output.transpose(order).reshape(output.shape)
            yield Hypothesis("layout-misread", text, value, simplicity=-1)


def _find_zeroed_slices(
    tested_op: OpUnderTest, output: Array, target: Array
) -> Iterator[Hypothesis]:
    """Find slices along an axis that are zero only in the target."""
    target, reference = tested_op.zero_masked(target), tested_op.zero_masked(output)
    for axis, n in enumerate(output.shape):
        if n < 2 or output.size // n < _MIN_SLICE_ELEMENTS:
            continue
        others = tuple(a for a in range(output.ndim) if a != axis)
        is_zeroed = ~target.any(others) & reference.any(others)
        count = int(np.count_nonzero(is_zeroed))
        if not count or count == n:
            continue
        zeroed_indices = np.flatnonzero(is_zeroed)
        if count == 1:
            indices_text = f"index {zeroed_indices[0]}"
        elif np.array_equal(zeroed_indices, np.arange(zeroed_indices[0], zeroed_indices[-1] + 1)):
            indices_text = f"indices {zeroed_indices[0]} to {zeroed_indices[-1]}"
        else:
            indices_text = f"{count} of {n} indices"
        shape = [n if a == axis else 1 for a in range(output.ndim)]
        value = np.where(is_zeroed.reshape(shape), 0.0, output)
        text = f"returns zeros at {indices_text} of axis {axis}; the reference does not"
        advice = f"check which part of {tested_op.op.key} the target does not write"
        yield Hypothesis("slice-zero", text, value, next=advice, simplicity=-1)


def _fit_each_index(tested_op: OpUnderTest, output: Array, target: Array) -> Iterator[Hypothesis]:
    """Fit a factor or an offset for each index of an axis."""
    if not np.isfinite(output).all() or not np.isfinite(target).all():
        return
    target, reference = tested_op.zero_masked(target), tested_op.zero_masked(output)
    for axis in dict.fromkeys((1 if output.ndim > 2 else output.ndim - 1, output.ndim - 1)):
        n = output.shape[axis] if output.ndim else 0
        if n < 2 or output.size < _MIN_ELEMENTS_PER_INDEX * n:
            continue
        others = tuple(a for a in range(output.ndim) if a != axis)
        offset = (target - reference).mean(others, keepdims=True)
        if tested_op.kept is not None:
            offset /= np.maximum(
                tested_op.kept.mean(others, keepdims=True), 1 / tested_op.kept.size
            )
        each = f"per channel (axis {axis})" if axis == 1 else f"per index of axis {axis}"
        text = f"is off by one constant {each}, from {offset.min():.3g} to {offset.max():.3g}"
        advice = _advise_on_bias(tested_op, n)
        value = output + offset
        yield Hypothesis("offsets-along-axis", text, value, next=advice, simplicity=-3, solved=n)
        energy = np.square(reference).sum(others, keepdims=True)
        factor = (reference * target).sum(others, keepdims=True) / np.where(energy, energy, 1)
        text = (
            f"multiplies its result by another factor {each}, from {factor.min():.3g} to"
            f" {factor.max():.3g}; the reference does not"
        )
        advice = f"check which scales the target applies to the result of {tested_op.op.key}"
        value = output * factor
        yield Hypothesis("factors-along-axis", text, value, next=advice, simplicity=-3, solved=n)


def _advise_on_bias(tested_op: OpUnderTest, size: int) -> str:
    """Return the next step for an offset per channel: the bias that the op reads, if it has one."""
    for edge, value in zip(tested_op.op.inputs, tested_op.arguments, strict=False):
        if edge.role is Role.PARAMETER and value is not None and value.shape == (size,):
            return f"compare {edge.op} in the target with the reference's"
    return f"check what the target adds to the result of {tested_op.op.key}, such as a bias"


def vary_siblings(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Run the op on other parts of the tensors that its operands are parts of."""
    for edge, others in tested_op.siblings.items():
        if edge not in tested_op.op.inputs:
            continue
        for other, value in others.items():
            output = tested_op.rerun({edge: value})
            if output is None:
                continue
            text = f"reads {other.op} instead of {edge.op}"
            if edge.op == other.op:
                text = f"reads output {other.index} of {edge.op} instead of output {edge.index}"
            text += ": the parts are swapped"
            yield Hypothesis("parts-exchanged", text, output, simplicity=2)
