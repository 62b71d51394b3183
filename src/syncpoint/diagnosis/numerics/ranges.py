"""How well grids of integers are used: channels that need a scale of their own, and ranges that
are far wider than what is in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from syncpoint.comparison.introduced_error.grids_between_sync_points import grid_range
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.numerics.clipping import sync_point, tensors_with_one_scale
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, OpKey, Role, Tensor

_UNEVEN = 8.0
"""Greatest channel over the median one, from which on one scale for all costs three bits."""
_WASTED = 8.0
"""Range over what is in it, by the same measure."""
_MASK = 1e30


@dataclass(frozen=True)
class Uneven:
    """A weight with one scale for channels of very unlike size."""

    tensor: Tensor
    channel: int
    axis: int
    ratio: float

    @property
    def bits(self) -> float:
        """Bits that the median channel does not use."""
        return float(np.log2(self.ratio))


@dataclass(frozen=True, kw_only=True)
class Wasted:
    """Integers most of which stand for nothing."""

    row: Row
    tensor: Tensor
    low: float
    high: float
    """The range that there is,"""
    least: float
    greatest: float
    """and what is in it in the reference."""

    @property
    def bits(self) -> float:
        """Bits that are not used."""
        used = max(self.greatest, 0.0) - min(self.least, 0.0)
        whole = self.high - self.low
        return float(np.log2(whole / used)) if used > 0 and np.isfinite(whole) else np.inf


def uneven(case: Case) -> Iterator[Uneven]:
    """Weights for whose channels one scale is not enough, the worst first."""
    run = case.target
    found = []
    for tensor, scale in tensors_with_one_scale(run, Role.PARAMETER):
        if len(tensor.shape) < 2 or tensor.kept is not Kept.VALUES or run is None:
            continue
        values = read_real_values(run, tensor)
        if values is None:
            continue
        real = np.abs(values)
        for axis in (0, real.ndim - 1):
            tops = np.moveaxis(real, axis, 0).reshape(real.shape[axis], -1).max(1)
            middle = float(np.median(tops))
            if len(tops) >= 4 and tops.max() >= _UNEVEN * max(middle, scale / 2):
                ratio = float(tops.max() / max(middle, scale / 2))
                found.append(Uneven(tensor, int(np.argmax(tops)), axis, ratio))
                break
    yield from sorted(found, key=lambda one: -one.ratio)


def wasted(case: Case) -> Iterator[Wasted]:
    """Grids of results that are far wider than what the reference has there, the worst first."""
    found = []
    for tensor, scale in tensors_with_one_scale(case.target, Role.OUTPUT):
        if DTYPES[tensor.dtype].bits > 8:
            continue
        op = case.op("target", tensor.key.op)
        if op is None or op_class(op.type) in ("reshape", "transpose", "slice", "max_pool"):
            continue
        row = sync_point(case, op, tensor)
        own = case.values("reference", row) if row is not None else None
        with np.errstate(all="ignore"):
            ends = grid_range(tensor, (1,))
        if own is None or ends is None or row is None:
            continue
        kept = own[np.isfinite(own) & (np.abs(own) < _MASK)]
        if not kept.size:
            continue
        low, high = (float(end[0]) for end in ends)
        if not np.isfinite(scale):
            # A mask of the lowest float among the values: the range itself overflowed.
            low, high = -np.inf, np.inf
        one = Wasted(
            row=row,
            tensor=tensor,
            low=low,
            high=high,
            least=float(kept.min()),
            greatest=float(kept.max()),
        )
        if one.bits >= np.log2(_WASTED):
            found.append(one)
    yield from sorted(found, key=lambda one: -one.bits)


def row_behind(case: Case, ops: set[OpKey]) -> Row | None:
    """The first row that one of the ops makes, or that is made of what they give."""
    rows = {row.target.key.op: row for row in reversed(case.computed)}
    reached = set(ops)
    for op in case.target.ops if case.target is not None else ():
        if op.key not in reached and not any(edge.op in reached for edge in op.inputs):
            continue
        if op.key in rows:
            return rows[op.key]
        reached.add(op.key)
    return None
