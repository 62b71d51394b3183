"""Prove an explanation: run the reference's op with one change and compare the result with the
target's values; error before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import describe_change
from syncpoint.metrics.limits import PRESETS
from syncpoint.run.model import Edge
from syncpoint.run.statistics import rms

Array = NDArray[Any]


@dataclass(frozen=True)
class Proof:
    """The error of a sync point before and after a change of the reference's op."""

    before: float
    """RMS of the error that the target's op introduced."""
    after: float
    """RMS of the error that remains with the change."""
    allowed: float
    """RMS error that its precision allows."""
    size: float
    """RMS of the exact result."""

    @property
    def exact(self) -> bool:
        """Whether only rounding remains; values that are not finite prove nothing."""
        if not np.isfinite(self.after + self.size):
            return False
        return self.after <= max(self.allowed, 1e-7 * self.size) and self.after < 0.1 * self.before

    @property
    def explains(self) -> bool:
        """Whether almost no error remains."""
        return self.exact or (
            bool(np.isfinite(self.after + self.size)) and self.after <= 0.02 * self.before
        )

    def words(self, change: str, label: str) -> str:
        """Return one sentence: the relative difference without and with the change.

        `change` is an adverbial phrase: `with inputs rounded to 10 bits in the reference`.
        """
        size = self.size or 1.0
        remainder = ""
        if self.exact:
            remainder = "rounding explains the rest"
        elif self.allowed:
            remainder = f"rounding explains at most {self.allowed / size:.2g}"
        return describe_change(
            change,
            self.before / size,
            self.after / size,
            "relative",
            remainder,
            f"the two results of {label}",
        )


def prove_result(experiment: RegionExperiment, result: Array | None) -> Proof | None:
    """Compare the target with another result of the reference's region; None if shapes differ."""
    if result is None or result.shape != experiment.target.shape:
        return None
    introduced = experiment.row.introduced
    preset = introduced.preset if introduced is not None else ""
    limit = PRESETS[preset].introduced[0] if preset in PRESETS else 30.0
    with np.errstate(invalid="ignore", over="ignore"):
        after = rms(experiment.counted(experiment.target - result))
    before, size = (
        rms(experiment.counted(values)) for values in (experiment.error, experiment.truth)
    )
    return Proof(before, after, limit * experiment.noise, size)


def prove_change(experiment: RegionExperiment, changed: Mapping[Edge, Array]) -> Proof | None:
    """Compare the target with the reference's region on other inputs or parameters."""
    return prove_result(experiment, experiment.run_with(changed))
