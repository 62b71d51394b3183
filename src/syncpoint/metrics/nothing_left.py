"""Pairs of which no element can be compared, though both sides agree: nothing was shown by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.metrics.verdict import Reason


def reason_of_values(numbers: Mapping[str, Any]) -> Reason | None:
    """Why no element of a measured pair was compared; None where some were."""
    if not numbers["count"]:
        return Reason.EMPTY
    if numbers["compared"]:
        return None
    if numbers["masked"] == numbers["count"]:
        return Reason.ALL_MASKED
    return _reason_of_counts(numbers) or Reason.NO_FINITE


def reason_of_statistics(numbers: Mapping[str, Any]) -> Reason | None:
    """The same for statistics, which count NaN and infinite elements, or may."""
    if not numbers["count"]:
        return Reason.EMPTY
    return _reason_of_counts(numbers)


def _reason_of_counts(numbers: Mapping[str, Any]) -> Reason | None:
    """Judged by the side that has fewer elements that are not finite."""
    count = numbers["count"]
    sides = ("target", "reference")
    nan, inf = (
        min(numbers.get(f"{side}_{kind}") or 0 for side in sides) for kind in ("nan", "inf")
    )
    if nan == count:
        return Reason.ALL_NAN
    if inf == count:
        return Reason.ALL_INFINITE
    return Reason.NO_FINITE if min(nan, inf) >= 0 and nan + inf == count else None
