"""The mode `offline_data`: two folders of dumps -> the report, and the comparison beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from syncpoint.ascend.dumps.rule_file import RuleFile
from syncpoint.ascend.matching.plan import PlanMatcher
from syncpoint.ascend.mode.missing_or_damaged_files import completed
from syncpoint.ascend.mode.offline_data.advisor import write_advice
from syncpoint.ascend.mode.offline_data.memory_reuse import overwritten
from syncpoint.ascend.mode.offline_data.op_detail import write_detail
from syncpoint.ascend.mode.offline_data.open_dumps import Case, opened
from syncpoint.ascend.mode.offline_data.options import Asked
from syncpoint.ascend.mode.offline_data.repeated_tensors import repeats
from syncpoint.ascend.mode.offline_data.report import write_report
from syncpoint.ascend.mode.offline_data.report_rows import DeviceColumns, lines
from syncpoint.ascend.mode.op_warnings import warn_of_ops
from syncpoint.ascend.mode.outcome import Outcome
from syncpoint.ascend.mode.report_paths import unused_paths
from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.comparison.event_sinks import Progress, sink_for
from syncpoint.comparison.judge_rows import AUTO, Choice
from syncpoint.comparison.storage.comparison_folder import save
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.events import FanOut


def compare_offline(
    asked: Asked,
    choice: Choice = AUTO,
    progress: Progress | None = None,
    prefix: str = "",
    fusion: RuleFile | None = None,
) -> Outcome:
    """Compare two folders of dumps; `prefix` goes before the names of what is written, `fusion`
    is the rule file where it has been read."""
    case = opened(asked, fusion)
    columns = DeviceColumns(asked, case)
    same = repeats(case.stored[0], case.plan)
    result = compare_runs(
        case.target,
        case.reference,
        Options(
            choice=choice,
            introduced="off",
            threads=asked.threads,
            events=FanOut(columns, sink_for(progress, None)),
            same=same,
            matchers=[PlanMatcher(case.plan)],
        ),
    )
    faults = overwritten(case.target, case.stored[0])
    result = completed(result, case.plan, counts_absent=not case.by_name)
    said = dict.fromkeys([*result.warnings, *_warnings(case), *faults.values()])
    result = replace(result, warnings=tuple(said))
    stem = f"{prefix}result"
    report, comparison = unused_paths(asked.output, stem, datetime.now(), (".csv", ".cmp"))
    columns.complete(result, same)
    made = lines(case, result, columns.found, faults)
    done = list(write_report(report, made, case.devices, asked.overflow))
    save(result, comparison)
    others: list[Path] = []
    if asked.advisor:
        others.append(write_advice(done, report.with_name(f"{prefix}advisor_summary.txt")))
    if asked.op is not None:
        others += write_detail(asked, case, report.with_suffix(""))
    return Outcome(result, report, comparison, tuple(others))


def _warnings(case: Case) -> Iterator[str]:
    """What a reader of the verdict must know: it is about what could be compared."""
    yield from case.plan.notes
    words = {
        ReasonCode.UNREADABLE: "cannot be used, or their golden files",
        ReasonCode.NO_TARGET_VALUE: "are not in the dump",
        ReasonCode.AMBIGUOUS: "cannot be told from others of the same file name",
    }
    for reason, what in words.items():
        entries = [e for e in case.plan.entries if e.reason is reason and e.counted]
        yield from warn_of_ops(what, [e.op for e in entries])
    missing = [e.golden for e in case.plan.entries if e.reason is ReasonCode.NO_COUNTERPART]
    yield from warn_of_ops("of the original model have no golden file", missing)
