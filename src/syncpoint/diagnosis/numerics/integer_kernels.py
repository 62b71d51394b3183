"""Kernels of 8-bit integers that add two products in 16 bits: what processors without VNNI do with
unsigned values and signed weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_stored_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.unfused_target import (
    compare_unfused,
    find_counterpart,
    find_culprit,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Kept, Op, Role, TensorKey

_KERNELS = ("qlinear", "qgemm", "integer", "dynamicquantize")
_HALF = 64
"""Weights up to this size cannot saturate: 2 * 255 * 64 fits into 16 bits."""
_FAR = 64
"""Ops that are looked at between one sync point and those before it."""


@dataclass(frozen=True)
class Saturation:
    """Integer kernels that lose what the same integers, added up in floats, do not."""

    rows: tuple[Row, ...]
    """Sync points right behind such kernels."""
    worst: SaturatingKernel
    proven: bool


@dataclass(frozen=True)
class SaturatingKernel:
    """A sync point right behind a kernel whose weights can saturate."""

    row: Row
    kernel: Op
    over: float
    """The share of pairs of neighbouring weights that can."""
    most: float
    """The greatest sum of such a pair."""
    rmse_in_floats: float | None = None
    """What the same integers introduce when they are added up in floats."""


def saturation(case: Case, rows: Sequence[Row]) -> Saturation | None:
    """Which of the rows stand behind kernels that can saturate, and are right in floats."""
    suspects = [suspect for row in rows if (suspect := _suspect(case, row)) is not None]
    alone = compare_unfused(case) if suspects else None
    proven = []
    if alone is not None:
        proven = [p for suspect in suspects if (p := _right_in_floats(alone, suspect)) is not None]
    if not suspects or (alone is not None and not proven):
        return None
    hit = proven or suspects
    worst = max(hit, key=lambda suspect: _ratio(suspect.row))
    rows_hit = tuple(suspect.row for suspect in hit)
    return Saturation(rows_hit, worst, bool(proven))


def _suspect(case: Case, row: Row) -> SaturatingKernel | None:
    for op in behind(case, row):
        pairs = _pairs(case, op) if is_integer_kernel(op) else None
        if pairs is not None and pairs[0] > 0:
            return SaturatingKernel(row, op, *pairs)
    return None


def _right_in_floats(alone: Result, suspect: SaturatingKernel) -> SaturatingKernel | None:
    """The suspect with what its integers introduce op by op, in floats; None where they are not
    right there."""
    twin = find_counterpart(alone, suspect.row)
    if twin is None or twin.introduced is None or find_culprit(alone, suspect.row) is not None:
        return None
    if twin.introduced_verdict is not Verdict.CLOSE:
        return None
    return replace(suspect, rmse_in_floats=twin.introduced.rmse)


def is_integer_kernel(op: Op) -> bool:
    """Whether an op multiplies 8-bit integers."""
    kind = op.type.lower()
    return op_class(op.type) in ("matmul", "conv") and any(name in kind for name in _KERNELS)


def behind(case: Case, row: Row) -> Iterator[Op]:
    """The target's ops between a row and the sync points before it, its own first."""
    run = case.target
    if run is None:
        return
    waiting, seen = [row.target.key.op], {row.target.key.op}
    while waiting:
        op = run.op(waiting.pop(0))
        if op is None:
            continue
        yield op
        for edge in op.inputs:
            source = TensorKey(edge.op, edge.role, edge.index, row.target.key.part)
            if edge.role is not Role.OUTPUT or source in case.place or edge.op in seen:
                continue
            if len(seen) < _FAR:
                seen.add(edge.op)
                waiting.append(edge.op)


def _ratio(row: Row) -> float:
    return (row.introduced.ratio or 0.0) if row.introduced is not None else 0.0


def _pairs(case: Case, op: Op) -> tuple[float, float] | None:
    """The share of pairs of weights that can saturate, and the greatest sum of a pair."""
    best: tuple[float, float] | None = None
    for edge in op.inputs if case.target is not None else ():
        if edge.role is not Role.PARAMETER or case.target is None:
            continue
        tensor = case.target.tensor(TensorKey(edge.op, edge.role, edge.index))
        if tensor is None or tensor.dtype != "i8" or tensor.kept is not Kept.VALUES:
            continue
        if len(tensor.shape) < 2:
            continue
        integers = read_stored_values(case.target, tensor)
        if integers is None:
            continue
        stored = np.abs(integers.astype(np.int32))
        # Products of matrices add up along the first axis of the weight, convolutions along
        # all but the first.
        rows = stored if op_class(op.type) == "matmul" else stored.reshape(len(stored), -1).T
        even = len(rows) // 2 * 2
        sums = rows[:even:2] + rows[1:even:2]
        if sums.size:
            best = float(np.mean(sums > 2 * _HALF)), float(sums.max())
    return best
