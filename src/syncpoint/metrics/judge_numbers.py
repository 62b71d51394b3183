"""Numbers of one pair -> its verdict: by values, statistics or digest, or by one metric alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from syncpoint.metrics.limits import Limits, Numbers, metric_bound
from syncpoint.metrics.limits import metric_bound as limit
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict

MAX_PROBABILITY = 1.0 + 1e-6
"""Up to where a value may be a probability that was rounded."""


def judge(numbers: Numbers, limits: Limits) -> tuple[Verdict, Reason]:
    """The verdict on total error, and why it is not close or why there is none.

    The worst of psnr, sqnr, the greatest difference, the same of the bulk where outliers hide it,
    and values that are non-finite or masked on one side only.
    """
    if numbers["mismatched"]:
        mismatched = f"{numbers['mismatched']} non-finite or masked on one side only"
        return Verdict.LARGE, Reason(detail=mismatched)
    nothing_left = empty_values_code(numbers)
    if nothing_left is not None:
        return Verdict.NONE, Reason(nothing_left)
    if limits.exact:
        unequal = numbers["count"] - numbers["equal"]
        if unequal:
            return Verdict.LARGE, Reason(detail=f"{unequal} unequal")
        return Verdict.CLOSE, Reason()
    worst = max(_metric_level(numbers[m], getattr(limits, m)) for m in ("psnr", "sqnr"))
    reasons = []
    bounds = [metric_bound("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
    lone = sum((numbers["max_abs"] or 0.0) > b for b in bounds)
    if lone > worst:
        # One wild element among a million is lost in every mean.
        worst = lone
        reasons.append(f"max_abs {numbers['max_abs']:.3g} above {bounds[lone - 1]:.3g}")
    hidden = bulk_level(numbers, limits)
    if hidden > worst:
        worst = hidden
        reasons.append(_bulk_reason(numbers, limits, hidden))
    if worst == 0:
        return Verdict.CLOSE, Reason()
    for metric in ("psnr", "sqnr"):
        least = getattr(limits, metric)
        level = _metric_level(numbers[metric], least)
        if level:
            reasons.append(f"{metric} {numbers[metric]:.1f} dB below {least[level - 1]:g}")
    verdict = Verdict.MODERATE if worst == 1 else Verdict.LARGE
    return verdict, Reason(detail=", ".join(reasons))


def bulk_reason(numbers: Numbers, limits: Limits) -> str:
    """In words what outliers hide; "" where the rest is close too."""
    level = 0 if limits.exact else bulk_level(numbers, limits)
    return _bulk_reason(numbers, limits, level) if level else ""


def bulk_level(numbers: Numbers, limits: Limits) -> int:
    """0 close, 1 moderate, 2 large, by the elements that outliers hide from every other metric.

    Close where the bulk was not measured: there are no outliers, too many of them, or they hide
    nothing; and in tables that are older than the metric.
    """
    if not _has_hidden_bulk(numbers):
        return 0
    sqnr = [metric_bound("bulk_sqnr", numbers, limits, level) or 0.0 for level in (0, 1)]
    lone = [metric_bound("bulk_max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
    greatest: float = numbers.get("bulk_max_abs") or 0.0
    by_sqnr = _metric_level(numbers["bulk_sqnr"], (sqnr[0], sqnr[1]))
    return max(by_sqnr, sum(greatest > most for most in lone))


def _has_hidden_bulk(numbers: Numbers) -> bool:
    """Whether the bulk counts on its own. Of probabilities it does not: they weigh other values,
    so that what is small among them has little effect however far it is off."""
    if numbers.get("bulk_sqnr") is None:
        return False
    peak = numbers["peak"] or 0.0
    return not ((numbers["reference_min"] or 0.0) >= 0 and 0.5 < peak <= MAX_PROBABILITY)


def _bulk_reason(numbers: Numbers, limits: Limits, level: int) -> str:
    """What is off and what hides it."""
    outliers = numbers["outliers"]
    share = 1 - outliers / numbers["compared"]
    hidden_by = f"{outliers:,} outlier{'s' if outliers > 1 else ''} of up to {numbers['peak']:.2g}"
    least = metric_bound("bulk_sqnr", numbers, limits, level - 1) or 0.0
    if numbers["bulk_sqnr"] < least:
        off = 10.0 ** (-numbers["bulk_sqnr"] / 20)
        said = f"bulk_sqnr {numbers['bulk_sqnr']:.1f} dB below {least:g}: {_percent(share)} of the"
        return f"{said} elements are {100 * off:.2g} % off, hidden by {hidden_by}"
    most = metric_bound("bulk_max_abs", numbers, limits, level - 1) or 0.0
    return f"bulk_max_abs {numbers['bulk_max_abs']:.3g} above {most:.3g}, hidden by {hidden_by}"


def _percent(share: float) -> str:
    """Two or three digits, rounded down, so that a part is never called the whole."""
    digits = 10 if share < 0.999 else 1000
    return f"{int(share * 100 * digits) / digits:g} %"


def judge_introduced(ratio: float | None, limits: Limits) -> Verdict:
    """The verdict on introduced error, given as a multiple of the expected error."""
    if ratio is None:
        return Verdict.NONE
    close, large = limits.introduced
    if ratio <= close:
        return Verdict.CLOSE
    return Verdict.LARGE if ratio >= large else Verdict.MODERATE


HIGHER_IS_BETTER = ("psnr", "sqnr", "bulk_sqnr", "cosine")
"""Metrics with a limit that are better when they are greater."""


def _metric_level(value: float | None, bounds: tuple[float, float]) -> int:
    """0 close, 1 moderate, 2 large, of a metric that is better when higher. What cannot be
    computed is no pass."""
    if value is None or value != value:
        return 2
    return 0 if value >= bounds[0] else 1 if value >= bounds[1] else 2


def judge_metric(metric: str, numbers: Numbers, limits: Limits) -> Verdict:
    """The colour of one metric on its own, for people who chose to look through it; none is better
    than the bulk where outliers hide that."""
    overall, _ = judge(numbers, limits)
    if overall is Verdict.NONE or limits.exact or numbers["mismatched"]:
        return overall
    value = numbers[metric]
    # mean_rel itself is infinite or huge near zeros; its robust twin has a floor under |r|. The
    # twin is not measured where mean_rel, which then bounds it, is small.
    if metric == "mean_rel" and numbers["mean_rel_robust"] is not None:
        value = numbers["mean_rel_robust"]
    close, moderate = (metric_bound(metric, numbers, limits, level) for level in (0, 1))
    if close is None or moderate is None:
        return overall
    if value is None or (metric.startswith("bulk_") and not _has_hidden_bulk(numbers)):
        return Verdict.NONE
    if metric in HIGHER_IS_BETTER:
        own = 0 if value >= close else 1 if value >= moderate else 2
    else:
        own = 0 if value <= close else 1 if value <= moderate else 2
    return (Verdict.CLOSE, Verdict.MODERATE, Verdict.LARGE)[max(own, bulk_level(numbers, limits))]


SAME_BYTES = "same bytes"


_STATISTICS_AGREE = "statistics agree; that hardly proves equality"


def judge_statistics(numbers: Numbers, limits: Limits) -> tuple[Verdict, Reason]:
    """Large or moderate where that is proven; close only says that nothing was seen."""
    nothing_left = empty_statistics_code(numbers)
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


def _max_end_difference(numbers: Numbers) -> float:
    """How far the greatest elements of the two, or the least, are apart."""
    return max((numbers.get(name) or 0.0) for name in ("max_diff", "min_diff"))


def _judge_equality(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """Integers with the same statistics are no more than that, unless their bytes are known."""
    if numbers["psnr_bound"] < inf or _max_end_difference(numbers):
        return Verdict.LARGE, "unequal"
    if numbers.get("same_bytes") is False:
        return Verdict.LARGE, "unequal bytes"
    return Verdict.CLOSE, _unproven_text(numbers)


def _judge_bounds(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """The worst that the bounds of psnr, sqnr and the greatest difference prove."""
    worst, detail = Verdict.CLOSE, _unproven_text(numbers)
    for metric in ("psnr", "sqnr"):
        bound = numbers[f"{metric}_bound"]
        close, moderate = getattr(limits, metric)
        if bound < close:
            verdict = Verdict.MODERATE if bound >= moderate else Verdict.LARGE
            if verdict.severity > worst.severity:
                worst, detail = verdict, f"{metric} is at most {bound:.1f} dB"
    if numbers.get("peak") is not None:
        # The elements at the ends are at least that far apart, however many others there are.
        apart = _max_end_difference(numbers)
        bounds = [limit("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
        level = sum(apart > allowed for allowed in bounds)
        if level > worst.severity:
            worst = Verdict.MODERATE if level == 1 else Verdict.LARGE
            detail = f"max_abs is at least {apart:.3g}, above {bounds[level - 1]:.3g}"
    return worst, detail


def _unproven_text(numbers: Numbers) -> str:
    """What may still be wrong where statistics agree."""
    said = _STATISTICS_AGREE
    if numbers.get("same_bytes") is False:
        said = "statistics agree and bytes differ; that hardly proves equality"
        if _have_equal_statistics(numbers):
            said = "the same statistics of other bytes: elements may have changed places"
    for kind, name, lost in (("nan", "NaN", "places"), ("inf", "infinite", "places and signs")):
        count = numbers.get(f"reference_{kind}") or 0
        if count > 0:
            said += f"; {count} {name} on both sides, their {lost} are not kept"
    return said


def _have_equal_statistics(numbers: Numbers) -> bool:
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


def empty_values_code(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """Why no element of a measured pair was compared; None where some were."""
    if not numbers["count"]:
        return ReasonCode.EMPTY
    if numbers["compared"]:
        return None
    if numbers["masked"] == numbers["count"]:
        return ReasonCode.ALL_MASKED
    return _non_finite_code(numbers) or ReasonCode.NO_FINITE


def empty_statistics_code(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """The same for statistics, which count NaN and infinite elements, or may."""
    if not numbers["count"]:
        return ReasonCode.EMPTY
    return _non_finite_code(numbers)


def _non_finite_code(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """Judged by the side that has fewer elements that are not finite."""
    count = numbers["count"]
    sides = ("target", "reference")
    nan, inf = (
        min(numbers.get(f"{side}_{kind}") or 0 for side in sides) for kind in ("nan", "inf")
    )
    if nan == count:
        return ReasonCode.ALL_NAN
    if inf == count:
        return ReasonCode.ALL_INFINITE
    return ReasonCode.NO_FINITE if min(nan, inf) >= 0 and nan + inf == count else None
