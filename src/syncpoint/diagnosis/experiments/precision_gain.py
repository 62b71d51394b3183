"""Measure how much the outputs would gain if single ops ran without their error (in higher
precision), and rank the ops; relative output errors.

The reference runs once for each op, with the error that the target's op introduces added to that
op's result. The error of the outputs is then this op's part, for any runtime of the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, log10
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.run.model import TensorKey

Array = NDArray[Any]
_MAX_OPS = 64
"""Ops to try."""
_TIME_SHARE = 0.4
"""Share of the time for experiments that this one may use."""


@dataclass(frozen=True)
class PrecisionGain:
    """What the outputs gain if one op introduces no error."""

    row: Row
    total: float
    """RMS error of the target's outputs, relative to their size."""
    without: float
    """The error that remains without this op's part. Small errors add up as vectors; those of ops
    that read the same rounded value are alike."""

    @property
    def gain(self) -> float:
        """Decibels by which the error of the outputs shrinks."""
        return 20 * log10(self.total / self.without) if self.without else inf


def measure_precision_gains(case: Case, rows: Iterable[Row]) -> list[PrecisionGain]:
    """Measure the gain of each op, the greatest first; empty if the reference cannot be run so."""
    begun = monotonic()
    references = {row.reference.key: case.values("reference", row) for row in case.result.outputs}
    targets = {row.reference.key: case.values("target", row) for row in case.result.outputs}
    total_errors = _output_errors(targets, references)
    total = _norm(total_errors) if total_errors is not None else 0.0
    gains: list[PrecisionGain] = []
    for row in rows if total_errors is not None and total else ():
        if len(gains) == _MAX_OPS or monotonic() - begun > _TIME_SHARE * case.seconds:
            break
        experiment, exact = case.experiment(row), case.values("reference", row)
        if experiment is None or exact is None or experiment.error.shape != exact.shape:
            continue
        with_error = exact + experiment.error
        key = row.reference.key
        outputs = case.replay(
            "reference",
            {key: with_error},
            "the reference with the error of single ops of the target",
        )
        if outputs is None and not gains:
            return []
        if outputs is None:
            continue
        # Outputs that the op itself gives are recorded before they are replaced.
        own = {r.reference.key: with_error for r in case.result.outputs if case.maker(r) == key}
        op_errors = _output_errors({**outputs, **own}, references)
        if op_errors is not None and total_errors is not None:
            gains.append(PrecisionGain(row, total, _norm(total_errors - op_errors)))
    return sorted(gains, key=lambda gain: -gain.gain)


def _output_errors(
    outputs: Mapping[TensorKey, Array | None], references: Mapping[TensorKey, Array | None]
) -> Array | None:
    """Return the errors of all outputs in one vector, each relative to its size and with equal
    weight; None if they are not known."""
    parts = []
    for key, reference in references.items():
        output = outputs.get(key)
        norm = float(np.linalg.norm(reference)) if reference is not None else 0.0
        if reference is None or output is None or output.shape != reference.shape or not norm:
            return None
        parts.append(((output.astype(np.float64) - reference) / norm).reshape(-1))
    errors = np.concatenate(parts) / np.sqrt(len(parts)) if parts else None
    return errors if errors is not None and np.isfinite(errors).all() else None


def _norm(errors: Array) -> float:
    return float(np.linalg.norm(errors))
