"""What can be said of two tensors when one of them was kept as statistics or as a digest.

Statistics can prove a difference, hardly equality: the bounds below hold for any two tensors
that have these statistics, so what they call large is large. A digest tells only whether the
bytes are the same.
"""

from __future__ import annotations

from math import inf, isnan, log10, nan, sqrt
from typing import Any

from syncpoint.run.model import Statistics

_FLOAT32_ROUNDING = 2.0**-24
_MIN_RUNNING_SUMS = 32
"""Running sums that whoever adds up a tensor has at the least; measured: the norm that torch gives
on a CPU is off by 4e-7 at 1e5 elements, 4e-4 at 1e7 and 1e-2 at 1e8."""

ENDS_ONLY_NOTE = "only the least and the greatest value are known and compared"
"""The note of a row that rests on no more."""


def compare_statistics(target: Statistics, reference: Statistics) -> dict[str, Any]:
    """The statistics of both, their differences, and the best psnr and sqnr that are still
    possible.

    A statistic that is NaN on one side is not known there; a number of elements that is -1 is not
    known either, but not zero.
    """
    numbers: dict[str, Any] = {"count": reference.count}
    for side, said in (("target", target), ("reference", reference)):
        for name in ("mean", "std", "min", "max", "l2"):
            value = getattr(said, name)
            numbers[f"{side}_{name}"] = None if isnan(value) else value
        numbers |= {f"{side}_nan": said.nan, f"{side}_inf": said.inf}
    finite = reference.count - max(reference.nan, 0) - max(reference.inf, 0)
    for name in ("max", "min", "mean", "l2"):
        t, r = getattr(target, name), getattr(reference, name)
        known = finite and not isnan(t - r)
        numbers[f"{name}_diff"] = abs(t - r) if known else None
        numbers[f"{name}_rel_diff"] = abs(t - r) / abs(r) if known and r else None
    unlike = _min_count_difference(target.nan, reference.nan) + _min_count_difference(
        target.inf, reference.inf
    )
    numbers["mismatched"] = unlike
    numbers["inf"] = reference.inf
    numbers["psnr_bound"] = numbers["sqnr_bound"] = None
    uncounted = min(target.nan, target.inf, reference.nan, reference.inf) < 0
    if finite and not unlike and not uncounted:
        numbers |= _error_bounds(target, reference, finite)
    return numbers


def _error_bounds(target: Statistics, reference: Statistics, finite: int) -> dict[str, float]:
    """The peak, and the greatest psnr and sqnr that tensors with these statistics can have;
    nothing where no statistic is known on both sides."""
    # The root mean square of d is at least each of these.
    proven = [
        abs(target.mean - reference.mean),
        abs(target.std - reference.std),
        max(
            abs(target.l2 - reference.l2) - _summation_error(target) - _summation_error(reference),
            0.0,
        )
        / sqrt(finite),
        abs(target.max - reference.max) / sqrt(finite),
        abs(target.min - reference.min) / sqrt(finite),
    ]
    least = max((x for x in proven if not isnan(x)), default=nan)
    if isnan(least):
        return {}
    # Statistics carry rounding of their own; a difference below it proves nothing.
    peak = max((abs(x) for x in (reference.max, reference.min) if not isnan(x)), default=0.0)
    scale = peak if isnan(reference.std) else max(peak, reference.std)
    if least <= 1e-6 * scale / sqrt(finite) and least < inf:
        least = 0.0
    signal = peak if isnan(reference.l2) else reference.l2 / sqrt(finite)
    return {
        "peak": peak,
        "psnr_bound": _decibel(peak, least),
        "sqnr_bound": _decibel(signal, least),
    }


def why_incomparable(target: Statistics, reference: Statistics) -> str:
    """Why two statistics say nothing of each other; "" where they do."""
    if min(target.nan, target.inf, reference.nan, reference.inf) < 0:
        return "both have values that are not finite, and it was not kept how many"
    both = ((getattr(target, n), getattr(reference, n)) for n in ("max", "min", "mean", "l2"))
    if reference.count > reference.nan + reference.inf and all(isnan(t - r) for t, r in both):
        return "there is no statistic that both sides have"
    return ""


def _min_count_difference(target: int, reference: int) -> int:
    """By how many elements two numbers of them differ, at the least."""
    if min(target, reference) < 0:
        return int((target == 0) != (reference == 0))
    return abs(target - reference)


def _summation_error(statistics: Statistics) -> float:
    """What the norm of a tensor may be off by. Other tools, which give no spread, add up in
    float32; ours are exact enough."""
    if not isnan(statistics.std):
        return 0.0
    return statistics.l2 * statistics.count / _MIN_RUNNING_SUMS * _FLOAT32_ROUNDING


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    if noise == inf:
        return -inf
    return 20 * log10(signal / noise) if signal else -inf
