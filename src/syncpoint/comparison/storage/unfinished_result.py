"""Build the result of an unfinished comparison from its progress log; rows that were not measured
stay open."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from syncpoint.comparison.checksum_status import count_verified
from syncpoint.comparison.first_non_finite import mark_first_non_finite
from syncpoint.comparison.judge_rows import judge_rows
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.comparison.run_facts import op_inputs, run_facts
from syncpoint.comparison.same_inputs import mark_same_input
from syncpoint.comparison.sides import Sides
from syncpoint.comparison.unmatched import decide_accounts, list_unmatched
from syncpoint.comparison.warning_texts import run_warnings
from syncpoint.matching.protocol import Matching
from syncpoint.metrics.verdict import Reason, ReasonCode

if TYPE_CHECKING:
    from syncpoint.comparison.engine import Options


def build_unfinished_result(
    sides: Sides, matching: Matching, rows: list[Row], options: Options
) -> Result:
    """The result of an unfinished comparison, from its log; rows that are not in it stay open."""
    log = options.log
    assert log is not None
    unfinished = Reason(ReasonCode.UNFINISHED)
    measured_rows = [
        log.measured_row(row) or replace(row, unmeasured=row.unmeasured or unfinished)
        for row in rows
    ]
    open_count = sum(row.unmeasured == unfinished for row in measured_rows)
    measured_rows = mark_first_non_finite(
        sides, [mark_same_input(sides, row) for row in measured_rows]
    )
    if open_count:
        # The inputs of an op may be among the rows that are not measured yet.
        measured_rows = [replace(row, first_non_finite=False) for row in measured_rows]
    if options.introduced != "off":
        measured_rows = [
            log.introduced_row(row) or replace(row, unknown=unfinished) for row in measured_rows
        ]
    measured_rows.sort(key=lambda row: (row.target.order < 0, row.target.order))
    measured_rows = judge_rows(measured_rows, options.choice)
    unmatched = matching.unmatched()
    accounts = decide_accounts(matching, unmatched, measured_rows)
    progress = (
        f"not complete: {len(measured_rows) - open_count} of {len(measured_rows)} sync points are"
        " measured; verdicts may change, and guilty ops are known only at the end"
    )
    return Result(
        target=run_facts(sides.target),
        reference=run_facts(sides.reference),
        rows=measured_rows,
        unmatched=list_unmatched(matching, unmatched, accounts),
        choice=options.choice,
        edges=op_inputs(sides.target),
        warnings=(progress, *run_warnings(sides)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        unkept=accounts.unkept,
        partial=accounts.partial,
        verified=count_verified(sides, measured_rows),
        masks=options.masks,
        unfinished=progress,
    )
