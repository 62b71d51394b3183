"""The list of tensors without a counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncpoint.metrics.verdict import ReasonCode
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import UnmatchedBrief, UnmatchedWindow

_TELLING = (
    ReasonCode.DAMAGED,
    ReasonCode.SHAPE,
    ReasonCode.UNREADABLE,
    ReasonCode.AMBIGUOUS,
    ReasonCode.NO_COUNTERPART,
)
"""Reasons in the order in which they are listed; all others follow."""


def unmatched(opened: Opened, text: str, offset: int, limit: int) -> UnmatchedWindow:
    """A piece of the list of what stayed without a partner, the telling ones first."""
    wanted = text.lower()
    said = [
        lonely
        for lonely in opened.about["unmatched"]
        if wanted in f"{lonely['op']}\n{lonely['module']}".lower()
    ]
    ranks = {code.value: rank for rank, code in enumerate(_TELLING)}
    said.sort(
        key=lambda one: (
            not one["counted"],
            one["side"] != "target",
            ranks.get(one["reason"], len(ranks)),
        )
    )
    items = [unmatched_brief(one) for one in said[offset : offset + limit]]
    return UnmatchedWindow(total=len(said), offset=offset, items=items)


def unmatched_brief(lonely: Mapping[str, Any]) -> UnmatchedBrief:
    """A tensor without a partner as a line of that list."""
    return UnmatchedBrief(**{name: lonely[name] for name in UnmatchedBrief.model_fields})
