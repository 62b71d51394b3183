"""Model outputs that were not compared, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import OtherOutput, Role

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result


def list_uncompared_outputs(comparison: Result) -> list[str]:
    """Names of the model outputs that were not compared, with the reasons."""
    unjudged = [
        f"{row.target.label} ({row.why.code})"
        for row in comparison.outputs
        if row.verdict is Verdict.NONE and not _is_settled(row)
    ]
    unmatched = [
        f"{u.side} {u.op}:{u.index}"
        for u in comparison.unmatched
        if u.role == Role.MODEL_OUTPUT and u.counted
    ]
    return unjudged + unmatched + _list_other_outputs(comparison) + _list_lost_outputs(comparison)


def _list_other_outputs(comparison: Result) -> list[str]:
    """Model outputs that are not tensors, unless both sides have the same number or text."""
    target, reference = (
        about.get("other_outputs") or {} for about in (comparison.target, comparison.reference)
    )
    different_outputs = []
    for name in dict.fromkeys([*target, *reference]):
        values = [
            OtherOutput.from_json(str(side[name])) if name in side else None
            for side in (target, reference)
        ]
        if values[0] == values[1] and values[0] is not None and not values[0].is_opaque:
            continue
        texts = ["nothing" if value is None else value.text for value in values]
        different_outputs.append(f"{name} (not a tensor: {' against '.join(texts)})")
    return different_outputs


def _list_lost_outputs(comparison: Result) -> list[str]:
    """The outputs of runs that ended early, which may lack some samples or steps.

    Dumps of other tools are left out: they need not contain model outputs.
    """
    sides = (("target", comparison.target), ("reference", comparison.reference))
    return [
        f"outputs of the {side}, whose run is incomplete"
        for side, about in sides
        if not about.get("complete", True) and "format" not in about.get("options", {})
    ]


def _is_settled(row: Row) -> bool:
    """Whether an output without a verdict needs none.

    Either the user excluded it, or both sides are empty with the same shape, such as the boxes of
    a detector that finds nothing.
    """
    if row.why.code is ReasonCode.EMPTY:
        return row.target.shape == row.reference.shape
    return row.why.code is ReasonCode.EXCLUDED
