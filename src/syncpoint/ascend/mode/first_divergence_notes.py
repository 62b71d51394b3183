"""Notes at the ops where the two runs diverge first."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.run.model import Role

FIRST = "where the two part first"
WRONG_INPUT = (
    "what it was given is off already: the error came in before it, where nothing is compared"
)


def note_first_divergence(result: Result) -> Result:
    """Note the ops where the two runs diverge first, and whether their inputs are wrong already."""
    first = {row.target.key for row in result.first_divergence}
    wrong_inputs = {
        row.target.key.op
        for row in result.rows
        if row.target.key.role is Role.INPUT and row.verdict.severity
    }

    def add_notes(row: Row) -> Row:
        if row.target.key not in first:
            return row
        notes = (FIRST, WRONG_INPUT) if row.target.key.op in wrong_inputs else (FIRST,)
        return replace(row, notes=(*row.notes, *notes))

    warnings = [
        f"{row.target.label}: {WRONG_INPUT}"
        for row in result.first_divergence
        if row.target.key.op in wrong_inputs
    ]
    return replace(
        result,
        rows=[add_notes(row) for row in result.rows],
        warnings=tuple(dict.fromkeys([*result.warnings, *warnings])),
    )
