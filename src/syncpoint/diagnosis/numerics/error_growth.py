"""How error grows along a run: op by op against what each was given, and by depth."""

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

_FULL = 0.3
"""From this relative error on it grows no more: the values have nothing in common any longer."""
_FEW = 5
"""Points that a curve is fitted through, at least."""
_FAR = 64
"""Ops that are looked at between one sync point and those before it."""


@dataclass(frozen=True)
class Step:
    """One op: the relative error that it gives, that it was given, and that it adds."""

    row: Row
    given: float
    """The greatest among its inputs'."""
    gives: float
    adds: float
    """0 where it is not known."""
    inputs: tuple[Row, ...]

    @property
    def gain(self) -> float:
        """How many times more than it was given, and adds, it gives."""
        floor = float(np.hypot(self.given, self.adds))
        return self.gives / floor if floor > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The curve that the error follows best."""

    exponential: bool
    rate: float
    """By op where exponential, else the power of the depth."""
    first: float
    last: float
    points: int
    fits: float
    """Share of the variance that the curve explains."""


def relative(row: Row) -> float | None:
    """The relative error of a row; None where that is not known or not finite."""
    numbers = row.numbers or {}
    value = numbers.get("rel_l2")
    if value is None or numbers.get("mismatched") or not isfinite(value):
        return None
    return float(value)


def steps(case: Case) -> list[Step]:
    """All ops whose error and inputs' errors are known, in execution order."""
    by_op: dict[tuple[OpKey, Any], list[Row]] = {}
    for row in case.computed:
        if row.target.key.role is Role.OUTPUT and relative(row) is not None:
            by_op.setdefault((row.target.key.op, row.target.key.part), []).append(row)
    found = []
    for row in case.computed:
        gives = relative(row)
        if row.target.key.role is not Role.OUTPUT or gives is None:
            continue
        before = _before(case, row, by_op)
        given = max((relative(r) or 0.0 for r in before), default=0.0)
        adds = (row.introduced.rel_l2 or 0.0) if row.introduced is not None else 0.0
        found.append(Step(row, given, gives, adds, tuple(before)))
    return found


def _before(case: Case, row: Row, by_op: dict[tuple[OpKey, Any], list[Row]]) -> list[Row]:
    """The rows of what an op reads, through ops that are not compared."""
    part = row.target.key.part
    found: list[Row] = []
    waiting = [*case.result.edges.get(row.target.key.op, ())]
    seen = set(waiting)
    while waiting:
        op = waiting.pop()
        known = by_op.get((op, part))
        if known is not None:
            found += known
            continue
        for source in case.result.edges.get(op, ()):
            if source not in seen and len(seen) < _FAR:
                seen.add(source)
                waiting.append(source)
    return found


def growth(found: Sequence[Step]) -> Growth | None:
    """The curve of the error over execution order, up to where nothing is left to lose."""
    errors = [step.gives for step in found if step.gives > 0]
    full = next((at for at, e in enumerate(errors) if e >= _FULL), len(errors))
    errors = errors[: full + 1]
    if len(errors) < _FEW:
        return None
    depth = np.arange(1, len(errors) + 1, dtype=np.float64)
    logs = np.log(np.asarray(errors))
    fits = [_line(depth, logs), _line(np.log(depth), logs)]
    exponential = fits[0][1] > fits[1][1]
    slope, good = fits[0] if exponential else fits[1]
    rate = float(np.exp(slope)) if exponential else slope
    return Growth(
        exponential=exponential,
        rate=rate,
        first=errors[0],
        last=errors[-1],
        points=len(errors),
        fits=good,
    )


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    slope, offset = np.polyfit(x, y, 1)
    spread = float(np.sum(np.square(y - y.mean())))
    left = float(np.sum(np.square(y - slope * x - offset)))
    return float(slope), 1 - left / spread if spread else 0.0


def norm_of(row: Row) -> float:
    """The root mean square of the reference at a row; 0 where it is not known."""
    numbers = row.numbers or {}
    size, count = numbers.get("reference_l2"), numbers.get("count")
    return float(size) / float(count) ** 0.5 if size and count else 0.0


_GAIN = 8.0
"""An op that gives so many times the error it was given amplifies."""


_MATTERS = 0.2
"""And matters if the output's error is not far greater than what it gives."""


def amplifier(found: list[Step], final: float) -> Step | None:
    """The op that makes most of the error out of what it was given; one that merely passes
    through a steep stretch among many is none."""
    steep = [s for s in found if s.gain >= _GAIN and s.gives >= _MATTERS * final]
    return max(steep, key=lambda s: s.gain, default=None)
