"""The mode `offline_data`: two folders of dumps -> the report, and the comparison beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.comparison.judging import AUTO, Choice
from syncpoint.comparison.measuring import Progress
from syncpoint.comparison.result import Result
from syncpoint.comparison.storage import save
from syncpoint.dumps.ascend.rule_file import RuleFile
from syncpoint.matching.ascend.plan import PlanMatcher
from syncpoint.metrics.verdict import Reason
from syncpoint.offline.addresses import overwritten
from syncpoint.offline.advisor import write_advice
from syncpoint.offline.asked import Asked
from syncpoint.offline.completing import completed
from syncpoint.offline.detail import write_detail
from syncpoint.offline.lines import ColumnsBeside, lines
from syncpoint.offline.opening import Case, opened
from syncpoint.offline.repeats import repeats
from syncpoint.offline.report import write_report
from syncpoint.run.outputs import write_errors

_SHOWN = 5
"""Names in a warning before it says how many more."""


@dataclass(frozen=True)
class Outcome:
    """What one comparison of the mode left behind."""

    result: Result
    report: Path
    comparison: Path
    others: tuple[Path, ...] = ()
    """The advisor's summary and the files of a single op."""

    def exit_code(self, fail_on: str = "large", min_coverage: float | None = None) -> int:
        """As for every comparison."""
        return self.result.exit_code(fail_on, min_coverage)


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
    beside = ColumnsBeside(asked, case)
    same = repeats(case.stored[0], case.plan)
    result = compare_runs(
        case.target,
        case.reference,
        Options(
            choice,
            introduced="off",
            threads=asked.threads,
            progress=progress,
            beside=beside,
            same=same,
            matchers=[PlanMatcher(case.plan)],
        ),
    )
    faults = overwritten(case.target, case.stored[0])
    result = completed(result, case.plan, counts_absent=not case.by_name)
    said = dict.fromkeys([*result.warnings, *_warnings(case), *faults.values()])
    result = replace(result, warnings=tuple(said))
    report, comparison = _names(asked.output, prefix)
    beside.complete(result, same)
    made = lines(case, result, beside.found, faults)
    done = list(write_report(report, made, case.devices, asked.overflow))
    save(result, comparison)
    others: list[Path] = []
    if asked.advisor:
        others.append(write_advice(done, report.with_name(f"{prefix}advisor_summary.txt")))
    if asked.op is not None:
        others += write_detail(asked, case, report.with_suffix(""))
    return Outcome(result, report, comparison, tuple(others))


def _names(folder: Path, prefix: str) -> tuple[Path, Path]:
    """Names for the report and the comparison that nothing has yet."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now()
    while True:
        stem = f"{prefix}result_{now:%Y%m%d%H%M%S}"
        report, comparison = folder / f"{stem}.csv", folder / f"{stem}.cmp"
        if not report.exists() and not comparison.exists():
            return report, comparison
        now += timedelta(seconds=1)


def _warnings(case: Case) -> Iterator[str]:
    """What a reader of the verdict must know: it is about what could be compared."""
    yield from case.plan.notes
    words = {
        Reason.UNREADABLE: "cannot be used, or their golden files",
        Reason.NO_TARGET_VALUE: "are not in the dump",
        Reason.AMBIGUOUS: "cannot be told from others of the same file name",
    }
    for reason, what in words.items():
        entries = [e for e in case.plan.entries if e.reason is reason and e.counted]
        yield from _listed(what, [e.op for e in entries])
    missing = [e.golden for e in case.plan.entries if e.reason is Reason.NO_COUNTERPART]
    yield from _listed("of the original model have no golden file", missing)


def _listed(what: str, given: list[str]) -> Iterator[str]:
    names = list(dict.fromkeys(name for name in given if name))
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"{len(names)} ops {what}: {', '.join(names[:_SHOWN])}{more}"
