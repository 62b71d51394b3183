"""Lines printed before the verdict: model inputs that differ, damaged and unreadable tensors;
warning texts are in comparison/warning_texts.py."""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.reports.number_and_name_format import row_place

_MAX_UNREADABLE_TENSORS = 3
"""Maximum number of unreadable tensors to name."""


def inputs_lines(result: Result) -> list[str]:
    """The line about model inputs that differ, which comes first."""
    rows = result.inputs_differ
    if not rows:
        return []
    names = ", ".join(row.target.label for row in rows)
    return [f"■ the two runs have different inputs: {names}; the results below are not meaningful"]


def unreadable_lines(result: Result) -> list[str]:
    """Lines about damaged and unreadable tensors, because of which the verdict is large."""
    lines = []
    for code in (ReasonCode.DAMAGED, ReasonCode.UNREADABLE):
        rows = [r for r in result.rows if r.why.code is code]
        for row in rows[:_MAX_UNREADABLE_TENSORS]:
            cure = row.why.cure or "record that run again, then compare"
            lines.append(f"■ {code}: {row_place(row)}: {row.why.detail}; {cure}")
        if len(rows) > _MAX_UNREADABLE_TENSORS:
            unnamed = len(rows) - _MAX_UNREADABLE_TENSORS
            lines.append(f"  and {unnamed} more; --csv has all with their reasons")
    for tensor in result.unmatched:
        if tensor.why.code is ReasonCode.DAMAGED:
            lines.append(
                f"■ damaged: {tensor.op} of the {tensor.side} has no counterpart, and its bytes do"
                " not match its checksum; copy the run again or record it again"
            )
    return lines
