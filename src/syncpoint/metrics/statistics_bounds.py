"""What can be said of two tensors when one of them was kept as statistics or as a digest.

Statistics can prove a difference, hardly equality: the bounds below hold for any two tensors
that have these statistics, so what they call large is large. A digest tells only whether the
bytes are the same.
"""

from __future__ import annotations

from math import inf, isnan, log10, nan, sqrt
from typing import Any

from syncpoint.metrics.empty_pairs import code_of_statistics
from syncpoint.metrics.limits import Limits, Numbers
from syncpoint.metrics.limits import bound as limit
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict
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
        numbers |= _best_possible(target, reference, finite)
    return numbers


def _best_possible(target: Statistics, reference: Statistics, finite: int) -> dict[str, float]:
    """The peak, and the greatest psnr and sqnr that tensors with these statistics can have;
    nothing where no statistic is known on both sides."""
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


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    if noise == inf:
        return -inf
    return 20 * log10(signal / noise) if signal else -inf


def judge_statistics(numbers: Numbers, limits: Limits) -> tuple[Verdict, Reason]:
    """Large or moderate where that is proven; close only says that nothing was seen."""
    nothing_left = code_of_statistics(numbers)
    if nothing_left is not None:
        return Verdict.NONE, Reason(nothing_left)
    if numbers.get("same_bytes"):
        return Verdict.CLOSE, Reason(detail=SAME_BYTES)
    if numbers["mismatched"]:
        more = f"{numbers['mismatched']} more or fewer non-finite values"
        return Verdict.LARGE, Reason(detail=more)
    if numbers["psnr_bound"] is None:
        return Verdict.NONE, Reason(ReasonCode.EMPTY)
    verdict, detail = (_judge_equality if limits.exact else _judge_bounds)(numbers, limits)
    return verdict, Reason(detail=detail)


def _ends_apart(numbers: Numbers) -> float:
    """How far the greatest elements of the two, or the least, are apart."""
    return max((numbers.get(name) or 0.0) for name in ("max_diff", "min_diff"))


def _judge_equality(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """Integers with the same statistics are no more than that, unless their bytes are known."""
    if numbers["psnr_bound"] < inf or _ends_apart(numbers):
        return Verdict.LARGE, "unequal"
    if numbers.get("same_bytes") is False:
        return Verdict.LARGE, "unequal bytes"
    return Verdict.CLOSE, _unsure(numbers)


def _judge_bounds(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """The worst that the bounds of psnr, sqnr and the greatest difference prove."""
    worst, detail = Verdict.CLOSE, _unsure(numbers)
    for metric in ("psnr", "sqnr"):
        bound = numbers[f"{metric}_bound"]
        close, moderate = getattr(limits, metric)
        if bound < close:
            verdict = Verdict.MODERATE if bound >= moderate else Verdict.LARGE
            if verdict.severity > worst.severity:
                worst, detail = verdict, f"{metric} is at most {bound:.1f} dB"
    if numbers.get("peak") is not None:
        # The elements at the ends are at least that far apart, however many others there are.
        apart = _ends_apart(numbers)
        bounds = [limit("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
        level = sum(apart > allowed for allowed in bounds)
        if level > worst.severity:
            worst = Verdict.MODERATE if level == 1 else Verdict.LARGE
            detail = f"max_abs is at least {apart:.3g}, above {bounds[level - 1]:.3g}"
    return worst, detail


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


def judge_digest(numbers: Numbers) -> tuple[Verdict, Reason]:
    """Equal bytes are close. Unequal ones may differ by anything, and who kept digests asked
    for equality."""
    if not numbers["count"]:
        return Verdict.NONE, Reason(ReasonCode.EMPTY)
    if numbers["same_bytes"]:
        return Verdict.CLOSE, Reason(detail=SAME_BYTES)
    return Verdict.LARGE, Reason(detail="bytes differ; a digest cannot say by how much")
