"""What can be said of two tensors when one of them was kept as statistics or as a digest.

Statistics can prove a difference, hardly equality: the bounds below hold for any two tensors
that have these statistics, so what they call large is large. A digest tells only whether the
bytes are the same.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, log10, sqrt
from typing import Any

from syncpoint.metrics.limits import Limits, Numbers
from syncpoint.metrics.verdict import Reason, Verdict
from syncpoint.run.model import Statistics

_UNSURE = "statistics agree; that hardly proves equality"


def compare_statistics(target: Statistics, reference: Statistics) -> dict[str, Any]:
    """Differences of the statistics, and the best psnr and sqnr that are still possible."""
    numbers: dict[str, Any] = {"count": reference.count}
    finite = reference.count - reference.nan - reference.inf
    for name in ("max", "min", "mean", "l2"):
        t, r = getattr(target, name), getattr(reference, name)
        numbers[f"{name}_diff"] = abs(t - r) if finite else None
        numbers[f"{name}_rel_diff"] = abs(t - r) / abs(r) if finite and r else None
    unlike = abs(target.nan - reference.nan) + abs(target.inf - reference.inf)
    numbers["mismatched"] = unlike
    numbers["inf"] = reference.inf
    numbers["psnr_bound"] = numbers["sqnr_bound"] = None
    if finite and not unlike:
        # The root mean square of d is at least each of these.
        least = max(
            abs(target.mean - reference.mean),
            abs(target.std - reference.std),
            *(
                abs(getattr(target, n) - getattr(reference, n)) / sqrt(finite)
                for n in ("l2", "max", "min")
            ),
        )
        # Statistics carry rounding of their own; a difference below it proves nothing.
        scale = max(abs(reference.max), abs(reference.min), reference.std)
        if least <= 1e-6 * scale / sqrt(finite):
            least = 0.0
        peak = max(abs(reference.max), abs(reference.min))
        numbers["psnr_bound"] = _decibel(peak, least)
        numbers["sqnr_bound"] = _decibel(reference.l2 / sqrt(finite), least)
    return numbers


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
    )


def _decibel(signal: float, noise: float) -> float:
    if noise == 0:
        return inf
    return 20 * log10(signal / noise) if signal else -inf


def judge_statistics(numbers: Numbers, limits: Limits) -> tuple[Verdict, str]:
    """Large or moderate where that is proven; close only says that nothing was seen."""
    if not numbers["count"]:
        return Verdict.NONE, Reason.EMPTY
    if numbers["mismatched"]:
        return Verdict.LARGE, f"{numbers['mismatched']} more or fewer non-finite values"
    if numbers["psnr_bound"] is None:
        return Verdict.NONE, Reason.EMPTY
    if numbers.get("same_bytes"):
        return Verdict.CLOSE, "same bytes"
    if limits.exact:
        # Integers with the same statistics are no more than that, unless their bytes are known.
        proven = numbers["psnr_bound"] < inf or numbers.get("same_bytes") is False
        return (Verdict.LARGE, "unequal") if proven else (Verdict.CLOSE, _UNSURE)
    worst, reason = Verdict.CLOSE, _UNSURE
    if numbers.get("inf") and numbers.get("same_bytes") is False:
        worst, reason = Verdict.MODERATE, "bytes differ, and the sign of infinities is not kept"
    for metric in ("psnr", "sqnr"):
        bound = numbers[f"{metric}_bound"]
        close, moderate = getattr(limits, metric)
        if bound < close:
            verdict = Verdict.MODERATE if bound >= moderate else Verdict.LARGE
            if verdict.severity > worst.severity:
                worst, reason = verdict, f"{metric} is at most {bound:.1f} dB"
    return worst, reason


def judge_digest(numbers: Numbers) -> tuple[Verdict, str]:
    """Equal bytes are close. Unequal ones may differ by anything, and who kept digests asked
    for equality."""
    if numbers["same_bytes"]:
        return Verdict.CLOSE, "same bytes"
    return Verdict.LARGE, "bytes differ; a digest cannot say by how much"
