"""Numbers that a variant leaves open: which of them gives what the target has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, Seen

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

    def tried(number: float) -> tuple[float, Array] | None:
        got = seen.reach(form(number))
        if got is None or got.shape != target.shape:
            return None
        left = (np.asarray(target, np.float64) - got).reshape(-1)
        left = left[np.isfinite(left)]
        if left.size < _LEAST:
            return None
        return float(np.sqrt(np.mean(np.square(left)))), got

    best: tuple[float, float, Array] | None = None
    for start in starts:
        found = tried(start)
        if found is not None and (best is None or found[0] < best[1]):
            best = (start, *found)
    if best is None:
        return None
    number, least, got = best
    for _ in range(_ROUNDS):
        near = tried(number * (1 + 1e-4))
        if near is None:
            break
        slope = (near[1] - got) / 1e-4
        use = np.isfinite(slope) & np.isfinite(target) & np.isfinite(got)
        steep = float(np.sum(np.square(slope[use])))
        if not steep:
            break
        step = float(np.sum(slope[use] * (target - got)[use])) / steep
        after = None
        for _ in range(_HALVINGS):
            # Most are nearly linear in the number; towards zero by factors, never beyond it.
            following = number * (1 + step if step > -0.5 else float(np.exp(max(step, -3.0))))
            after = tried(following)
            if after is not None and after[0] < least:
                break
            step /= 2
        if after is None or after[0] >= least:
            break
        done = after[0] > 0.999 * least
        number, (least, got) = following, after
        if done:
            break
    for candidate in known:
        near = tried(candidate) if 0.5 < candidate / number < 2 else None
        if near is not None and near[0] <= _AS_GOOD * least:
            number, least = candidate, near[0]
            break
    return Solved(number, form(number), least)


def plain(number: float) -> str:
    """A number as people write it: 1e-06, 0.125."""
    return f"{number:.3g}"
