"""Verdict of one pair of which only statistics or digests were kept, with the reason: equal
integers, bounds of PSNR, caveat of equal statistics.

Statistics prove a difference, but not equality; a digest cannot tell how large a difference is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from syncpoint.metrics.judge_values import non_finite_code
from syncpoint.metrics.limits import Limits, Numbers, metric_bound
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict

SAME_BYTES = "same bytes"
_STATISTICS_AGREE = "statistics agree, which does not prove equality"


def judge_statistics(numbers: Numbers, limits: Limits) -> tuple[Verdict, Reason]:
    """Large or moderate where statistics prove it; close means that no difference is visible."""
    empty_code = empty_statistics_code(numbers)
    if empty_code is not None:
        return Verdict.NONE, Reason(empty_code)
    if numbers.get("same_bytes"):
        return Verdict.CLOSE, Reason(detail=SAME_BYTES)
    if numbers["mismatched"]:
        mismatch = f"the counts of non-finite values differ by {numbers['mismatched']}"
        return Verdict.LARGE, Reason(detail=mismatch)
    if numbers["psnr_bound"] is None:
        return Verdict.NONE, Reason(ReasonCode.EMPTY)
    verdict, detail = (_judge_equality if limits.exact else _judge_bounds)(numbers, limits)
    return verdict, Reason(detail=detail)


def _max_end_difference(numbers: Numbers) -> float:
    """The difference of the two maxima or of the two minima, whichever is larger."""
    return max((numbers.get(name) or 0.0) for name in ("max_diff", "min_diff"))


def _judge_equality(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """The verdict on integers, which must be equal."""
    if numbers["psnr_bound"] < inf or _max_end_difference(numbers):
        return Verdict.LARGE, "unequal"
    if numbers.get("same_bytes") is False:
        return Verdict.LARGE, "unequal bytes"
    return Verdict.CLOSE, _unproven_text(numbers)


def _judge_bounds(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """The worst verdict that the bounds of psnr, sqnr and max_abs prove."""
    worst, detail = Verdict.CLOSE, _unproven_text(numbers)
    for metric in ("psnr", "sqnr"):
        bound = numbers[f"{metric}_bound"]
        close, moderate = getattr(limits, metric)
        if bound < close:
            verdict = Verdict.MODERATE if bound >= moderate else Verdict.LARGE
            if verdict.severity > worst.severity:
                worst, detail = verdict, f"{metric} is at most {bound:.1f} dB"
    if numbers.get("peak") is not None:
        # The maximum absolute error is at least the difference of the maxima or minima.
        difference = _max_end_difference(numbers)
        bounds = [metric_bound("max_abs", numbers, limits, level) or 0.0 for level in (0, 1)]
        level = sum(difference > allowed for allowed in bounds)
        if level > worst.severity:
            worst = Verdict.MODERATE if level == 1 else Verdict.LARGE
            detail = f"max_abs is at least {difference:.3g}, above {bounds[level - 1]:.3g}"
    return worst, detail


def _unproven_text(numbers: Numbers) -> str:
    """The caveat of equal statistics: what may still differ."""
    caveat = _STATISTICS_AGREE
    if numbers.get("same_bytes") is False:
        caveat = "statistics agree but bytes differ, which does not prove equality"
        if _have_equal_statistics(numbers):
            caveat = "equal statistics of different bytes: elements may be reordered"
    for kind, name, unknown_facts in (
        ("nan", "NaN", "positions"),
        ("inf", "infinite", "positions and signs"),
    ):
        count = numbers.get(f"reference_{kind}") or 0
        if count > 0:
            caveat += f"; {count} {name} on both sides, whose {unknown_facts} are not kept"
    return caveat


def _have_equal_statistics(numbers: Numbers) -> bool:
    """Whether all statistics are equal, up to the order of summation.

    Rounding of the values would change them more.
    """
    rounding = 1e-13 * (numbers.get("reference_l2") or 0.0)
    allowed = {"max": 0.0, "min": 0.0, "mean": rounding, "l2": rounding}
    diffs = [(numbers.get(f"{name}_diff"), max_diff) for name, max_diff in allowed.items()]
    return all(diff is not None and diff <= max_diff for diff, max_diff in diffs)


def judge_digest(numbers: Numbers) -> tuple[Verdict, Reason]:
    """Equal bytes are close, unequal bytes large: a digest cannot tell by how much they differ."""
    if not numbers["count"]:
        return Verdict.NONE, Reason(ReasonCode.EMPTY)
    if numbers["same_bytes"]:
        return Verdict.CLOSE, Reason(detail=SAME_BYTES)
    return Verdict.LARGE, Reason(detail="bytes differ; a digest cannot tell by how much")


def empty_statistics_code(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """Why no element of a pair could be compared, by statistics; None if some may be."""
    if not numbers["count"]:
        return ReasonCode.EMPTY
    return non_finite_code(numbers)
