"""Steep functions by short tables and few iterations, as fast mathematics computes them: right to
so many bits at every element, whatever its size, and nothing else is off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.matching.op_kinds import op_class

_STEEP = frozenset(
    {"exp", "log", "sqrt", "rsqrt", "reciprocal", "tanh", "sigmoid", "erf", "gelu", "silu", "pow"}
    | {"softmax", "log_softmax", "sin", "cos", "layer_norm", "rms_norm", "group_norm"}
)
_COARSE, _FINE = 2.0**-6, 2.0**-20
"""An approximation that is worse is none, and one that is better is not seen."""
_UNEVEN = 4.0
"""The relative error of one element in ten over that of the middle one, at most."""
_ONE_SIDED = 0.7
"""Mean over root mean square: what errs to one side is another function."""


@dataclass(frozen=True)
class Approximate:
    """Steep functions that are right to so many bits."""

    rows: list[Row]
    bits: float
    """Of nine elements in ten."""
    kinds: tuple[str, ...]


def approximate(case: Case) -> Approximate | None:
    """Whether all that makes error are steep functions, and each errs alike at all elements."""
    guilty = [row for row in case.guilty if row.target.dtype == "f32"]
    kinds = {op_class(row.reference.type) for row in guilty}
    if not guilty or len(guilty) < len(case.guilty) or not kinds <= _STEEP:
        return None
    steep = [
        row
        for row in case.computed
        if op_class(row.reference.type) in kinds and row.introduced is not None
    ]
    if len(guilty) < 0.8 * len(steep):
        return None
    worst = []
    for row in guilty[:6]:
        experiment = case.experiment(row)
        size = _relative(experiment) if experiment is not None else None
        if size is None:
            return None
        worst.append(size)
    if max(worst) > _COARSE or min(worst) < _FINE or max(worst) > 8 * min(worst):
        return None
    return Approximate(guilty, float(-np.log2(max(worst))), tuple(sorted(kinds)))


def _relative(experiment: RegionExperiment) -> float | None:
    """The relative error that nine in ten elements are within; None where it is not alike at most
    of them."""
    truth = experiment.truth
    if (
        len(experiment.ops) != 1
        or not np.isfinite(experiment.target).all()
        or not np.isfinite(truth).all()
    ):
        return None
    told = experiment.without_masked(np.abs(truth) > 2.0**-100)
    if np.count_nonzero(told) < 8:
        return None
    error = experiment.error[told] / truth[told]
    middle, most = (float(q) for q in np.quantile(np.abs(error), (0.5, 0.9)))
    inner = error[np.abs(error) <= most]
    if abs(inner.mean()) > _ONE_SIDED * np.sqrt(np.mean(np.square(inner))):
        return None
    return most if 0 < most <= _UNEVEN * middle else None
