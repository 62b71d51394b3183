"""The mode `torchair`: two dumps -> a report for each rank, and the comparison beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from syncpoint.comparison.engine import Options
from syncpoint.comparison.engine import compare as compare_runs
from syncpoint.comparison.judging import AUTO, Choice
from syncpoint.comparison.measuring import Progress
from syncpoint.comparison.storage import save
from syncpoint.dumps.sheets import need_xlsx
from syncpoint.matching.ascend.plan import PlanMatcher
from syncpoint.metrics.verdict import Reason
from syncpoint.offline.completing import completed
from syncpoint.offline.mode import Outcome
from syncpoint.offline.torchair.asked import Asked
from syncpoint.offline.torchair.lines import columns_beside, lines
from syncpoint.offline.torchair.opening import Case, opened
from syncpoint.offline.torchair.writing import write_csv, write_xlsx
from syncpoint.run.outputs import write_errors

_SHOWN = 5
"""Names in a warning before it says how many more."""


def compare_torchair(
    asked: Asked, choice: Choice = AUTO, progress: Progress | None = None
) -> list[Outcome]:
    """Compare two dumps, rank by rank."""
    if asked.xlsx:
        need_xlsx("--xlsx")
    return [_compare(asked, case, choice, progress) for case in opened(asked)]


def _compare(asked: Asked, case: Case, choice: Choice, progress: Progress | None) -> Outcome:
    beside = columns_beside(asked, case)
    options = Options(
        choice,
        introduced="off",
        threads=asked.threads,
        progress=progress,
        beside=beside,
        matchers=[PlanMatcher(case.plan.plan)],
    )
    result = completed(compare_runs(case.target, case.reference, options), case.plan.plan)
    result = replace(result, warnings=(*result.warnings, *case.warnings, *_warnings(case)))
    made = list(lines(case, result, beside.found))
    report, comparison = _names(asked.output, case.rank)
    write_csv(report, asked, made)
    save(result, comparison)
    others: list[Path] = []
    if asked.xlsx:
        others.append(report.with_suffix(".xlsx"))
        write_xlsx(others[0], asked, made)
    return Outcome(result, report, comparison, tuple(others))


def _names(folder: Path, rank: int) -> tuple[Path, Path]:
    """Names for the report and the comparison that nothing has yet."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    of = f"_rank{rank}" if rank >= 0 else ""
    while True:
        stem = f"msprobe_cmp_report{of}_{now:%Y%m%d%H%M%S}"
        names = [folder / f"{stem}.{suffix}" for suffix in ("csv", "cmp", "xlsx")]
        if not any(name.exists() for name in names):
            return names[0], names[1]
        now += timedelta(seconds=1)


def _warnings(case: Case) -> Iterator[str]:
    """What a reader of the verdict must know: it is about what could be compared."""
    words = {
        Reason.UNREADABLE: "cannot be used",
        Reason.NO_COUNTERPART: "are not in the golden dump",
        Reason.NO_TARGET_VALUE: "of the golden dump are not compared",
    }
    for reason, what in words.items():
        found = [e for e in case.plan.entries if e.reason is reason]
        names = list(
            dict.fromkeys(name for e in found for name in e.target_names or e.reference_names)
        )
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            yield f"{len(names)} ops {what}: {', '.join(names[:_SHOWN])}{more}"
