"""Read a sample, the same on both sides, of tensors too large for a diagnosis: choose spread
indices, select scales, describe the sample.

A sample has the same positions on both sides and in every run of the program.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, fit_view, operand_of
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import MAX_ELEMENTS, check_time
from syncpoint.matching.views import View
from syncpoint.metrics import Operand
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Quantization, Tensor
from syncpoint.run.reader import Run

Values = NDArray[np.float64]
Places = tuple[NDArray[np.int64], ...]
SAMPLE_ELEMENTS = 1 << 20
"""Maximum elements of a sample."""
_MAX_SAMPLED_RUNS = 64
"""Maximum number of contiguous runs of indices on one axis of a sample."""


def choose_sample(shape: tuple[int, ...], worst: int | None = None) -> Places:
    """Choose the indices of each axis for a sample of a tensor of this shape; all of them if it is
    small.

    Whole slices of one axis are preferred: patterns along the other axes stay intact. `worst` is
    the row-major index of an element that must be in the sample.
    """
    lengths = list(shape)
    while prod(lengths) > SAMPLE_ELEMENTS:
        slices = -(-prod(lengths) // SAMPLE_ELEMENTS)
        axis = next((a for a, n in enumerate(lengths) if n >= slices), int(np.argmax(lengths)))
        lengths[axis] = max(lengths[axis] * SAMPLE_ELEMENTS // prod(lengths), 1)
    position = np.unravel_index(worst, shape) if worst is not None and shape else None
    return tuple(
        _spread_indices(length, count, None if position is None else int(position[axis]))
        for axis, (length, count) in enumerate(zip(shape, lengths, strict=True))
    )


def _spread_indices(length: int, count: int, required: int | None) -> NDArray[np.int64]:
    """Choose `count` of `length` indices: contiguous runs, evenly spread, with the required one."""
    if count >= length:
        return np.arange(length)
    runs = min(count, _MAX_SAMPLED_RUNS)
    each = count // runs
    starts = np.arange(runs, dtype=np.int64) * (length - each) // max(runs - 1, 1)
    if required is not None:
        nearest = int(np.argmin(np.abs(starts - required)))
        starts[nearest] = min(max(required - each // 2, 0), length - each)
    return np.unique((starts[:, None] + np.arange(each)).reshape(-1))


def sample_operand(operand: Operand, places: Places) -> Values:
    """Read an operand at these positions in float64, and nothing else of it."""
    check_time()
    stored = operand.array
    for axis, indices in enumerate(places):
        if len(indices) < stored.shape[axis]:
            stored = np.concatenate(
                [stored[_slice_axis(axis, *run)] for run in _list_runs(indices)], axis
            )
    quantization = operand.quantization
    if quantization is not None and quantization.axis is not None:
        length = operand.array.shape[quantization.axis]
        quantization = _select_scales(quantization, places[quantization.axis], length)
    part = replace(operand, data=stored, quantization=quantization, shape=None)
    return np.asarray(dequantize(part), np.float64)


def sample_tensor(run: Run | None, tensor: Tensor, places: Places) -> Values | None:
    """Read a recorded tensor at these positions in float64.

    If only slices of its outermost axis are in the sample, they are read in windows: some files
    cannot be mapped and would be copied completely.
    """
    if run is None:
        return None
    shape = tensor.shape
    axis = next((a for a, n in enumerate(shape) if len(places[a]) < n), None)
    packed = DTYPES[tensor.dtype].packed
    if axis is None or prod(shape[:axis]) != 1 or packed or tensor.quantization is not None:
        return sample_operand(operand_of(run, tensor), places)
    inner = prod(shape[axis + 1 :])
    pieces = [
        run.window(tensor, start * inner, stop * inner) for start, stop in _list_runs(places[axis])
    ]
    stored = np.concatenate(pieces).reshape(*shape[:axis], -1, *shape[axis + 1 :])
    remaining = (*places[:axis], np.arange(stored.shape[axis]), *places[axis + 1 :])
    return sample_operand(Operand(stored, tensor.dtype), remaining)


def sample_target(target: Run | None, tensor: Tensor, row: Row, places: Places) -> Values | None:
    """Read a tensor of the target at positions of its row's reference; None if that needs a full
    copy."""
    if target is None:
        return None
    if not row.view and tensor.shape == row.reference.shape:
        return sample_tensor(target, tensor, places)
    if tensor.quantization is not None:
        return None  # all of it would be dequantized first
    operand = operand_of(target, tensor)
    operand, _ = fit_view(operand, View(row.view), row.reference.shape)
    if operand.array.shape != row.reference.shape:
        return None
    return sample_operand(operand, places)


def _list_runs(indices: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Group sorted indices into contiguous runs: start and stop of each."""
    breaks = np.flatnonzero(np.diff(indices) > 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(indices, breaks)]


def _slice_axis(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, slice(start, stop))


def _select_scales(
    quantization: Quantization, indices: NDArray[np.int64], length: int
) -> Quantization:
    """Return a per-axis quantization for some indices of its axis, with one scale for each."""

    def pick(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(numbers) == 1:
            return numbers
        each = np.repeat(np.asarray(numbers), max(quantization.block, 1))[:length]
        return tuple(each[indices].tolist())

    return replace(
        quantization,
        scale=pick(quantization.scale),
        zero_point=pick(quantization.zero_point),
        block=0,
    )


def read_comparable(one: NDArray[Any], other: NDArray[Any]) -> tuple[Values, Values]:
    """Return two arrays in float64; the same sample of both if they are large and of one shape."""
    if max(one.size, other.size) > MAX_ELEMENTS and one.shape == other.shape:
        places = np.ix_(*choose_sample(one.shape))
        one, other = one[places], other[places]
    return one.astype(np.float64), other.astype(np.float64)


def describe_sample(places: Places, shape: tuple[int, ...]) -> str:
    """Describe how much of a tensor a sample covers."""
    count = prod(len(indices) for indices in places)
    return f"only a sample of {count:,} of its {prod(shape):,} elements was read"
