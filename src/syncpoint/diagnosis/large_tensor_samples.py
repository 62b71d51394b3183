"""Samples of tensors that are too large for a diagnosis to read whole.

A sample is the same for both sides and for every run of the program.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.diagnosis.budget import MAX_ELEMENTS, check_time
from syncpoint.metrics import Operand
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Quantization, Tensor
from syncpoint.run.reader import Run

Values = NDArray[np.float64]
Places = tuple[NDArray[np.int64], ...]
SAMPLE_ELEMENTS = 1 << 20
"""Elements of a larger tensor that are looked at, at most."""
_SAMPLED_RUNS = 64
"""Contiguous pieces of one axis that a sample is made of."""


def sample_places(shape: tuple[int, ...], worst: int | None = None) -> Places:
    """Which indices of each axis a sample of a tensor of this shape has; all of them where it is
    small. Whole slices of one axis where that suffices, so that what is seen along the others
    stays as it is. `worst` is an element, by its row-major index, that must be among them."""
    kept = list(shape)
    while prod(kept) > SAMPLE_ELEMENTS:
        slices = -(-prod(kept) // SAMPLE_ELEMENTS)
        axis = next((a for a, n in enumerate(kept) if n >= slices), int(np.argmax(kept)))
        kept[axis] = max(kept[axis] * SAMPLE_ELEMENTS // prod(kept), 1)
    at = np.unravel_index(worst, shape) if worst is not None and shape else None
    return tuple(
        _spread(length, count, None if at is None else int(at[axis]))
        for axis, (length, count) in enumerate(zip(shape, kept, strict=True))
    )


def _spread(length: int, count: int, wanted: int | None) -> NDArray[np.int64]:
    """`count` of `length` indices: contiguous runs, evenly spread, the wanted index among them."""
    if count >= length:
        return np.arange(length)
    runs = min(count, _SAMPLED_RUNS)
    each = count // runs
    starts = np.arange(runs, dtype=np.int64) * (length - each) // max(runs - 1, 1)
    if wanted is not None:
        nearest = int(np.argmin(np.abs(starts - wanted)))
        starts[nearest] = min(max(wanted - each // 2, 0), length - each)
    return np.unique((starts[:, None] + np.arange(each)).reshape(-1))


def sampled(operand: Operand, places: Places) -> Values:
    """The numbers that an operand has at these places, in float64; nothing else of it is read."""
    check_time()
    stored = operand.array
    for axis, indices in enumerate(places):
        if len(indices) < stored.shape[axis]:
            stored = np.concatenate([stored[_cut(axis, *run)] for run in _runs(indices)], axis)
    known = operand.quantization
    if known is not None and known.axis is not None:
        length = operand.array.shape[known.axis]
        known = _of_indices(known, places[known.axis], length)
    part = replace(operand, data=stored, quantization=known, shape=None)
    return np.asarray(dequantize(part), np.float64)


def sampled_tensor(run: Run | None, tensor: Tensor, places: Places) -> Values | None:
    """The same of a recorded tensor. Where only slices of its outermost axis are left out they are
    read in windows, since some files cannot be mapped and would be copied as a whole."""
    if run is None:
        return None
    shape = tensor.shape
    axis = next((a for a, n in enumerate(shape) if len(places[a]) < n), None)
    packed = DTYPES[tensor.dtype].packed
    if axis is None or prod(shape[:axis]) != 1 or packed or tensor.quantization is not None:
        return sampled(operand_of(run, tensor), places)
    inner = prod(shape[axis + 1 :])
    pieces = [
        run.window(tensor, start * inner, stop * inner) for start, stop in _runs(places[axis])
    ]
    stored = np.concatenate(pieces).reshape(*shape[:axis], -1, *shape[axis + 1 :])
    left = (*places[:axis], np.arange(stored.shape[axis]), *places[axis + 1 :])
    return sampled(Operand(stored, tensor.dtype), left)


def _runs(indices: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Sorted indices as contiguous runs: the first of each, and the one after its last."""
    breaks = np.flatnonzero(np.diff(indices) > 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(indices, breaks)]


def _cut(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop))


def _of_indices(known: Quantization, indices: NDArray[np.int64], length: int) -> Quantization:
    """A quantization along an axis of which only some indices are left: one scale for each."""

    def picked(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(numbers) == 1:
            return numbers
        each = np.repeat(np.asarray(numbers), max(known.block, 1))[:length]
        return tuple(each[indices].tolist())

    return replace(known, scale=picked(known.scale), zero_point=picked(known.zero_point), block=0)


def comparable(one: NDArray[Any], other: NDArray[Any]) -> tuple[Values, Values]:
    """Two arrays in float64, or where they are large and of one shape the same sample of both."""
    if max(one.size, other.size) > MAX_ELEMENTS and one.shape == other.shape:
        places = np.ix_(*sample_places(one.shape))
        one, other = one[places], other[places]
    return one.astype(np.float64), other.astype(np.float64)


def sample_words(places: Places, shape: tuple[int, ...]) -> str:
    """How much of a tensor a sample is, in words."""
    seen = prod(len(indices) for indices in places)
    return f"a sample of {seen:,} of its {prod(shape):,} elements was looked at, not all"
