"""A few ops that compute in a coarser float type than the others, judged by their errors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from syncpoint.comparison.rows import Introduced, Row
from syncpoint.diagnosis.case import Case
from syncpoint.metrics.limits import is_coarser
from syncpoint.run.model import Role

_MAX_COARSER_SHARE = 0.25
"""Maximum share of coarser ops; above it, the coarser type is the model's own precision."""
_COARSE_FLOATS = ("f16", "bf16", "tf32", "fp8")


@dataclass(frozen=True, kw_only=True)
class CoarserOps:
    """The ops that compute in a coarser type than the rest."""

    ops: list[tuple[Row, Introduced]]
    """With the error that each introduces, largest first."""
    usual: str
    """Precision of most ops."""
    median: float
    """Relative error that the median op of that precision introduces."""
    count: int
    """Number of ops whose introduced error was measured."""


def find_coarser_ops(case: Case) -> CoarserOps | None:
    """Find the ops that are coarser than the rest; None if there are none, or too many."""
    measured_ops = _list_measured_ops(case)
    presets = Counter(introduced.preset for _, introduced in measured_ops)
    if len(presets) < 2:
        return None
    usual = presets.most_common(1)[0][0]
    coarser_ops = [pair for pair in measured_ops if _is_coarser(*pair, usual)]
    if not coarser_ops or len(coarser_ops) > _MAX_COARSER_SHARE * len(measured_ops):
        return None
    coarser_ops.sort(key=lambda pair: -(pair[1].rel_l2 or 0.0))
    others = [
        introduced.rel_l2 or 0.0 for _, introduced in measured_ops if introduced.preset == usual
    ]
    return CoarserOps(
        ops=coarser_ops, usual=usual, median=float(np.median(others)), count=len(measured_ops)
    )


def _list_measured_ops(case: Case) -> list[tuple[Row, Introduced]]:
    """List the ops whose introduced error is known, with that error."""
    return [
        (row, row.introduced)
        for row in case.computed
        if row.introduced is not None and row.target.key.role is Role.OUTPUT
    ]


def _is_coarser(row: Row, introduced: Introduced, usual: str) -> bool:
    """Whether an op is not guilty and has the error of a coarser float type than the usual one."""
    return (
        introduced.preset in _COARSE_FLOATS
        and is_coarser(introduced.preset, usual)
        and not row.guilty
        and introduced.rmse > 0
    )
