"""Find whether a matrix product sums in a narrow type, by simulating the sum term by term on the
operands that it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.matching.op_kinds import op_class, op_kind
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Op
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]
_MAX_SIMULATED_ROWS = 48
"""Maximum number of rows and of columns that are simulated."""
_MAX_TERMS = 16384
"""Maximum number of terms of a sum."""


@dataclass(frozen=True, kw_only=True)
class NarrowAccumulator:
    """The error that an accumulator of a narrow type would make."""

    dtype: str
    error: float
    """RMS error of the target, over the simulated elements."""
    simulated_error: float
    """RMS error of a sequential sum in this type."""
    residual: float
    """RMS difference between the target and the simulation."""
    terms: int
    float32_error: float = 0.0
    """RMS error of a sequential sum in float32 whose result is rounded to the target's type."""

    @property
    def reproduces(self) -> bool:
        """Whether the simulation reproduces most of the target's error, element by element."""
        return self.residual <= 0.5 * self.error

    @property
    def fits(self) -> bool:
        """Whether the simulated error is similar in size to the target's."""
        return 1 / 3 <= self.simulated_error / self.error <= 3 if self.error else False


def find_narrow_accumulator(experiment: RegionExperiment) -> NarrowAccumulator | None:
    """Find the type whose sums come closest to the target's result; None if no type fits."""
    operands = _read_operands(experiment)
    if operands is None:
        return None
    a, b, bias, target, truth = operands
    accumulators = []
    for dtype in ("f16", "bf16"):
        kind = DTYPES[dtype].numpy
        simulated_sum = _sum_products(a, b, bias, kind, kind)
        if np.isfinite(simulated_sum).all():
            accumulators.append(
                NarrowAccumulator(
                    dtype=dtype,
                    error=finite_rms(target - truth),
                    simulated_error=finite_rms(simulated_sum - truth),
                    residual=finite_rms(target - simulated_sum),
                    terms=len(b),
                )
            )
    plausible = [accumulator for accumulator in accumulators if accumulator.fits]
    best = min(plausible, key=lambda accumulator: accumulator.residual, default=None)
    if best is None:
        return None
    float32_sum = _sum_products(a, b, bias, np.float32, _result_kind(experiment))
    return replace(best, float32_error=finite_rms(float32_sum - truth))


def _sum_products(a: Array, b: Array, bias: Array, kind: Any, result_kind: Any) -> Array:
    """Multiply two matrices with a sum of this type, term by term; round the result."""
    total = np.zeros((len(a), b.shape[1]), kind)
    with np.errstate(over="ignore", invalid="ignore"):
        for k in range(a.shape[1]):
            term = a[:, k, None] * b[None, k, :]
            total = (total.astype(np.float64) + term).astype(kind)
        rounded = (total.astype(np.float64) + bias).astype(result_kind)
    return rounded.astype(np.float64)


def _result_kind(experiment: RegionExperiment) -> Any:
    """Return the NumPy type of the target's result; float32 if it is no floating-point type."""
    dtype = DTYPES[experiment.row.target.dtype]
    return dtype.numpy if dtype.kind is Kind.FLOAT else np.float32


def _read_operands(experiment: RegionExperiment) -> tuple[Array, Array, Array, Array, Array] | None:
    """Return rows of the first factor, columns of the second, the bias, and the target's and the
    true result for them; None if the op is no product of two matrices."""
    if len(experiment.ops) != 1 or op_class(experiment.ops[0].type) != "matmul":
        return None
    factors = _read_factors(experiment, experiment.ops[0])
    if factors is None:
        return None
    a, b, bias = factors
    if experiment.truth.size != len(a) * b.shape[1]:
        return None
    # Masked elements become NaN, which the RMS ignores.
    target, truth = (
        np.asarray(
            v if experiment.kept is None else np.where(experiment.kept, v, np.nan), np.float64
        ).reshape(len(a), b.shape[1])[:_MAX_SIMULATED_ROWS, :_MAX_SIMULATED_ROWS]
        for v in (experiment.target, experiment.truth)
    )
    return (
        a[:_MAX_SIMULATED_ROWS],
        b[:, :_MAX_SIMULATED_ROWS],
        bias[:_MAX_SIMULATED_ROWS],
        target,
        truth,
    )


def _read_factors(experiment: RegionExperiment, op: Op) -> tuple[Array, Array, Array] | None:
    """Return both factors of a product as matrices, and the bias of each column; None if the op
    is no product of two matrices."""
    arguments = [a for a in experiment.arguments(op) if a is not None and a.dtype.kind == "f"]
    kind = op_kind(op.type)
    if kind == "addmm" and len(arguments) == 3:
        arguments = [arguments[1], arguments[2], arguments[0]]
    if len(arguments) < 2 or arguments[1].ndim != 2:
        return None
    a, b = (np.asarray(v, np.float64) for v in arguments[:2])
    b = b.T if kind == "linear" else b
    a = a.reshape(-1, a.shape[-1]) if a.ndim else a
    if a.ndim != 2 or a.shape[1] != len(b) or len(b) > _MAX_TERMS:
        return None
    bias = np.asarray(arguments[2], np.float64) if len(arguments) > 2 else np.zeros(1)
    if bias.ndim > 1 or bias.size not in (1, b.shape[1]):
        return None
    return a, b, np.broadcast_to(bias, (b.shape[1],))


def is_accumulation_noise(row: Row, accumulator: NarrowAccumulator) -> bool:
    """Whether the introduced error is as small as the rounding of such a sum."""
    introduced = row.introduced
    unit = DTYPES[accumulator.dtype].unit
    return (
        introduced is not None
        and introduced.rel_l2 is not None
        and introduced.rel_l2 <= unit * accumulator.terms**0.5
    )
