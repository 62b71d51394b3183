"""Measure how the relative error of rows grows from op to op, fit a curve over depth, find the op
that amplifies it most; RMS of a row's reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.run.model import OpKey, Role

_MIN_SATURATED_ERROR = 0.3
"""Relative error from which on it no longer grows: the values are unrelated."""
_MIN_CURVE_POINTS = 5
"""Minimum number of points to fit a curve."""
_MAX_OPS_BETWEEN = 64
"""Maximum number of ops to visit between a sync point and the ones before it."""


@dataclass(frozen=True)
class ErrorStep:
    """The relative errors at one op: of its inputs, of its output, and what it adds."""

    row: Row
    input_error: float
    """The largest relative error among its inputs."""
    output_error: float
    added_error: float
    """The relative error that the op introduces; 0 if it is not known."""
    inputs: tuple[Row, ...]

    @property
    def gain(self) -> float:
        """Output error over the combined input error and added error."""
        floor = float(np.hypot(self.input_error, self.added_error))
        return self.output_error / floor if floor > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The curve that fits the error best."""

    exponential: bool
    rate: float
    """Factor per op if exponential, else the power of the depth."""
    first: float
    last: float
    points: int
    explained_variance: float
    """Share of the variance that the curve explains."""


def relative_error(row: Row) -> float | None:
    """Return the relative error of a row; None if it is not known or not finite."""
    numbers = row.numbers or {}
    value = numbers.get("rel_l2")
    if value is None or numbers.get("mismatched") or not isfinite(value):
        return None
    return float(value)


def list_error_steps(case: Case) -> list[ErrorStep]:
    """List the ops whose relative error is known, in execution order."""
    by_op: dict[tuple[OpKey, Any], list[Row]] = {}
    for row in case.computed:
        if row.target.key.role is Role.OUTPUT and relative_error(row) is not None:
            by_op.setdefault((row.target.key.op, row.target.key.part), []).append(row)
    error_steps = []
    for row in case.computed:
        output_error = relative_error(row)
        if row.target.key.role is not Role.OUTPUT or output_error is None:
            continue
        input_rows = _find_input_rows(case, row, by_op)
        input_error = max((relative_error(r) or 0.0 for r in input_rows), default=0.0)
        added_error = (row.introduced.rel_l2 or 0.0) if row.introduced is not None else 0.0
        error_steps.append(
            ErrorStep(row, input_error, output_error, added_error, tuple(input_rows))
        )
    return error_steps


def _find_input_rows(case: Case, row: Row, by_op: dict[tuple[OpKey, Any], list[Row]]) -> list[Row]:
    """Find the rows of the inputs of an op, across ops that are not compared."""
    part = row.target.key.part
    input_rows: list[Row] = []
    waiting = [*case.result.edges.get(row.target.key.op, ())]
    visited = set(waiting)
    while waiting:
        op = waiting.pop()
        rows = by_op.get((op, part))
        if rows is not None:
            input_rows += rows
            continue
        for source in case.result.edges.get(op, ()):
            if source not in visited and len(visited) < _MAX_OPS_BETWEEN:
                visited.add(source)
                waiting.append(source)
    return input_rows


def fit_growth(error_steps: Sequence[ErrorStep]) -> Growth | None:
    """Fit a curve to the error over execution order, up to the first saturated error."""
    errors = [step.output_error for step in error_steps if step.output_error > 0]
    saturated_index = next(
        (index for index, e in enumerate(errors) if e >= _MIN_SATURATED_ERROR), len(errors)
    )
    errors = errors[: saturated_index + 1]
    if len(errors) < _MIN_CURVE_POINTS:
        return None
    depth = np.arange(1, len(errors) + 1, dtype=np.float64)
    logs = np.log(np.asarray(errors))
    lines = [_fit_line(depth, logs), _fit_line(np.log(depth), logs)]
    exponential = lines[0][1] > lines[1][1]
    slope, explained_variance = lines[0] if exponential else lines[1]
    rate = float(np.exp(slope)) if exponential else slope
    return Growth(
        exponential=exponential,
        rate=rate,
        first=errors[0],
        last=errors[-1],
        points=len(errors),
        explained_variance=explained_variance,
    )


def _fit_line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    slope, offset = np.polyfit(x, y, 1)
    spread = float(np.sum(np.square(y - y.mean())))
    residual = float(np.sum(np.square(y - slope * x - offset)))
    return float(slope), 1 - residual / spread if spread else 0.0


def compute_reference_rms(row: Row) -> float:
    """Compute the RMS of the reference's values at a row; 0 if it is not known."""
    numbers = row.numbers or {}
    size, count = numbers.get("reference_l2"), numbers.get("count")
    return float(size) / float(count) ** 0.5 if size and count else 0.0


_MIN_GAIN = 8.0
"""Minimum gain of an op that amplifies."""
_MIN_OUTPUT_ERROR_SHARE = 0.2
"""Minimum share of the final error that the output error of an amplifying op has."""


def find_amplifier(error_steps: list[ErrorStep], final_error: float) -> ErrorStep | None:
    """Find the op that amplifies the error most; None if no op has the minimum gain."""
    amplifying_steps = [
        s
        for s in error_steps
        if s.gain >= _MIN_GAIN and s.output_error >= _MIN_OUTPUT_ERROR_SHARE * final_error
    ]
    return max(amplifying_steps, key=lambda s: s.gain, default=None)
