"""Find ops that compute in a narrower type than declared (inputs or result rounded), or in a
coarser type than the other ops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Introduced, Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.metrics.limits import is_coarser
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Role
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]

_NARROW_TYPES = ("f16", "bf16")

_MAX_COARSER_SHARE = 0.25
"""Maximum share of coarser ops; above it, the coarser type is the model's own precision."""
_COARSE_FLOATS = ("f16", "bf16", "tf32", "fp8")


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A narrower type in which an op seems to compute."""

    dtype: str
    where: str
    """Description of what is rounded."""
    error: float
    residual: float
    """RMS difference between the target and the rounded reference."""
    all_representable: bool
    """Whether that type can represent every value of the op's result."""
    size: float
    """Ratio of the error to the error of rounding to that type."""

    @property
    def reproduces(self) -> bool:
        """Whether rounding reproduces most of the target's error, element by element."""
        return self.residual <= 0.5 * self.error

    @property
    def explains(self) -> bool:
        """Whether the type explains the error: it reproduces it, or the values fit the type and the
        error has the right size."""
        return self.reproduces or (self.all_representable and 1 / 8 <= self.size <= 8)


def find_narrowing(experiment: RegionExperiment) -> Narrowing | None:
    """Find the type, and what is rounded, that explain the op's error best; None if none do."""
    if experiment.row.target.dtype not in ("f32", "f64") or experiment.truth.dtype.kind != "f":
        return None
    if not np.isfinite(experiment.target).all() or not np.isfinite(experiment.truth).all():
        return None
    error = finite_rms(experiment.counted(experiment.error))
    if not error:
        return None
    narrowings = [
        narrowing
        for dtype in _NARROW_TYPES
        for narrowing in _try_dtype(experiment, dtype, error)
        if narrowing.explains
    ]
    return min(narrowings, key=lambda narrowing: narrowing.residual, default=None)


def _try_dtype(experiment: RegionExperiment, dtype: str, error: float) -> list[Narrowing]:
    kind = DTYPES[dtype].numpy
    with np.errstate(over="ignore", invalid="ignore"):
        representable = experiment.target.astype(kind).astype(np.float64)
        rounded = {e: _round(v, kind) for e, v in experiment.inputs.items() if v.dtype.kind == "f"}
    representable, target = experiment.counted(representable), experiment.counted(experiment.target)
    is_representable = bool(np.array_equal(representable, target, equal_nan=True)) and bool(
        target.any()
    )
    # Zeros and small integers are representable in every type and prove nothing.
    truth_in_f32 = experiment.counted(experiment.truth).astype(np.float32).astype(np.float64)
    is_distinctive = bool(np.any(_round(truth_in_f32, kind) != truth_in_f32))
    rounded_values = {e: v for e, v in rounded.items() if e.role is not Role.PARAMETER}
    rounded_weights = {e: v for e, v in rounded.items() if e.role is Role.PARAMETER}
    narrowings = []
    for where, changed in (
        ("what it reads", rounded),
        ("its inputs", rounded_values),
        ("its weights", rounded_weights),
        ("its result", {}),
    ):
        output = _run_with(experiment, changed)
        for rounds_result in (False, True) if changed else (True,):
            if output is None:
                continue
            final_output = _round(output, kind) if rounds_result else output
            rounds_both = rounds_result and bool(changed)
            simulated = finite_rms(experiment.counted(final_output - experiment.truth))
            size = error / simulated if simulated else np.inf
            narrowings.append(
                Narrowing(
                    dtype=dtype,
                    where=f"{where} and its result" if rounds_both else where,
                    error=error,
                    residual=finite_rms(experiment.counted(experiment.target - final_output)),
                    all_representable=is_representable and is_distinctive,
                    size=size,
                )
            )
    return narrowings


def _run_with(experiment: RegionExperiment, changed: dict[Edge, Array]) -> Array | None:
    if not changed:
        return experiment.truth
    output = experiment.run_with(changed)
    return output if output is not None and output.shape == experiment.truth.shape else None


def _round(value: Array, kind: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return value.astype(kind).astype(value.dtype)


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
    """List the ops whose introduced error is known, with that error. Results that must be exact,
    such as indices, have no precision that others could be coarser than."""
    return [
        (row, row.introduced)
        for row in case.computed
        if row.introduced is not None
        and row.target.key.role is Role.OUTPUT
        and row.preset != "exact"
    ]


def _is_coarser(row: Row, introduced: Introduced, usual: str) -> bool:
    """Whether an op is not guilty and has the error of a coarser float type than the usual one."""
    return (
        introduced.preset in _COARSE_FLOATS
        and is_coarser(introduced.preset, usual)
        and not row.guilty
        and introduced.rmse > 0
    )
