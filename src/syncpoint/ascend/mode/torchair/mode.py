"""The steps of the mode `torchair`: compare two TorchAir dumps rank by rank, write report and
comparison, warn of ops that are not compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from syncpoint.ascend.matching.plan import PlanMatcher
from syncpoint.ascend.mode.complete_result import complete_result, warn_of_ops
from syncpoint.ascend.mode.outcome import Outcome, unused_paths
from syncpoint.ascend.mode.torchair.open_and_plan import TorchairCase, open_cases
from syncpoint.ascend.mode.torchair.options import TorchairFlags
from syncpoint.ascend.mode.torchair.report import batch_columns, lines, write_csv, write_xlsx
from syncpoint.ascend.sheets import require_xlsx
from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.comparison.events import Progress, sink_for
from syncpoint.comparison.judge_rows import AUTO, Choice
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.events import FanOut


def compare_torchair(
    flags: TorchairFlags, choice: Choice = AUTO, progress: Progress | None = None
) -> list[Outcome]:
    """Compare two dumps, rank by rank."""
    if flags.xlsx:
        require_xlsx("--xlsx")
    return [_compare(flags, case, choice, progress) for case in open_cases(flags)]


def _compare(
    flags: TorchairFlags, case: TorchairCase, choice: Choice, progress: Progress | None
) -> Outcome:
    columns = batch_columns(flags, case)
    options = Options(
        choice=choice,
        introduced="off",
        threads=flags.threads,
        events=FanOut(columns, sink_for(progress, None)),
        matchers=[PlanMatcher(case.plan.plan)],
    )
    result = complete_result(compare_runs(case.target, case.reference, options), case.plan.plan)
    result = replace(result, warnings=(*result.warnings, *case.warnings, *_warnings(case)))
    report_lines = list(lines(case, result, columns.columns_by_tensor))
    rank = f"_rank{case.rank}" if case.rank >= 0 else ""
    report, comparison, sheet = unused_paths(
        flags.output, f"msprobe_cmp_report{rank}", datetime.now(UTC), (".csv", ".cmp", ".xlsx")
    )
    write_csv(report, flags, report_lines)
    save(result, comparison)
    other_files: list[Path] = []
    if flags.xlsx:
        write_xlsx(sheet, flags, report_lines)
        other_files.append(sheet)
    return Outcome(result, report, comparison, tuple(other_files))


def _warnings(case: TorchairCase) -> Iterator[str]:
    """Warnings on ops that are not compared: the verdict does not cover them."""
    statements = {
        ReasonCode.UNREADABLE: "cannot be used",
        ReasonCode.NO_COUNTERPART: "are not in the golden dump",
        ReasonCode.NO_TARGET_VALUE: "of the golden dump are not compared",
    }
    for reason, statement in statements.items():
        entries = [entry for entry in case.plan.entries if entry.reason is reason]
        names = [name for entry in entries for name in entry.target_names or entry.reference_names]
        yield from warn_of_ops(statement, names)
