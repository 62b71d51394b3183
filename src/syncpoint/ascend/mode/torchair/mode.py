"""The mode `torchair`: two dumps -> a report for each rank, and the comparison beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from syncpoint.ascend.matching.plan import PlanMatcher
from syncpoint.ascend.mode.missing_or_damaged_files import completed
from syncpoint.ascend.mode.op_warnings import warn_of_ops
from syncpoint.ascend.mode.outcome import Outcome
from syncpoint.ascend.mode.report_paths import unused_paths
from syncpoint.ascend.mode.torchair.open_dumps import Case, opened
from syncpoint.ascend.mode.torchair.options import Asked
from syncpoint.ascend.mode.torchair.report import batch_columns, write_csv, write_xlsx
from syncpoint.ascend.mode.torchair.report_rows import lines
from syncpoint.ascend.sheets import require_xlsx
from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.comparison.event_sinks import Progress, sink_for
from syncpoint.comparison.judge_rows import AUTO, Choice
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.events import FanOut


def compare_torchair(
    asked: Asked, choice: Choice = AUTO, progress: Progress | None = None
) -> list[Outcome]:
    """Compare two dumps, rank by rank."""
    if asked.xlsx:
        require_xlsx("--xlsx")
    return [_compare(asked, case, choice, progress) for case in opened(asked)]


def _compare(asked: Asked, case: Case, choice: Choice, progress: Progress | None) -> Outcome:
    columns = batch_columns(asked, case)
    options = Options(
        choice=choice,
        introduced="off",
        threads=asked.threads,
        events=FanOut(columns, sink_for(progress, None)),
        matchers=[PlanMatcher(case.plan.plan)],
    )
    result = completed(compare_runs(case.target, case.reference, options), case.plan.plan)
    result = replace(result, warnings=(*result.warnings, *case.warnings, *_warnings(case)))
    made = list(lines(case, result, columns.found))
    rank = f"_rank{case.rank}" if case.rank >= 0 else ""
    report, comparison, sheet = unused_paths(
        asked.output, f"msprobe_cmp_report{rank}", datetime.now(UTC), (".csv", ".cmp", ".xlsx")
    )
    write_csv(report, asked, made)
    save(result, comparison)
    others: list[Path] = []
    if asked.xlsx:
        write_xlsx(sheet, asked, made)
        others.append(sheet)
    return Outcome(result, report, comparison, tuple(others))


def _warnings(case: Case) -> Iterator[str]:
    """What a reader of the verdict must know: it is about what could be compared."""
    words = {
        ReasonCode.UNREADABLE: "cannot be used",
        ReasonCode.NO_COUNTERPART: "are not in the golden dump",
        ReasonCode.NO_TARGET_VALUE: "of the golden dump are not compared",
    }
    for reason, what in words.items():
        entries = [e for e in case.plan.entries if e.reason is reason]
        names = [name for e in entries for name in e.target_names or e.reference_names]
        yield from warn_of_ops(what, names)
