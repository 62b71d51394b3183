"""The steps of the mode `offline_data`: compare two folders of device dumps, write report and
comparison, warn of ops that are not compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from syncpoint.ascend.dumps.rule_file import RuleFile
from syncpoint.ascend.matching.plan import PlanMatcher
from syncpoint.ascend.mode.complete_result import complete_result, warn_of_ops
from syncpoint.ascend.mode.offline_data.advisor import write_advice
from syncpoint.ascend.mode.offline_data.memory_reuse import find_overwritten
from syncpoint.ascend.mode.offline_data.op_detail import write_op_detail
from syncpoint.ascend.mode.offline_data.open_and_plan import OfflineCase, open_case
from syncpoint.ascend.mode.offline_data.options import OfflineFlags
from syncpoint.ascend.mode.offline_data.repeated_tensors import find_repeated_tensors
from syncpoint.ascend.mode.offline_data.report import DeviceColumns, lines, write_report
from syncpoint.ascend.mode.outcome import Outcome, unused_paths
from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.comparison.events import Progress, sink_for
from syncpoint.comparison.judge_rows import AUTO, Choice
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.events import FanOut


def compare_offline(
    flags: OfflineFlags,
    choice: Choice = AUTO,
    progress: Progress | None = None,
    prefix: str = "",
    fusion: RuleFile | None = None,
) -> Outcome:
    """Compare two folders of dumps. `prefix` starts the names of the written files; `fusion` is the
    rule file if it is open already."""
    case = open_case(flags, fusion)
    columns = DeviceColumns(flags, case)
    repeated = find_repeated_tensors(case.stored[0], case.plan)
    result = compare_runs(
        case.target,
        case.reference,
        Options(
            choice=choice,
            introduced="off",
            threads=flags.threads,
            events=FanOut(columns, sink_for(progress, None)),
            same=repeated,
            matchers=[PlanMatcher(case.plan)],
        ),
    )
    overwritten = find_overwritten(case.target, case.stored[0])
    result = complete_result(result, case.plan, counts_missing=not case.by_name)
    warnings = dict.fromkeys([*result.warnings, *_warnings(case), *overwritten.values()])
    result = replace(result, warnings=tuple(warnings))
    stem = f"{prefix}result"
    report, comparison = unused_paths(flags.output, stem, datetime.now(), (".csv", ".cmp"))
    columns.add_repeated(result, repeated)
    report_lines = lines(case, result, columns.columns_by_tensor, overwritten)
    written = list(write_report(report, report_lines, case.devices, flags.overflow))
    save(result, comparison)
    other_files: list[Path] = []
    if flags.advisor:
        other_files.append(write_advice(written, report.with_name(f"{prefix}advisor_summary.txt")))
    if flags.op is not None:
        other_files += write_op_detail(flags, case, report.with_suffix(""))
    return Outcome(result, report, comparison, tuple(other_files))


def _warnings(case: OfflineCase) -> Iterator[str]:
    """Warnings on ops that are not compared: the verdict does not cover them."""
    yield from case.plan.notes
    statements = {
        ReasonCode.UNREADABLE: "cannot be used, or their golden files",
        ReasonCode.NO_TARGET_VALUE: "are not in the dump",
        ReasonCode.AMBIGUOUS: "cannot be told from others of the same file name",
    }
    for reason, statement in statements.items():
        names = [e.op for e in case.plan.entries if e.reason is reason and e.counted]
        yield from warn_of_ops(statement, names)
    missing = [e.golden_op for e in case.plan.entries if e.reason is ReasonCode.NO_COUNTERPART]
    yield from warn_of_ops("of the original model have no golden file", missing)
