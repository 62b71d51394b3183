"""What single ops cost the outputs, measured and not guessed: which to leave in higher precision.

The reference is run once more for each of them, with the error that the target's op introduces
added to that op's result and everything else as it is. How far the outputs are then off is this
op's part in their error, whatever runtime the target is of.
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
_MOST = 64
"""Ops that are tried."""
_SHARE = 0.4
"""Of the time for experiments, so much goes into this one."""


@dataclass(frozen=True)
class Cost:
    """What one op costs."""

    row: Row
    total: float
    """Root mean square error of the outputs, relative to their size, as the target has it."""
    without: float
    """What is left of it without this op's part: small errors add up as vectors do, and those of
    ops that read the same rounded value are alike."""

    @property
    def gain(self) -> float:
        """By how many decibels the outputs come closer."""
        return 20 * log10(self.total / self.without) if self.without else inf


def costs(case: Case, rows: Iterable[Row]) -> list[Cost]:
    """The dearest op first; empty where the reference cannot be run so."""
    begun = monotonic()
    wanted = {row.reference.key: case.values("reference", row) for row in case.result.outputs}
    given = {row.reference.key: case.values("target", row) for row in case.result.outputs}
    whole = _apart(given, wanted)
    total = _size(whole) if whole is not None else 0.0
    found: list[Cost] = []
    for row in rows if whole is not None and total else ():
        if len(found) == _MOST or monotonic() - begun > _SHARE * case.seconds:
            break
        experiment, plain = case.experiment(row), case.values("reference", row)
        if experiment is None or plain is None or experiment.error.shape != plain.shape:
            continue
        hurt = plain + experiment.error
        at = row.reference.key
        made = case.replayed(
            "reference", {at: hurt}, "the reference with the error of single ops of the target"
        )
        if made is None and not found:
            return []
        if made is None:
            continue
        # Outputs that the op itself gives are recorded before they are replaced.
        own = {r.reference.key: hurt for r in case.result.outputs if case.maker(r) == at}
        part = _apart({**made, **own}, wanted)
        if part is not None and whole is not None:
            found.append(Cost(row, total, _size(whole - part)))
    return sorted(found, key=lambda cost: -cost.gain)


def _apart(
    given: Mapping[TensorKey, Array | None], wanted: Mapping[TensorKey, Array | None]
) -> Array | None:
    """The errors of all outputs in one row, each relative to its size and of equal weight; None
    where they cannot be said."""
    parts = []
    for key, right in wanted.items():
        made = given.get(key)
        norm = float(np.linalg.norm(right)) if right is not None else 0.0
        if right is None or made is None or made.shape != right.shape or not norm:
            return None
        parts.append(((made.astype(np.float64) - right) / norm).reshape(-1))
    found = np.concatenate(parts) / np.sqrt(len(parts)) if parts else None
    return found if found is not None and np.isfinite(found).all() else None


def _size(errors: Array) -> float:
    return float(np.linalg.norm(errors))
