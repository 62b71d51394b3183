"""Proof by computing: whether the reference's op, with one thing changed, gives the target's
numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.regions import NoRegion
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region import Local
from syncpoint.metrics.limits import PRESETS
from syncpoint.run.model import Edge, Role
from syncpoint.run.statistics import rms

Array = NDArray[Any]


@dataclass(frozen=True)
class Proof:
    """How near the reference's op comes to the target with something changed."""

    before: float
    """Root mean square of what the target's op added."""
    after: float
    """What is left of it."""
    allowed: float
    """What its precision allows."""
    size: float
    """Root mean square of the exact result."""

    @property
    def exact(self) -> bool:
        """Whether nothing is left but rounding; what is not finite proves nothing."""
        if not np.isfinite(self.after + self.size):
            return False
        return self.after <= max(self.allowed, 1e-7 * self.size) and self.after < 0.1 * self.before

    @property
    def explains(self) -> bool:
        """Whether next to nothing is left."""
        return self.exact or (
            bool(np.isfinite(self.after + self.size)) and self.after <= 0.02 * self.before
        )

    def words(self, change: str, label: str) -> str:
        """One sentence: what was computed and what came out."""
        size = self.size or 1.0
        return (
            f"{label} is off by {self.before / size:.2g} of its size; {change} the reference gives"
            f" its numbers to {self.after / size:.2g}"
        )


def against(local: Local, made: Array | None) -> Proof | None:
    """What is left of the op's error if the reference's had given `made`."""
    if made is None or made.shape != local.target.shape:
        return None
    row = local.row.introduced
    limit = PRESETS[row.preset].introduced[0] if row is not None and row.preset in PRESETS else 30.0
    with np.errstate(invalid="ignore", over="ignore"):
        after = rms(local.counted(local.target - made))
    before, size = (rms(local.counted(values)) for values in (local.error, local.truth))
    return Proof(before, after, limit * local.noise, size)


def proof(local: Local, changed: Mapping[Edge, Array]) -> Proof | None:
    """The same with other inputs or parameters."""
    return against(local, local.fed(changed))


def region_edges(case: Case, row: Row) -> list[Edge]:
    """The reference's parameters that the ops behind a row read."""
    at = row.reference.key
    introducer = case.introducer
    ops = [at.op]
    if introducer is not None and at.role is Role.OUTPUT:
        try:
            ops = list(introducer.regions.find_behind(at.op, [at.index], at.part).ops)
        except NoRegion:
            ops = [at.op]
    found = []
    for key in ops:
        op = case.op("reference", key)
        if op is not None:
            found += [e for e in op.inputs if e.role is Role.PARAMETER]
    return found
