"""The page's list of tensors without a counterpart, in windows, most important first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import UnmatchedBrief, UnmatchedWindow

_FIRST_REASONS = (
    ReasonCode.DAMAGED,
    ReasonCode.SHAPE,
    ReasonCode.UNREADABLE,
    ReasonCode.AMBIGUOUS,
    ReasonCode.NO_COUNTERPART,
)
"""Reasons in the order in which they are listed; all others follow."""


def list_unmatched(opened: OpenComparison, text: str, offset: int, limit: int) -> UnmatchedWindow:
    """Return a window of the list of tensors without a counterpart, most important first."""
    lower_text = text.lower()
    matches = [
        unmatched
        for unmatched in opened.about["unmatched"]
        if lower_text in f"{unmatched['op']}\n{unmatched['module']}".lower()
    ]
    ranks = {code.value: rank for rank, code in enumerate(_FIRST_REASONS)}
    matches.sort(
        key=lambda unmatched: (
            not unmatched["counted"],
            unmatched["side"] != "target",
            ranks.get(unmatched["reason"], len(ranks)),
        )
    )
    items = [build_unmatched_brief(unmatched) for unmatched in matches[offset : offset + limit]]
    return UnmatchedWindow(total=len(matches), offset=offset, items=items)


def build_unmatched_brief(unmatched: Mapping[str, Any]) -> UnmatchedBrief:
    """Return an entry of `unmatched` in comparison.json as a line of the list."""
    return UnmatchedBrief(**{name: unmatched[name] for name in UnmatchedBrief.model_fields})
