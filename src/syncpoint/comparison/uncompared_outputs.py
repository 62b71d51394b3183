"""Model outputs that a comparison says nothing about, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import OtherOutput, Role

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode


def _is_settled(row: Row) -> bool:
    """Whether a row without a verdict leaves nothing open: the user excluded it, or both sides are
    empty in the same shape, as what a detector that finds nothing gives."""
    if row.why.code is ReasonCode.EMPTY:
        return row.target.shape == row.reference.shape
    return row.why.code is ReasonCode.EXCLUDED


def list_uncompared_outputs(comparison: Result) -> list[str]:
    """Model outputs that nothing was said about."""
    rows = [
        f"{row.target.label} ({row.why.code})"
        for row in comparison.outputs
        if row.verdict is Verdict.NONE and not _is_settled(row)
    ]
    lonely = [
        f"{u.side} {u.op}:{u.index}"
        for u in comparison.unmatched
        if u.role == Role.MODEL_OUTPUT and u.counted
    ]
    return rows + lonely + _list_other_outputs(comparison) + _list_lost_outputs(comparison)


def _list_other_outputs(comparison: Result) -> list[str]:
    """Outputs that are no tensors, unless both sides have the same number or text there."""
    target, reference = (
        about.get("other_outputs") or {} for about in (comparison.target, comparison.reference)
    )
    left = []
    for name in dict.fromkeys([*target, *reference]):
        values = [
            OtherOutput.from_json(str(side[name])) if name in side else None
            for side in (target, reference)
        ]
        if values[0] == values[1] and values[0] is not None and not values[0].is_opaque:
            continue
        texts = ["nothing" if value is None else value.text for value in values]
        left.append(f"{name} (no tensor: {' against '.join(texts)})")
    return left


def _list_lost_outputs(comparison: Result) -> list[str]:
    """The outputs of runs that ended before they had all: of the samples or steps that were
    recorded some may be there. A dump of another tool need not hold model outputs."""
    sides = (("target", comparison.target), ("reference", comparison.reference))
    return [
        f"those of the {side}, whose run is incomplete"
        for side, about in sides
        if not about.get("complete", True) and "format" not in about.get("options", {})
    ]
