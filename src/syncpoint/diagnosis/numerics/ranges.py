"""Quantization ranges that waste bits: channels that need scales of their own, and ranges that
are far wider than their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from syncpoint.comparison.introduced_error.grids_between_sync_points import grid_range
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.numerics.clipping import find_sync_point, tensors_with_one_scale
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, OpKey, Role, Tensor

_MIN_CHANNEL_RATIO = 8.0
"""Minimum ratio of the largest channel to the median one: a per-tensor scale costs three bits."""
_MIN_RANGE_RATIO = 8.0
"""Minimum ratio of a range to its values: three unused bits."""
_MIN_MASK_MAGNITUDE = 1e30


@dataclass(frozen=True)
class UnevenChannels:
    """A weight with a per-tensor scale and channels of very different size."""

    tensor: Tensor
    channel: int
    axis: int
    ratio: float

    @property
    def bits(self) -> float:
        """Number of bits that the median channel does not use."""
        return float(np.log2(self.ratio))


@dataclass(frozen=True, kw_only=True)
class WastedRange:
    """A quantized tensor whose range is far wider than its values."""

    row: Row
    tensor: Tensor
    low: float
    high: float
    """Ends of the range."""
    least: float
    greatest: float
    """Ends of the reference's values."""

    @property
    def bits(self) -> float:
        """Number of bits that are not used."""
        used_width = max(self.greatest, 0.0) - min(self.least, 0.0)
        range_width = self.high - self.low
        return (
            float(np.log2(range_width / used_width))
            if used_width > 0 and np.isfinite(range_width)
            else np.inf
        )


def find_uneven_channels(case: Case) -> Iterator[UnevenChannels]:
    """Find weights whose channels need scales of their own, worst first."""
    run = case.target
    uneven_weights = []
    for tensor, scale in tensors_with_one_scale(run, Role.PARAMETER):
        if len(tensor.shape) < 2 or tensor.kept is not Kept.VALUES or run is None:
            continue
        values = read_real_values(run, tensor)
        if values is None:
            continue
        real = np.abs(values)
        for axis in (0, real.ndim - 1):
            channel_maxima = np.moveaxis(real, axis, 0).reshape(real.shape[axis], -1).max(1)
            median = float(np.median(channel_maxima))
            if len(channel_maxima) >= 4 and channel_maxima.max() >= _MIN_CHANNEL_RATIO * max(
                median, scale / 2
            ):
                ratio = float(channel_maxima.max() / max(median, scale / 2))
                uneven_weights.append(
                    UnevenChannels(tensor, int(np.argmax(channel_maxima)), axis, ratio)
                )
                break
    yield from sorted(uneven_weights, key=lambda weight: -weight.ratio)


def find_wasted_ranges(case: Case) -> Iterator[WastedRange]:
    """Find quantized outputs with a range far wider than the reference's values, worst first."""
    wasted_ranges = []
    for tensor, scale in tensors_with_one_scale(case.target, Role.OUTPUT):
        if DTYPES[tensor.dtype].bits > 8:
            continue
        op = case.op("target", tensor.key.op)
        if op is None or op_class(op.type) in ("reshape", "transpose", "slice", "max_pool"):
            continue
        row = find_sync_point(case, op, tensor)
        reference_values = case.values("reference", row) if row is not None else None
        with np.errstate(all="ignore"):
            ends = grid_range(tensor, (1,))
        if reference_values is None or ends is None or row is None:
            continue
        unmasked_values = reference_values[
            np.isfinite(reference_values) & (np.abs(reference_values) < _MIN_MASK_MAGNITUDE)
        ]
        if not unmasked_values.size:
            continue
        low, high = (float(end[0]) for end in ends)
        if not np.isfinite(scale):
            # A mask with the lowest float is among the values: the range itself overflowed.
            low, high = -np.inf, np.inf
        wasted_range = WastedRange(
            row=row,
            tensor=tensor,
            low=low,
            high=high,
            least=float(unmasked_values.min()),
            greatest=float(unmasked_values.max()),
        )
        if wasted_range.bits >= np.log2(_MIN_RANGE_RATIO):
            wasted_ranges.append(wasted_range)
    yield from sorted(wasted_ranges, key=lambda wasted_range: -wasted_range.bits)


def find_row_behind(case: Case, ops: set[OpKey]) -> Row | None:
    """Find the first row of one of the ops or of an op that depends on them."""
    rows = {row.target.key.op: row for row in reversed(case.computed)}
    reached = set(ops)
    for op in case.target.ops if case.target is not None else ():
        if op.key not in reached and not any(edge.op in reached for edge in op.inputs):
            continue
        if op.key in rows:
            return rows[op.key]
        reached.add(op.key)
    return None
