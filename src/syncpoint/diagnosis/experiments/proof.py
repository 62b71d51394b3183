"""Proof by computing: whether the reference's op, with one thing changed, gives the target's
numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.metrics.limits import PRESETS
from syncpoint.run.model import Edge
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
        """Return one sentence: the relative error without and with the change.

        `change` is an adverbial phrase such as `with inputs rounded to 10 bits`.
        """
        size = self.size or 1.0
        return (
            f"{label} has a relative error of {self.before / size:.2g};"
            f" {change} the reference reproduces the target to {self.after / size:.2g}"
        )


def against(experiment: RegionExperiment, made: Array | None) -> Proof | None:
    """What is left of the op's error if the reference's had given `made`."""
    if made is None or made.shape != experiment.target.shape:
        return None
    row = experiment.row.introduced
    limit = PRESETS[row.preset].introduced[0] if row is not None and row.preset in PRESETS else 30.0
    with np.errstate(invalid="ignore", over="ignore"):
        after = rms(experiment.counted(experiment.target - made))
    before, size = (
        rms(experiment.counted(values)) for values in (experiment.error, experiment.truth)
    )
    return Proof(before, after, limit * experiment.noise, size)


def proof(experiment: RegionExperiment, changed: Mapping[Edge, Array]) -> Proof | None:
    """The same with other inputs or parameters."""
    return against(experiment, experiment.fed(changed))
