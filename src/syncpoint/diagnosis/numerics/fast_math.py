"""Steep functions by short tables and few iterations, as fast mathematics computes them: right to
so many bits at every element, whatever its size, and nothing else is off."""

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
"""An approximation that is worse is none, and one that is better is not seen."""
_MAX_ERROR_SPREAD = 4.0
"""The relative error of one element in ten over that of the middle one, at most."""
_MAX_MEAN_TO_RMS = 0.7
"""Mean over root mean square: what errs to one side is another function."""


@dataclass(frozen=True)
class ApproximateFunctions:
    """Steep functions that are right to so many bits."""

    rows: list[Row]
    bits: float
    """Of nine elements in ten."""
    kinds: tuple[str, ...]


def find_approximate_functions(case: Case) -> ApproximateFunctions | None:
    """Whether all that makes error are steep functions, and each errs alike at all elements."""
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
    """The relative error that nine in ten elements are within; None where it is not alike at most
    of them."""
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
