"""Pairs of which no element can be compared, though both sides agree: nothing was shown by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.metrics.verdict import ReasonCode


def code_of_values(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """Why no element of a measured pair was compared; None where some were."""
    if not numbers["count"]:
        return ReasonCode.EMPTY
    if numbers["compared"]:
        return None
    if numbers["masked"] == numbers["count"]:
        return ReasonCode.ALL_MASKED
    return _code_of_counts(numbers) or ReasonCode.NO_FINITE


def code_of_statistics(numbers: Mapping[str, Any]) -> ReasonCode | None:
    """The same for statistics, which count NaN and infinite elements, or may."""
    if not numbers["count"]:
        return ReasonCode.EMPTY
    return _code_of_counts(numbers)


def _code_of_counts(numbers: Mapping[str, Any]) -> ReasonCode | None:
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
