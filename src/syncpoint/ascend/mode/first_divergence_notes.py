"""Notes at the ops where the two runs part first."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.run.model import OpKey, Role

FIRST = "where the two part first"


GIVEN = "what it was given is off already: the error came in before it, where nothing is compared"


def note_first_divergence(result: Result) -> Result:
    """Note the ops where the two runs part first, and whether their inputs are off already."""
    first = {row.target.key for row in result.first_divergence}
    given = {
        row.target.key.op
        for row in result.rows
        if row.target.key.role is Role.INPUT and row.verdict.severity
    }

    def noted(row: Row) -> Row:
        if row.target.key not in first:
            return row
        said = (FIRST, GIVEN) if row.target.key.op in given else (FIRST,)
        return replace(row, notes=(*row.notes, *said))

    said = [f"{row.target.label}: {GIVEN}" for row in result.first_divergence if _op(row) in given]
    return replace(
        result,
        rows=[noted(row) for row in result.rows],
        warnings=tuple(dict.fromkeys([*result.warnings, *said])),
    )


def _op(row: Row) -> OpKey:
    return row.target.key.op
