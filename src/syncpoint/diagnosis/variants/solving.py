"""Numbers that a variant leaves open: which of them gives what the target has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Seen
from syncpoint.run.statistics import rms

_ROUNDS = 12
_HALVINGS = 5
_LEAST = 32
"""Elements that must be there to solve for a number and still prove something."""
_AS_GOOD = 1.05
"""A round number that leaves so many times what the best one leaves is meant."""


@dataclass(frozen=True)
class Solved:
    """The number, and what the op gives with it."""

    number: float
    value: Array
    left: float
    """Root mean square of what it does not explain."""


@dataclass(frozen=True)
class _Trial:
    """A number, and how near it leads to the target."""

    number: float
    left: float
    """Root mean square of what it does not explain."""
    end: Array
    """What the region gives with it."""


def solved(
    seen: Seen,
    form: Callable[[float], Array],
    starts: Iterable[float],
    known: Iterable[float] = (),
) -> Solved | None:
    """The number above zero for which `form` leads to the target's numbers as nearly as any does;
    one of `known` where that is as good. None where no start leads anywhere."""
    target = seen.end
    if target is None or target.size < _LEAST:
        return None

    def attempt(number: float) -> _Trial | None:
        return _try_number(number, target, seen.reach(form(number)))

    trials = [trial for start in starts if (trial := attempt(start)) is not None]
    if not trials:
        return None
    best = _descend(attempt, target, min(trials, key=lambda trial: trial.left))
    for candidate in known:
        near = attempt(candidate) if 0.5 < candidate / best.number < 2 else None
        if near is not None and near.left <= _AS_GOOD * best.left:
            best = near
            break
    return Solved(best.number, form(best.number), best.left)


def _try_number(number: float, target: Array, end: Array | None) -> _Trial | None:
    """How near a number leads to the target; None where too few elements tell."""
    if end is None or end.shape != target.shape:
        return None
    rest = (np.asarray(target, np.float64) - end).reshape(-1)
    rest = rest[np.isfinite(rest)]
    if rest.size < _LEAST:
        return None
    return _Trial(number, rms(rest), end)


def _descend(attempt: Callable[[float], _Trial | None], target: Array, best: _Trial) -> _Trial:
    """Follow the slope to the number that leaves least."""
    for _ in range(_ROUNDS):
        step = _newton_step(attempt(best.number * (1 + 1e-4)), best, target)
        if step is None:
            break
        after = _first_better(attempt, best, step)
        if after is None:
            break
        is_done = after.left > 0.999 * best.left
        best = after
        if is_done:
            break
    return best


def _newton_step(near: _Trial | None, best: _Trial, target: Array) -> float | None:
    """By which share the number should grow, from a trial right beside it; None where that has no
    effect."""
    if near is None:
        return None
    slope = (near.end - best.end) / 1e-4
    use = np.isfinite(slope) & np.isfinite(target) & np.isfinite(best.end)
    steep = float(np.sum(np.square(slope[use])))
    return float(np.sum(slope[use] * (target - best.end)[use])) / steep if steep else None


def _first_better(
    attempt: Callable[[float], _Trial | None], best: _Trial, step: float
) -> _Trial | None:
    """The first trial that leaves less, of a step and its halves."""
    for _ in range(_HALVINGS):
        # Most are nearly linear in the number; towards zero by factors, never beyond it.
        factor = 1 + step if step > -0.5 else float(np.exp(max(step, -3.0)))
        after = attempt(best.number * factor)
        if after is not None and after.left < best.left:
            return after
        step /= 2
    return None


def plain(number: float) -> str:
    """A number as people write it: 1e-06, 0.125."""
    return f"{number:.3g}"
