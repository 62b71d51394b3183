"""What can be said of two tensors when one of them was kept as statistics or as a digest.

Statistics can prove a difference, hardly equality: the bounds below hold for any two tensors
that have these statistics, so what they call large is large. A digest tells only whether the
bytes are the same.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan, log10, nan, sqrt
from typing import Any

from syncpoint.metrics.limits import Limits, Numbers
from syncpoint.metrics.limits import bound as limit
from syncpoint.metrics.nothing_left import reason_of_statistics
from syncpoint.metrics.verdict import Reason, Verdict
from syncpoint.run.model import Statistics

SAME_BYTES = "same bytes"
_UNSURE = "statistics agree; that hardly proves equality"
_FLOAT32 = 2.0**-24
_LANES = 32
"""Running sums that whoever adds up a tensor has at the least; measured: the norm that torch gives
on a CPU is off by 4e-7 at 1e5 elements, 4e-4 at 1e7 and 1e-2 at 1e8."""

ENDS = "only the least and the greatest value are known and compared"
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
    unlike = _unlike(target.nan, reference.nan) + _unlike(target.inf, reference.inf)
    numbers["mismatched"] = unlike
    numbers["inf"] = reference.inf
    numbers["psnr_bound"] = numbers["sqnr_bound"] = None
    uncounted = min(target.nan, target.inf, reference.nan, reference.inf) < 0
    if finite and not unlike and not uncounted:
        # The root mean square of d is at least each of these.
        proven = [
            abs(target.mean - reference.mean),
            abs(target.std - reference.std),
            max(abs(target.l2 - reference.l2) - _summing(target) - _summing(reference), 0.0)
            / sqrt(finite),
            abs(target.max - reference.max) / sqrt(finite),
            abs(target.min - reference.min) / sqrt(finite),
        ]
        least = max((x for x in proven if not isnan(x)), default=nan)
        if isnan(least):
            return numbers
        # Statistics carry rounding of their own; a difference below it proves nothing.
        peak = max((abs(x) for x in (reference.max, reference.min) if not isnan(x)), default=0.0)
        scale = peak if isnan(reference.std) else max(peak, reference.std)
        if least <= 1e-6 * scale / sqrt(finite) and least < inf:
            least = 0.0
        numbers["peak"] = peak
        numbers["psnr_bound"] = _decibel(peak, least)
        known_l2 = not isnan(reference.l2)
        numbers["sqnr_bound"] = _decibel(reference.l2 / sqrt(finite) if known_l2 else peak, least)
    return numbers


def incomparable(target: Statistics, reference: Statistics) -> str:
    """Why two statistics say nothing of each other; "" where they do."""
    if min(target.nan, target.inf, reference.nan, reference.inf) < 0:
        return "both have values that are not finite, and it was not kept how many"
    both = ((getattr(target, n), getattr(reference, n)) for n in ("max", "min", "mean", "l2"))
    if reference.count > reference.nan + reference.inf and all(isnan(t - r) for t, r in both):
        return "there is no statistic that both sides have"
    return ""


def _unlike(target: int, reference: int) -> int:
    """By how many elements two numbers of them differ, at the least."""
    if min(target, reference) < 0:
        return int((target == 0) != (reference == 0))
    return abs(target - reference)


def _summing(statistics: Statistics) -> float:
    """What the norm of a tensor may be off by. Other tools, which give no spread, add up in
    float32; ours are exact enough."""
    if not isnan(statistics.std):
        return 0.0
    return statistics.l2 * statistics.count / _LANES * _FLOAT32


def scaled(stored: Statistics, scale: float, zero_point: int) -> Statistics:
    """The statistics of scale * (x - zero_point), given those of the stored integers x."""
    ends = sorted(scale * (x - zero_point) for x in (stored.min, stored.max))
    total = stored.count * stored.mean
    squares = stored.l2**2 - 2 * zero_point * total + stored.count * zero_point**2
    return replace(
        stored,
        min=ends[0],
        max=ends[1],
        mean=scale * (stored.mean - zero_point),
        std=abs(scale) * stored.std,
        l2=abs(scale) * sqrt(max(squares, 0.0)),
        zero=-1,
    )


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    if noise == inf:
        return -inf
    return 20 * log10(signal / noise) if signal else -inf


def judge_statistics(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """Large or moderate where that is proven; close only says that nothing was seen."""
    nothing_left = reason_of_statistics(numbers)
    if nothing_left is not None:
        return Verdict.NONE, nothing_left
    if numbers.get("same_bytes"):
        return Verdict.CLOSE, SAME_BYTES
    if numbers["mismatched"]:
        return Verdict.LARGE, f"{numbers['mismatched']} more or fewer non-finite values"
    if numbers["psnr_bound"] is None:
        return Verdict.NONE, Reason.EMPTY
    unequal = numbers.get("same_bytes") is False
    ends = [(numbers.get(name) or 0.0) for name in ("max_diff", "min_diff")]
    if limits.exact:
        # Integers with the same statistics are no more than that, unless their bytes are known.
        if numbers["psnr_bound"] < inf or any(ends):
            return Verdict.LARGE, "unequal"
        return (Verdict.LARGE, "unequal bytes") if unequal else (Verdict.CLOSE, _unsure(numbers))
    worst, reason = Verdict.CLOSE, _unsure(numbers)
    for metric in ("psnr", "sqnr"):
        bound = numbers[f"{metric}_bound"]
        close, moderate = getattr(limits, metric)
        if bound < close:
            verdict = Verdict.MODERATE if bound >= moderate else Verdict.LARGE
            if verdict.severity > worst.severity:
                worst, reason = verdict, f"{metric} is at most {bound:.1f} dB"
    if numbers.get("peak") is not None:
        # The elements at the ends are at least that far apart, however many others there are.
        bounds = [limit("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
        level = sum(max(ends) > allowed for allowed in bounds)
        if level > worst.severity:
            worst = Verdict.MODERATE if level == 1 else Verdict.LARGE
            reason = f"max_abs is at least {max(ends):.3g}, above {bounds[level - 1]:.3g}"
    return worst, reason


def _unsure(numbers: Numbers) -> str:
    """What may still be wrong where statistics agree."""
    said = _UNSURE
    if numbers.get("same_bytes") is False:
        said = "statistics agree and bytes differ; that hardly proves equality"
        if _alike(numbers):
            said = "the same statistics of other bytes: elements may have changed places"
    for kind, name, lost in (("nan", "NaN", "places"), ("inf", "infinite", "places and signs")):
        count = numbers.get(f"reference_{kind}") or 0
        if count > 0:
            said += f"; {count} {name} on both sides, their {lost} are not kept"
    return said


def _alike(numbers: Numbers) -> bool:
    """Whether all figures are the same but for the order in which they were summed up. Rounding
    moves them further, save where it moves next to nothing."""
    rounding = 1e-13 * (numbers.get("reference_l2") or 0.0)
    allowed = {"max": 0.0, "min": 0.0, "mean": rounding, "l2": rounding}
    diffs = [(numbers.get(f"{name}_diff"), most) for name, most in allowed.items()]
    return all(diff is not None and diff <= most for diff, most in diffs)


def judge_digest(numbers: Numbers) -> tuple[Verdict, str]:
    """Equal bytes are close. Unequal ones may differ by anything, and who kept digests asked
    for equality."""
    if not numbers["count"]:
        return Verdict.NONE, Reason.EMPTY
    if numbers["same_bytes"]:
        return Verdict.CLOSE, SAME_BYTES
    return Verdict.LARGE, "bytes differ; a digest cannot say by how much"
