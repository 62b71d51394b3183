"""The message of a failed `assert_parity`: the verdict, the first divergence, the outputs that
differ."""

from __future__ import annotations

from syncpoint.comparison.result import Result
from syncpoint.errors import EXIT_UNCOVERED
from syncpoint.foreign_text import make_visible
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.checksum_text import unverified_lines
from syncpoint.reports.coverage_text import uncovered_text
from syncpoint.reports.divergence_message import divergence_lines
from syncpoint.reports.verdict_line import headline
from syncpoint.reports.warning_lines import inputs_lines


def assertion_text(result: Result, fail_on: str = "large") -> str:
    """The message of a failed assertion."""
    lines = [*inputs_lines(result), *unverified_lines(result), headline(result)]
    if result.exit_code(fail_on) == EXIT_UNCOVERED:
        lines.append(uncovered_text(result))
    divergent_rows = result.first_divergence or [
        row for row in result.worst(3) if row.verdict.severity or row.verdict is Verdict.NONE
    ]
    for row in divergent_rows[:3]:
        lines += divergence_lines(row, result)
    for row in result.outputs:
        if row.verdict.severity and row not in divergent_rows:
            lines += divergence_lines(row, result)
    return "\n".join(map(make_visible, lines))
