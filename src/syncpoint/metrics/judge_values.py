"""Verdict of one pair from the numbers of its values, with the reason: by limits, one metric,
introduced error, correct rounding, NaN counts, hidden bulk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.metrics.limits import Limits, Numbers, metric_bound
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict

MAX_PROBABILITY = 1.0 + 1e-6
"""Up to where a value may be a probability that was rounded."""


def judge(numbers: Numbers, limits: Limits) -> tuple[Verdict, Reason]:
    """The verdict on the total error, and its reason.

    It is the worst verdict by psnr, sqnr, max_abs, the metrics of the bulk where outliers hide it,
    and values that are non-finite or masked on one side only.
    """
    if numbers["mismatched"]:
        mismatched = (
            f"{_count_elements(numbers['mismatched'])} non-finite or masked on one side only"
        )
        return Verdict.LARGE, Reason(detail=mismatched)
    empty_code = empty_values_code(numbers)
    if empty_code is not None:
        return Verdict.NONE, Reason(empty_code)
    if limits.exact:
        unequal = numbers["count"] - numbers["equal"]
        if unequal:
            return Verdict.LARGE, Reason(detail=f"{_count_elements(unequal)} unequal")
        return Verdict.CLOSE, Reason()
    worst = max(_metric_level(numbers[m], getattr(limits, m)) for m in ("psnr", "sqnr"))
    reasons = []
    bounds = [metric_bound("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
    max_abs_level = sum((numbers["max_abs"] or 0.0) > b for b in bounds)
    if max_abs_level > worst:
        # One wrong element of a million is invisible in every mean.
        worst = max_abs_level
        reasons.append(f"max_abs {numbers['max_abs']:.3g} above {bounds[max_abs_level - 1]:.3g}")
    level_of_bulk = bulk_level(numbers, limits)
    if level_of_bulk > worst:
        worst = level_of_bulk
        reasons.append(_bulk_reason(numbers, limits, level_of_bulk))
    if worst == 0:
        return Verdict.CLOSE, Reason()
    for metric in ("psnr", "sqnr"):
        metric_limits = getattr(limits, metric)
        level = _metric_level(numbers[metric], metric_limits)
        if level:
            reasons.append(f"{metric} {numbers[metric]:.1f} dB below {metric_limits[level - 1]:g}")
    verdict = Verdict.MODERATE if worst == 1 else Verdict.LARGE
    return verdict, Reason(detail=", ".join(reasons))


def _count_elements(count: int) -> str:
    return f"{count:,} element{'' if count == 1 else 's'}"


def bulk_reason(numbers: Numbers, limits: Limits) -> str:
    """The error that outliers hide, in words; "" if the bulk is close."""
    level = 0 if limits.exact else bulk_level(numbers, limits)
    return _bulk_reason(numbers, limits, level) if level else ""


def bulk_level(numbers: Numbers, limits: Limits) -> int:
    """The level by the bulk, the elements that are no outliers: 0 close, 1 moderate, 2 large.

    Close if the bulk was not measured: there are no outliers, too many, or they hide nothing, or
    the table is older than the metric.
    """
    if not _has_hidden_bulk(numbers):
        return 0
    sqnr_bounds = [metric_bound("bulk_sqnr", numbers, limits, level) or 0.0 for level in (0, 1)]
    max_abs_bounds = [
        metric_bound("bulk_max_abs", numbers, limits, level) or 0.0 for level in (0, 1)
    ]
    max_abs: float = numbers.get("bulk_max_abs") or 0.0
    by_sqnr = _metric_level(numbers["bulk_sqnr"], (sqnr_bounds[0], sqnr_bounds[1]))
    return max(by_sqnr, sum(max_abs > max_abs_bound for max_abs_bound in max_abs_bounds))


def _has_hidden_bulk(numbers: Numbers) -> bool:
    """Whether the bulk is judged separately.

    Not for probabilities: they weight other values, so that an error of small ones has little
    effect.
    """
    if numbers.get("bulk_sqnr") is None:
        return False
    peak = numbers["peak"] or 0.0
    return not ((numbers["reference_min"] or 0.0) >= 0 and 0.5 < peak <= MAX_PROBABILITY)


def _bulk_reason(numbers: Numbers, limits: Limits, level: int) -> str:
    """The error of the bulk, and the outliers that hide it."""
    outliers = numbers["outliers"]
    share = 1 - outliers / numbers["compared"]
    hidden_by = f"{outliers:,} outlier{'s' if outliers > 1 else ''} of up to {numbers['peak']:.2g}"
    min_sqnr = metric_bound("bulk_sqnr", numbers, limits, level - 1) or 0.0
    if numbers["bulk_sqnr"] < min_sqnr:
        relative_error = 10.0 ** (-numbers["bulk_sqnr"] / 20)
        limit = f"bulk_sqnr {numbers['bulk_sqnr']:.1f} dB below {min_sqnr:g}"
        bulk = f"{_percent(share)} of the elements"
        error = f"{bulk} have a relative error of {100 * relative_error:.2g} %"
        return f"{limit}: {error}, hidden by {hidden_by}"
    max_error = metric_bound("bulk_max_abs", numbers, limits, level - 1) or 0.0
    return (
        f"bulk_max_abs {numbers['bulk_max_abs']:.3g} above {max_error:.3g}, hidden by {hidden_by}"
    )


def _percent(share: float) -> str:
    """A percentage, rounded down so that it never shows 100 % for a part."""
    digits = 10 if share < 0.999 else 1000
    return f"{int(share * 100 * digits) / digits:g} %"


def judge_introduced(ratio: float | None, limits: Limits) -> Verdict:
    """The verdict on introduced error, as a multiple of the expected error."""
    if ratio is None:
        return Verdict.NONE
    close, large = limits.introduced
    if ratio <= close:
        return Verdict.CLOSE
    return Verdict.LARGE if ratio >= large else Verdict.MODERATE


_MAX_ROUNDING_REL_L2 = 0.1
"""Maximum relative L2 error at which correctly rounded values are close."""


def judge_rounded(numbers: Mapping[str, Any], dtype: str) -> tuple[Verdict, Reason]:
    """The verdict on correctly rounded values: close, unless rounding lost almost every digit.

    A model that divides by a value that became zero or doubled breaks, even if the rounding was
    correct.
    """
    vanished = numbers["target_zero"] - numbers["reference_zero"]
    rounded = f"correctly rounded to {dtype}"
    if vanished > 0:
        zeroed = f"{vanished:,} value{'s' if vanished > 1 else ''} too small for {dtype} became 0"
        return Verdict.MODERATE, Reason(detail=f"{zeroed}; {rounded}")
    if numbers["rel_l2"] is None or numbers["rel_l2"] > _MAX_ROUNDING_REL_L2:
        off = f"rel_l2 {numbers['rel_l2'] or 0.0:.0%}, since the values are very small for {dtype}"
        return Verdict.MODERATE, Reason(detail=f"{off}; {rounded}")
    return Verdict.CLOSE, Reason()


HIGHER_IS_BETTER = ("psnr", "sqnr", "bulk_sqnr", "cosine")
"""Metrics with a limit for which higher is better."""


def _metric_level(value: float | None, bounds: tuple[float, float]) -> int:
    """The level of a metric for which higher is better: 0 close, 1 moderate, 2 large.

    A metric that cannot be computed is large.
    """
    if value is None or value != value:
        return 2
    return 0 if value >= bounds[0] else 1 if value >= bounds[1] else 2


def judge_metric(metric: str, numbers: Numbers, limits: Limits) -> Verdict:
    """The verdict by one metric alone, for users who choose that metric.

    It is never better than the verdict by the bulk where outliers hide it.
    """
    overall, _ = judge(numbers, limits)
    if overall is Verdict.NONE or limits.exact or numbers["mismatched"]:
        return overall
    value = numbers[metric]
    # mean_rel is huge near zeros; mean_rel_robust has a floor under |r|. It is not measured where
    # mean_rel, its upper bound, is small.
    if metric == "mean_rel" and numbers["mean_rel_robust"] is not None:
        value = numbers["mean_rel_robust"]
    close, moderate = (metric_bound(metric, numbers, limits, level) for level in (0, 1))
    if close is None or moderate is None:
        return overall
    if value is None or (metric.startswith("bulk_") and not _has_hidden_bulk(numbers)):
        return Verdict.NONE
    if metric in HIGHER_IS_BETTER:
        level = 0 if value >= close else 1 if value >= moderate else 2
    else:
        level = 0 if value <= close else 1 if value <= moderate else 2
    return (Verdict.CLOSE, Verdict.MODERATE, Verdict.LARGE)[max(level, bulk_level(numbers, limits))]


def empty_values_code(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """Why no element of a pair could be compared, by values; None if some were."""
    if not numbers["count"]:
        return ReasonCode.EMPTY
    if numbers["compared"]:
        return None
    if numbers["masked"] == numbers["count"]:
        return ReasonCode.ALL_MASKED
    return non_finite_code(numbers) or ReasonCode.NO_FINITE


def non_finite_code(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """The reason by the counts of NaN and inf, of the side that has fewer."""
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
