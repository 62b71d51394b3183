"""Moves of numbers: memory read in another layout, axes exchanged, orders, off by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import permutations

import numpy as np

from syncpoint.diagnosis.numpy_ops.products import padded
from syncpoint.diagnosis.numpy_ops.shapes import joined, reshaped, sliced
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen


def layouts(seen: Seen) -> Iterable[Hypothesis]:
    """For reshapes, transposes, slices, concatenations and pads."""
    bound = seen.bound
    if bound is None or not isinstance(bound.arrays[0], np.ndarray):
        return
    x = bound.arrays[0]
    if bound.function is reshaped:
        yield from _reshapes(seen, x)
    elif bound.function is np.transpose:
        yield from _transposes(seen, x)
    elif bound.function is sliced:
        yield from _slices(seen, x)
    elif bound.function is joined:
        yield from _joins(seen)
    elif bound.function is padded and seen.kind == "pad":
        yield from _pads(seen)


def _reshapes(seen: Seen, x: Array) -> Iterator[Hypothesis]:
    if not 2 <= x.ndim <= 5:
        return
    for order in permutations(range(x.ndim)):
        if order == tuple(range(x.ndim)):
            continue
        value = x.transpose(order).reshape(seen.output.shape)
        simple = 2 if order in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1), (0, 2, 1, 3)) else 1
        text = f"reorders the axes of its input to {list(order)} before it reshapes"
        yield Hypothesis("layout-order", text, value, simplicity=simple)


def _transposes(seen: Seen, x: Array) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    plain = x.reshape(seen.output.shape)
    text = "reshapes instead of transposing: the axes are not moved"
    yield Hypothesis("transpose-missing", text, plain, simplicity=2)
    if x.ndim > 5:
        return
    own = tuple(seen.bound.settings["axes"])
    for order in permutations(range(x.ndim)):
        if order != own and order != tuple(range(x.ndim)):
            value = seen.changed(axes=list(order))
            if value is not None:
                text = f"transposes to the axis order {list(order)} instead of {list(own)}"
                yield Hypothesis("transpose-order", text, value, simplicity=2)


def _slices(seen: Seen, x: Array) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    own = seen.bound.settings
    for at, axis in enumerate(own["over"]):
        n = x.shape[axis]
        start = range(n)[slice(int(own["starts"][at]), None)].start if n else 0
        count, step = seen.output.shape[axis], int(own["steps"][at])
        if step < 0:
            continue
        for moved in (1, -1, 2, -2, -start, n - start - (count - 1) * step - 1):
            begin = start + moved
            end = begin + (count - 1) * step + 1
            if not moved or begin < 0 or end > n:
                continue
            cut = [slice(None)] * x.ndim
            cut[axis] = slice(begin, end, step)
            value = seen.output if len(own["over"]) > 1 else x[tuple(cut)]
            if value is not seen.output:
                text = f"slices axis {axis} from index {begin} instead of {start}"
                yield Hypothesis("slice-off", text, value, simplicity=2 if abs(moved) == 1 else 1)


def _joins(seen: Seen) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    parts = seen.bound.arrays
    if 2 <= len(parts) <= 4:
        for order in permutations(range(len(parts))):
            if order != tuple(range(len(parts))):
                value = seen.ran(seen.bound.on(*(parts[i] for i in order)))
                if value is not None:
                    text = f"joins its parts in the order {list(order)} instead of {sorted(order)}"
                    yield Hypothesis("concat-order", text, value, simplicity=2)
    for axis in range(seen.output.ndim):
        if axis == seen.bound.settings["axis"] % seen.output.ndim:
            continue
        try:
            value = np.concatenate(parts, axis).reshape(seen.output.shape)
        except ValueError:
            continue
        text = f"joins its parts along axis {axis} and reads the result in the reference's shape"
        yield Hypothesis("concat-axis", text, value, simplicity=1)


def _pads(seen: Seen) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    own = seen.bound.settings
    pads = [(int(a), int(b)) for a, b in own["pads"]]
    changes = {
        "padding-side": ("pads on the opposite side", {"pads": [(b, a) for a, b in pads]}),
        "padding-axes": ("swaps the padding of its axes", {"pads": pads[::-1]}),
    }
    for kind, (text, changed) in changes.items():
        value = seen.changed(**changed)
        if value is not None:
            yield Hypothesis(kind, text, value, simplicity=2)
    for mode in ("zeros", "replicate", "reflect", "circular"):
        if mode != own["mode"]:
            value = seen.changed(mode=mode, value=0.0)
            if value is not None:
                text = f"pads with mode {mode} instead of {own['mode']}"
                yield Hypothesis("padding-mode", text, value, simplicity=2)
    if own["mode"] == "zeros" and own["value"]:
        value = seen.changed(value=0.0)
        if value is not None:
            yield Hypothesis(
                "padding-value", f"pads with 0 instead of {own['value']}", value, simplicity=2
            )
