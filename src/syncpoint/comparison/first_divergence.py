"""Find the first divergence: the earliest ops, on parallel branches, with a large introduced error
or off although their inputs are close; not after damage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import OpKey, Part, Role

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result


def find_first_divergence(comparison: Result) -> list[Row]:
    """The rows where the two runs part; several only if they lie on parallel branches.

    With introduced error: the earliest ops whose introduced error is large. Without: the earliest
    ops whose total error is not close although all their inputs are. A state counts if a step
    begins or ends with a difference that no op is guilty of. An op whose recorded inputs differ
    already, in a run without edges, does not count if another op differs before it.
    """
    divergent_rows: dict[tuple[int, int], list[Row]] = {}
    ops_after_damage = _ops_after_damage(comparison)
    for row in sorted(comparison.rows, key=lambda r: r.target.order):
        if row.target.key.role in (Role.OUTPUT, Role.STATE):
            has_introduced = row.introduced is not None
            # Without introduced error, an op may have caused the difference of a final state.
            may_be_first = (
                has_introduced or row.target.key.role is Role.OUTPUT or row.target.key.index
            )
            is_divergent = (
                row.introduced_verdict is Verdict.LARGE if has_introduced else row.verdict.severity
            )
            if (is_divergent and may_be_first) or row.first_non_finite:
                part = row.target.key.part
                divergent_rows.setdefault((part.sample, part.rank), []).append(row)
    first_row_of_op: dict[OpKey, Row] = {}
    for rows in divergent_rows.values():
        # A step inherits errors from earlier steps only.
        earliest = min(row.target.key.part.step for row in rows)
        for row in _first_rows(comparison, [r for r in rows if r.target.key.part.step == earliest]):
            if row.introduced is None and row.target.key.op in ops_after_damage:
                continue  # either this op or the one with the damaged tensor is guilty
            first_row_of_op.setdefault(row.target.key.op, row)
    return list(first_row_of_op.values())


def _ops_after_damage(comparison: Result) -> set[OpKey]:
    """Target ops that read a damaged tensor, directly or through ops without a verdict."""
    damaged = {r.target.key.op for r in comparison.rows if r.why.code is ReasonCode.DAMAGED}
    if not damaged:
        return set()
    judged = {row.target.key.op for row in comparison.rows if row.verdict is not Verdict.NONE}
    affected: set[OpKey] = set()
    for op, inputs in comparison.edges.items():  # in execution order
        if any(i in damaged or (i in affected and i not in judged) for i in inputs):
            affected.add(op)
    return affected


def _first_rows(comparison: Result, rows: list[Row]) -> list[Row]:
    """The rows, all of one execution, that read nothing from the other rows."""
    final_states = [r for r in rows if r.target.key.role is Role.STATE and not r.target.key.index]
    row_of_op: dict[OpKey, Row] = {}
    for row in rows:
        if row not in final_states:
            row_of_op.setdefault(row.target.key.op, row)
    is_downstream: dict[OpKey, bool] = {}
    for op, inputs in comparison.edges.items():
        is_downstream[op] = any(
            is_downstream.get(op_input, False) or op_input in row_of_op for op_input in inputs
        )
    first = [row for op, row in row_of_op.items() if not is_downstream.get(op, False)]
    ops_with_different_inputs = {
        (row.target.key.op, row.target.key.part)
        for row in comparison.rows
        if row.target.key.role is Role.INPUT and row.verdict.severity
    }
    first = [
        row
        for index, row in enumerate(first)
        if not index or not _may_have_inherited(row, ops_with_different_inputs)
    ]
    # A dump has no edges: only the recording order tells which op came first.
    return [*first, *final_states] if any(comparison.edges.values()) else first[:1]


def _may_have_inherited(row: Row, ops_with_different_inputs: set[tuple[OpKey, Part]]) -> bool:
    """Whether the inputs of an op differ already, so that its own error is not proven."""
    if row.introduced is not None or row.first_non_finite:
        return False
    return (row.target.key.op, row.target.key.part) in ops_with_different_inputs
