"""What may befall any op: a factor, a shift, axes exchanged, channels lost. Less simple than what
is known of an op of its kind, which wins where both fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen

_LEAST_SLICE = 4
"""Elements that a slice must have for its loss to be one."""
_PER_NUMBER = 16
"""Elements an index along an axis that a factor of its own wants."""

_NAMES = (
    "op-missing zeros negated scale offset scale-and-offset shifted reversed first-repeated"
    " axes-exchanged layout-misread slice-zero offsets-along-axis factors-along-axis"
)
GENERAL = frozenset(_NAMES.split())
"""All kinds there are here; they take no more than a look at the result."""


def general(seen: Seen) -> Iterable[Hypothesis]:
    """For any op whose result the target shows."""
    target, output = seen.target, seen.output
    if target is None or output.dtype.kind != "f" or target.shape != output.shape:
        return
    x = seen.argument(0)
    if x is not None and x.shape == output.shape and x.dtype.kind == "f":
        yield Hypothesis("op-missing", "returns its input unchanged", x, simplicity=0)
    yield Hypothesis("zeros", "returns only zeros", np.zeros_like(output), simplicity=-1)
    yield from _solved(seen, output, target)
    yield from _moved(output)
    yield from _lost(seen, output, target)
    yield from _each(seen, output, target)


def _solved(seen: Seen, output: Array, target: Array) -> Iterator[Hypothesis]:
    fine = seen.without_masked(np.isfinite(output) & np.isfinite(target))
    if not fine.any():
        return
    o, t = output[fine], target[fine]
    energy = float(np.sum(o * o))
    if energy:
        factor = float(np.sum(o * t)) / energy
        text = (
            "negates its result"
            if abs(factor + 1) < 1e-3
            else f"multiplies its result by {_said(factor)}"
        )
        yield Hypothesis(
            "negated" if abs(factor + 1) < 1e-3 else "scale",
            text, factor * output, simplicity=-1, solved=1,
        )  # fmt: skip
    shift = float(np.mean(t - o))
    text = f"adds {shift:.6g} to its result"
    yield Hypothesis("offset", text, output + shift, simplicity=-1, solved=1)
    spread = float(np.var(o))
    if spread:
        slope = float(np.mean((o - o.mean()) * (t - t.mean()))) / spread
        at = float(t.mean() - slope * o.mean())
        text = f"multiplies its result by {_said(slope)} and adds {at:.4g}"
        value = slope * output + at
        yield Hypothesis("scale-and-offset", text, value, simplicity=-2, solved=2)


def _said(factor: float) -> str:
    """A factor, by its reciprocal where that is the rounder number."""
    for number in (2, 3, 4, 6, 8, 16, 32, 64, 128, 255, 256, 1000):
        if abs(factor * number - 1) < 1e-4:
            return f"1/{number}"
    near = np.sqrt(round(1 / factor**2)) if factor > 0 and 1 < 1 / factor**2 < 4096 else 0.0
    if near and abs(factor * near - 1) < 1e-4:
        return f"1/sqrt({round(1 / factor**2)})"
    return f"{factor:.5g}"


def _moved(output: Array) -> Iterator[Hypothesis]:
    """The same numbers in other places."""
    if output.ndim > 5:
        return
    for axis, n in enumerate(output.shape):
        if n < 2:
            continue
        for step in (1, -1):
            text = f"shifts its result by {step} along axis {axis}"
            turned = np.roll(output, step, axis)
            yield Hypothesis("shifted", f"{text}, wrapped around", turned, simplicity=-1)
            blank = turned.copy()
            edge = [slice(None)] * output.ndim
            edge[axis] = slice(0, 1) if step > 0 else slice(n - 1, n)
            blank[tuple(edge)] = 0
            yield Hypothesis("shifted", f"{text}, filled with zeros", blank, simplicity=-1)
        text = f"reverses its result along axis {axis}"
        yield Hypothesis("reversed", text, np.flip(output, axis), simplicity=-1)
        first = np.take(output, [0], axis)
        text = f"returns the values of index 0 for every index of axis {axis}"
        value = np.broadcast_to(first, output.shape)
        yield Hypothesis("first-repeated", text, value, simplicity=-1)
    for a, b in combinations(range(output.ndim), 2):
        if output.shape[a] < 2 or output.shape[b] < 2:
            continue
        turned = np.swapaxes(output, a, b)
        if turned.shape == output.shape:
            text = f"swaps axes {a} and {b} of its result"
            yield Hypothesis("axes-exchanged", text, turned, simplicity=-1)
        else:
            text = f"writes its result with axes {a} and {b} swapped in memory"
            value = turned.reshape(output.shape)
            yield Hypothesis("layout-misread", text, value, simplicity=-1)
    if output.ndim == 4:
        for order, said in (((0, 2, 3, 1), "channels last"), ((0, 3, 1, 2), "channels first")):
            text = f"writes its result {said}; it is read in the reference's layout"
            value = output.transpose(order).reshape(output.shape)
            yield Hypothesis("layout-misread", text, value, simplicity=-1)


def _lost(seen: Seen, output: Array, target: Array) -> Iterator[Hypothesis]:
    """Slices along an axis that are zero in the target alone."""
    target, own = seen.zero_masked(target), seen.zero_masked(output)
    for axis, n in enumerate(output.shape):
        if n < 2 or output.size // n < _LEAST_SLICE:
            continue
        others = tuple(a for a in range(output.ndim) if a != axis)
        gone = ~target.any(others) & own.any(others)
        count = int(np.count_nonzero(gone))
        if not count or count == n:
            continue
        places = np.flatnonzero(gone)
        if count == 1:
            said = f"index {places[0]}"
        elif np.array_equal(places, np.arange(places[0], places[-1] + 1)):
            said = f"indices {places[0]} to {places[-1]}"
        else:
            said = f"{count} of {n} indices"
        shape = [n if a == axis else 1 for a in range(output.ndim)]
        value = np.where(gone.reshape(shape), 0.0, output)
        text = f"returns zeros at {said} of axis {axis}; the reference does not"
        yield Hypothesis("slice-zero", text, value, simplicity=-1)


def _each(seen: Seen, output: Array, target: Array) -> Iterator[Hypothesis]:
    """A factor or an offset for each index of an axis."""
    if not np.isfinite(output).all() or not np.isfinite(target).all():
        return
    target, own = seen.zero_masked(target), seen.zero_masked(output)
    for axis in dict.fromkeys((1 if output.ndim > 2 else output.ndim - 1, output.ndim - 1)):
        n = output.shape[axis] if output.ndim else 0
        if n < 2 or output.size < _PER_NUMBER * n:
            continue
        others = tuple(a for a in range(output.ndim) if a != axis)
        offset = (target - own).mean(others, keepdims=True)
        if seen.kept is not None:
            offset /= np.maximum(seen.kept.mean(others, keepdims=True), 1 / seen.kept.size)
        text = f"adds a different offset at each index of axis {axis}"
        yield Hypothesis("offsets-along-axis", text, output + offset, simplicity=-3, solved=n)
        energy = np.square(own).sum(others, keepdims=True)
        factor = (own * target).sum(others, keepdims=True) / np.where(energy, energy, 1)
        text = f"multiplies each index of axis {axis} by a different factor"
        yield Hypothesis("factors-along-axis", text, output * factor, simplicity=-3, solved=n)
