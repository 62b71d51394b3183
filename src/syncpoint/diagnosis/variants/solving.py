"""Solve for the number that a variant leaves open, such as an epsilon or a scale, by Newton steps;
prefer round numbers; format it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from syncpoint.diagnosis.variants.protocol import Array, OpUnderTest
from syncpoint.run.statistics import rms

_MAX_NEWTON_STEPS = 12
_MAX_STEP_HALVINGS = 5
_MIN_ELEMENTS = 32
"""Minimum number of elements to solve for a number and still have evidence for it."""
_MAX_ROUND_NUMBER_ERROR_RATIO = 1.05
"""Maximum residual at which a round number is preferred, as a multiple of the best one."""


@dataclass(frozen=True)
class SolvedNumber:
    """A number and the output of the op with it."""

    number: float
    value: Array
    residual_rms: float
    """RMS error of the target that remains."""


@dataclass(frozen=True)
class _Trial:
    """A number and the error that remains with it."""

    number: float
    residual_rms: float
    """RMS error of the target that remains."""
    region_output: Array
    """Output of the region with this number."""


def solve_number(
    tested_op: OpUnderTest,
    compute: Callable[[float], Array],
    starts: Iterable[float],
    round_numbers: Iterable[float] = (),
) -> SolvedNumber | None:
    """Find the positive number for which `compute` explains the target best; one of
    `round_numbers` if that is as good. None if no start can be computed."""
    target = tested_op.region_target
    if target is None or target.size < _MIN_ELEMENTS:
        return None

    def attempt(number: float) -> _Trial | None:
        return _try_number(number, target, tested_op.run_to_region_end(compute(number)))

    trials = [trial for start in starts if (trial := attempt(start)) is not None]
    if not trials:
        return None
    best = _descend(attempt, target, min(trials, key=lambda trial: trial.residual_rms))
    for candidate in round_numbers:
        trial_at_candidate = attempt(candidate) if 0.5 < candidate / best.number < 2 else None
        if (
            trial_at_candidate is not None
            and trial_at_candidate.residual_rms <= _MAX_ROUND_NUMBER_ERROR_RATIO * best.residual_rms
        ):
            best = trial_at_candidate
            break
    return SolvedNumber(best.number, compute(best.number), best.residual_rms)


def _try_number(number: float, target: Array, region_output: Array | None) -> _Trial | None:
    """Compute the error that remains with a number; None if too few elements are finite."""
    if region_output is None or region_output.shape != target.shape:
        return None
    residual = (np.asarray(target, np.float64) - region_output).reshape(-1)
    residual = residual[np.isfinite(residual)]
    if residual.size < _MIN_ELEMENTS:
        return None
    return _Trial(number, rms(residual), region_output)


def _descend(attempt: Callable[[float], _Trial | None], target: Array, best: _Trial) -> _Trial:
    """Improve a number by Newton steps until the error stops decreasing."""
    for _ in range(_MAX_NEWTON_STEPS):
        step = _newton_step(attempt(best.number * (1 + 1e-4)), best, target)
        if step is None:
            break
        better = _find_better_trial(attempt, best, step)
        if better is None:
            break
        is_done = better.residual_rms > 0.999 * best.residual_rms
        best = better
        if is_done:
            break
    return best


def _newton_step(neighbor: _Trial | None, best: _Trial, target: Array) -> float | None:
    """Return the relative step to the best number, from a trial close to it; None if the number
    has no effect."""
    if neighbor is None:
        return None
    slope = (neighbor.region_output - best.region_output) / 1e-4
    is_usable = np.isfinite(slope) & np.isfinite(target) & np.isfinite(best.region_output)
    slope_energy = float(np.sum(np.square(slope[is_usable])))
    return (
        float(np.sum(slope[is_usable] * (target - best.region_output)[is_usable])) / slope_energy
        if slope_energy
        else None
    )


def _find_better_trial(
    attempt: Callable[[float], _Trial | None], best: _Trial, step: float
) -> _Trial | None:
    """Return the first trial with a smaller error: a step, or one of its halves."""
    for _ in range(_MAX_STEP_HALVINGS):
        # Most variants are nearly linear in the number. Large steps down are factors: it stays > 0.
        factor = 1 + step if step > -0.5 else float(np.exp(max(step, -3.0)))
        trial = attempt(best.number * factor)
        if trial is not None and trial.residual_rms < best.residual_rms:
            return trial
        step /= 2
    return None


def format_number(number: float) -> str:
    """Format a number with three significant digits: 1e-06, 0.125."""
    return f"{number:.3g}"
