"""Find fast-math approximations of steep functions such as exp, by a relative error that is uniform
over the elements.

Every element has about the same relative error, whatever its size, and no other op has an error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.matching.op_kinds import op_class

_STEEP_OPS = frozenset(
    {"exp", "log", "sqrt", "rsqrt", "reciprocal", "tanh", "sigmoid", "erf", "gelu", "silu", "pow"}
    | {"softmax", "log_softmax", "sin", "cos", "layer_norm", "rms_norm", "group_norm"}
)
_MAX_RELATIVE_ERROR, _MIN_RELATIVE_ERROR = 2.0**-6, 2.0**-20
"""Relative errors of an approximation: above it is a wrong result, below it is rounding."""
_MAX_ERROR_SPREAD = 4.0
"""Maximum ratio of the 90th percentile of the relative error to its median."""
_MAX_MEAN_TO_RMS = 0.7
"""Maximum ratio of mean error to RMS error: a one-sided error means another function."""


@dataclass(frozen=True)
class ApproximateFunctions:
    """Steep functions that are correct to a limited number of bits."""

    rows: list[Row]
    bits: float
    """Number of correct bits of 90 % of the elements."""
    kinds: tuple[str, ...]


def find_approximate_functions(case: Case) -> ApproximateFunctions | None:
    """Find approximate steep functions; None unless all guilty ops are steep functions with a
    uniform relative error."""
    guilty = [row for row in case.guilty if row.target.dtype == "f32"]
    kinds = {op_class(row.reference.type) for row in guilty}
    if not guilty or len(guilty) < len(case.guilty) or not kinds <= _STEEP_OPS:
        return None
    steep = [
        row
        for row in case.computed
        if op_class(row.reference.type) in kinds and row.introduced is not None
    ]
    if len(guilty) < 0.8 * len(steep):
        return None
    relative_errors = []
    for row in guilty[:6]:
        experiment = case.experiment(row)
        relative_error = _measure_relative_error(experiment) if experiment is not None else None
        if relative_error is None:
            return None
        relative_errors.append(relative_error)
    if (
        max(relative_errors) > _MAX_RELATIVE_ERROR
        or min(relative_errors) < _MIN_RELATIVE_ERROR
        or max(relative_errors) > 8 * min(relative_errors)
    ):
        return None
    return ApproximateFunctions(guilty, float(-np.log2(max(relative_errors))), tuple(sorted(kinds)))


def _measure_relative_error(experiment: RegionExperiment) -> float | None:
    """Return the 90th percentile of the relative error; None if the error is not uniform."""
    truth = experiment.truth
    if (
        len(experiment.ops) != 1
        or not np.isfinite(experiment.target).all()
        or not np.isfinite(truth).all()
    ):
        return None
    nonzero = experiment.without_masked(np.abs(truth) > 2.0**-100)
    if np.count_nonzero(nonzero) < 8:
        return None
    error = experiment.error[nonzero] / truth[nonzero]
    median, ninth_decile = (float(q) for q in np.quantile(np.abs(error), (0.5, 0.9)))
    inner = error[np.abs(error) <= ninth_decile]
    if abs(inner.mean()) > _MAX_MEAN_TO_RMS * np.sqrt(np.mean(np.square(inner))):
        return None
    return ninth_decile if 0 < ninth_decile <= _MAX_ERROR_SPREAD * median else None
