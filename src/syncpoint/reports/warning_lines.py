"""Lines to print before any verdict: different inputs, unreadable tensors, unverified files."""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.reports.divergence_message import row_place

_MAX_UNREADABLE_TENSORS = 3
"""Tensors that cannot be read and are named."""


def inputs_lines(result: Result) -> list[str]:
    """What to say first of all when the two runs were not given the same."""
    rows = result.inputs_differ
    if not rows:
        return []
    names = ", ".join(row.target.label for row in rows)
    return [f"■ the two runs were given different inputs: {names}; nothing below means much"]


def unreadable_lines(result: Result) -> list[str]:
    """Tensors that were recorded and are damaged or can no longer be read: the whole is not close
    for them, and nothing else says so."""
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
                f"■ damaged: the {tensor.side}'s {tensor.op} has no counterpart, and its bytes are"
                " not those that were recorded; copy the run again or record it again"
            )
    return lines


def unverified_lines(result: Result) -> list[str]:
    """One line where the files that the comparison was read from could not be verified."""
    return [f"this comparison is unverified: {result.unverified}"] if result.unverified else []
