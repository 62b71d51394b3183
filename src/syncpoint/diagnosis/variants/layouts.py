"""Variants of the ops reshape, transpose, slice, concatenation and padding: another layout, axis
order, part order or offset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np

from syncpoint.diagnosis.numpy_ops.products_and_convolutions import padded
from syncpoint.diagnosis.numpy_ops.shapes_and_indexing import joined, reshaped, sliced
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest


def vary_layout(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary reshapes, transposes, slices, concatenations and pads."""
    bound = tested_op.bound
    if bound is None or not isinstance(bound.arrays[0], np.ndarray):
        return
    x = bound.arrays[0]
    if bound.function is reshaped:
        yield from _vary_reshape(tested_op, x)
    elif bound.function is np.transpose:
        yield from _vary_transpose(tested_op, x)
    elif bound.function is sliced:
        yield from _vary_slice(tested_op, x)
    elif bound.function is joined:
        yield from _vary_concatenation(tested_op)
    elif bound.function is padded and tested_op.kind == "pad":
        yield from _vary_padding(tested_op)


def _vary_reshape(tested_op: OpUnderTest, x: Array) -> Iterator[Hypothesis]:
    if not 2 <= x.ndim <= 5:
        return
    for order in permutations(range(x.ndim)):
        if order == tuple(range(x.ndim)):
            continue
        value = x.transpose(order).reshape(tested_op.output.shape)
        simplicity = 2 if order in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1), (0, 2, 1, 3)) else 1
        text = f"reorders the axes of its input to {list(order)} before it reshapes"
        yield Hypothesis("layout-order", text, value, simplicity=simplicity)


def _vary_transpose(tested_op: OpUnderTest, x: Array) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    reshaped_input = x.reshape(tested_op.output.shape)
    text = "reshapes instead of transposing: the axes are not moved"
    yield Hypothesis("transpose-missing", text, reshaped_input, simplicity=2)
    if x.ndim > 5:
        return
    reference_order = tuple(tested_op.bound.settings["axes"])
    for order in permutations(range(x.ndim)):
        if order != reference_order and order != tuple(range(x.ndim)):
            value = tested_op.run_with_settings(axes=list(order))
            if value is not None:
                text = (
                    f"transposes to the axis order {list(order)} instead of {list(reference_order)}"
                )
                yield Hypothesis("transpose-order", text, value, simplicity=2)


def _vary_slice(tested_op: OpUnderTest, x: Array) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    settings = tested_op.bound.settings
    for index, axis in enumerate(settings["over"]):
        n = x.shape[axis]
        start = range(n)[slice(int(settings["starts"][index]), None)].start if n else 0
        count, step = tested_op.output.shape[axis], int(settings["steps"][index])
        if step < 0:
            continue
        for shift in (1, -1, 2, -2, -start, n - start - (count - 1) * step - 1):
            begin = start + shift
            end = begin + (count - 1) * step + 1
            if not shift or begin < 0 or end > n:
                continue
            cut = [slice(None)] * x.ndim
            cut[axis] = slice(begin, end, step)
            value = tested_op.output if len(settings["over"]) > 1 else x[tuple(cut)]
            if value is not tested_op.output:
                text = f"slices axis {axis} from index {begin} instead of {start}"
                yield Hypothesis("slice-off", text, value, simplicity=2 if abs(shift) == 1 else 1)


def _vary_concatenation(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    parts = tested_op.bound.arrays
    if 2 <= len(parts) <= 4:
        for order in permutations(range(len(parts))):
            if order != tuple(range(len(parts))):
                value = tested_op.run_bound(tested_op.bound.on(*(parts[i] for i in order)))
                if value is not None:
                    text = f"joins its parts in the order {list(order)} instead of {sorted(order)}"
                    yield Hypothesis("concat-order", text, value, simplicity=2)
    for axis in range(tested_op.output.ndim):
        if axis == tested_op.bound.settings["axis"] % tested_op.output.ndim:
            continue
        try:
            value = np.concatenate(parts, axis).reshape(tested_op.output.shape)
        except ValueError:
            continue
        text = f"joins its parts along axis {axis} and reads the result in the reference's shape"
        yield Hypothesis("concat-axis", text, value, simplicity=1)


def _vary_padding(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    settings = tested_op.bound.settings
    pads = [(int(a), int(b)) for a, b in settings["pads"]]
    changes = {
        "padding-side": ("pads on the opposite side", {"pads": [(b, a) for a, b in pads]}),
        "padding-axes": ("swaps the padding of its axes", {"pads": pads[::-1]}),
    }
    for kind, (text, changes_of_kind) in changes.items():
        value = tested_op.run_with_settings(**changes_of_kind)
        if value is not None:
            yield Hypothesis(kind, text, value, simplicity=2)
    for mode in ("zeros", "replicate", "reflect", "circular"):
        if mode != settings["mode"]:
            value = tested_op.run_with_settings(mode=mode, value=0.0)
            if value is not None:
                text = f"pads with mode {mode} instead of {settings['mode']}"
                yield Hypothesis("padding-mode", text, value, simplicity=2)
    if settings["mode"] == "zeros" and settings["value"]:
        value = tested_op.run_with_settings(value=0.0)
        if value is not None:
            yield Hypothesis(
                "padding-value", f"pads with 0 instead of {settings['value']}", value, simplicity=2
            )
