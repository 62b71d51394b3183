"""Compare the statistics of two tensors: differences, why they are incomparable, and the bounds of
PSNR and SQNR that they prove.

Statistics can prove a difference, but not equality. The bounds hold for any two tensors with these
statistics, so a verdict of large is certain.
"""

from __future__ import annotations

from math import inf, isnan, log10, nan, sqrt
from typing import Any

from syncpoint.run.model import Statistics

_FLOAT32_ROUNDING = 2.0**-24
_MIN_RUNNING_SUMS = 32
"""Minimum number of running sums in a float32 summation. Measured: the relative error of torch's
norm on a CPU is 4e-7 at 1e5 elements, 4e-4 at 1e7 and 1e-2 at 1e8."""

ENDS_ONLY_NOTE = "only the minimum and the maximum are known and compared"
"""The note of a row of which only minimum and maximum are known."""


def compare_statistics(target: Statistics, reference: Statistics) -> dict[str, Any]:
    """The statistics of both sides, their differences, and upper bounds of psnr and sqnr.

    A statistic that is NaN is unknown. A count of -1 is unknown too, but not zero.
    """
    numbers: dict[str, Any] = {"count": reference.count}
    for side, side_statistics in (("target", target), ("reference", reference)):
        for name in ("mean", "std", "min", "max", "l2"):
            value = getattr(side_statistics, name)
            numbers[f"{side}_{name}"] = None if isnan(value) else value
        numbers |= {f"{side}_nan": side_statistics.nan, f"{side}_inf": side_statistics.inf}
    finite = reference.count - max(reference.nan, 0) - max(reference.inf, 0)
    for name in ("max", "min", "mean", "l2"):
        t, r = getattr(target, name), getattr(reference, name)
        is_known = finite and not isnan(t - r)
        numbers[f"{name}_diff"] = abs(t - r) if is_known else None
        numbers[f"{name}_rel_diff"] = abs(t - r) / abs(r) if is_known and r else None
    mismatched = _min_count_difference(target.nan, reference.nan) + _min_count_difference(
        target.inf, reference.inf
    )
    numbers["mismatched"] = mismatched
    numbers["inf"] = reference.inf
    numbers["psnr_bound"] = numbers["sqnr_bound"] = None
    has_unknown_count = min(target.nan, target.inf, reference.nan, reference.inf) < 0
    if finite and not mismatched and not has_unknown_count:
        numbers |= _error_bounds(target, reference, finite)
    return numbers


def _error_bounds(target: Statistics, reference: Statistics, finite: int) -> dict[str, float]:
    """The peak, and the upper bounds of psnr and sqnr; empty if no common statistic is known."""
    # Each of these is a lower bound of the RMSE.
    lower_bounds = [
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
    min_rmse = max((x for x in lower_bounds if not isnan(x)), default=nan)
    if isnan(min_rmse):
        return {}
    # Statistics have rounding errors; a difference below these proves nothing.
    peak = max((abs(x) for x in (reference.max, reference.min) if not isnan(x)), default=0.0)
    scale = peak if isnan(reference.std) else max(peak, reference.std)
    if min_rmse <= 1e-6 * scale / sqrt(finite) and min_rmse < inf:
        min_rmse = 0.0
    signal = peak if isnan(reference.l2) else reference.l2 / sqrt(finite)
    return {
        "peak": peak,
        "psnr_bound": _decibel(peak, min_rmse),
        "sqnr_bound": _decibel(signal, min_rmse),
    }


def why_incomparable(target: Statistics, reference: Statistics) -> str:
    """Why two statistics cannot be compared; "" if they can."""
    if min(target.nan, target.inf, reference.nan, reference.inf) < 0:
        return "both sides have non-finite values, but their number was not kept"
    values = ((getattr(target, n), getattr(reference, n)) for n in ("max", "min", "mean", "l2"))
    if reference.count > reference.nan + reference.inf and all(isnan(t - r) for t, r in values):
        return "the two sides have no statistic in common"
    return ""


def _min_count_difference(target: int, reference: int) -> int:
    """The minimum difference of two counts, which may be unknown (-1)."""
    if min(target, reference) < 0:
        return int((target == 0) != (reference == 0))
    return abs(target - reference)


def _summation_error(statistics: Statistics) -> float:
    """The maximum summation error of the L2 norm.

    Other tools, whose statistics have no standard deviation, sum in float32; ours are exact enough.
    """
    if not isnan(statistics.std):
        return 0.0
    return statistics.l2 * statistics.count / _MIN_RUNNING_SUMS * _FLOAT32_ROUNDING


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    if noise == inf:
        return -inf
    return 20 * log10(signal / noise) if signal else -inf
