"""Find 8-bit integer kernels that add products in saturating 16 bits, as processors without VNNI
do; confirm that the ops are right in floats."""

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

_KERNEL_TYPES = ("qlinear", "qgemm", "integer", "dynamicquantize")
_MAX_SAFE_WEIGHT = 64
"""Maximum magnitude of weights that cannot saturate: 2 * 255 * 64 fits into 16 bits."""
_MAX_OPS_BETWEEN = 64
"""Maximum number of ops to visit between a sync point and the ones before it."""


@dataclass(frozen=True)
class Saturation:
    """Integer kernels with an error that the same integers, summed in floats, do not have."""

    rows: tuple[Row, ...]
    """Sync points right behind such kernels."""
    worst: SaturatingKernel
    proven: bool


@dataclass(frozen=True)
class SaturatingKernel:
    """A sync point right behind a kernel whose weights can saturate."""

    row: Row
    kernel: Op
    saturating_share: float
    """Share of the pairs of neighboring weights that can saturate."""
    greatest_sum: float
    """Largest sum of magnitudes of such a pair."""
    rmse_in_floats: float | None = None
    """RMS error that the same integers introduce when they are summed in floats."""


def find_saturation(case: Case, rows: Sequence[Row]) -> Saturation | None:
    """Find the rows right behind kernels that can saturate and that are correct in floats."""
    suspects = [suspect for row in rows if (suspect := _find_suspect(case, row)) is not None]
    unfused_result = compare_unfused(case) if suspects else None
    proven = []
    if unfused_result is not None:
        proven = [
            confirmed
            for suspect in suspects
            if (confirmed := _confirm_in_floats(unfused_result, suspect)) is not None
        ]
    if not suspects or (unfused_result is not None and not proven):
        return None
    kernels = proven or suspects
    worst = max(kernels, key=lambda suspect: _introduced_ratio(suspect.row))
    kernel_rows = tuple(suspect.row for suspect in kernels)
    return Saturation(kernel_rows, worst, bool(proven))


def _find_suspect(case: Case, row: Row) -> SaturatingKernel | None:
    for op in list_ops_behind(case, row):
        pairs = _measure_weight_pairs(case, op) if is_integer_kernel(op) else None
        if pairs is not None and pairs[0] > 0:
            return SaturatingKernel(row, op, *pairs)
    return None


def _confirm_in_floats(
    unfused_result: Result, suspect: SaturatingKernel
) -> SaturatingKernel | None:
    """Return the suspect with the error that its integers introduce in floats, op by op; None if
    they are not correct in floats either."""
    counterpart = find_counterpart(unfused_result, suspect.row)
    if (
        counterpart is None
        or counterpart.introduced is None
        or find_culprit(unfused_result, suspect.row) is not None
    ):
        return None
    if counterpart.introduced_verdict is not Verdict.CLOSE:
        return None
    return replace(suspect, rmse_in_floats=counterpart.introduced.rmse)


def is_integer_kernel(op: Op) -> bool:
    """Whether an op multiplies 8-bit integers."""
    kind = op.type.lower()
    return op_class(op.type) in ("matmul", "conv") and any(name in kind for name in _KERNEL_TYPES)


def list_ops_behind(case: Case, row: Row) -> Iterator[Op]:
    """Yield the target's ops between a row and the sync points before it, its own op first."""
    run = case.target
    if run is None:
        return
    waiting, visited = [row.target.key.op], {row.target.key.op}
    while waiting:
        op = run.op(waiting.pop(0))
        if op is None:
            continue
        yield op
        for edge in op.inputs:
            source = TensorKey(edge.op, edge.role, edge.index, row.target.key.part)
            if edge.role is not Role.OUTPUT or source in case.place or edge.op in visited:
                continue
            if len(visited) < _MAX_OPS_BETWEEN:
                visited.add(edge.op)
                waiting.append(edge.op)


def _introduced_ratio(row: Row) -> float:
    return (row.introduced.ratio or 0.0) if row.introduced is not None else 0.0


def _measure_weight_pairs(case: Case, op: Op) -> tuple[float, float] | None:
    """Return the share of pairs of weights that can saturate, and the largest sum of a pair."""
    share_and_sum: tuple[float, float] | None = None
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
        magnitudes = np.abs(integers.astype(np.int32))
        # Matrix products sum along the first axis of the weight, convolutions along all but
        # the first.
        rows = (
            magnitudes
            if op_class(op.type) == "matmul"
            else magnitudes.reshape(len(magnitudes), -1).T
        )
        even_count = len(rows) // 2 * 2
        sums = rows[:even_count:2] + rows[1:even_count:2]
        if sums.size:
            share_and_sum = float(np.mean(sums > 2 * _MAX_SAFE_WEIGHT)), float(sums.max())
    return share_and_sum
