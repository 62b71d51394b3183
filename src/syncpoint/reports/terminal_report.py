"""Print a comparison on a terminal: both runs, the table of rows (choice, cells, short types),
first divergence, verdict; and the text of `--quiet`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from syncpoint.comparison.measuring.digest_and_statistics_pairs import has_same_bytes
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row, worst_first_key
from syncpoint.foreign_text import make_visible
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.reports.checksum_text import unverified_lines, verified_line
from syncpoint.reports.console import Console, Text
from syncpoint.reports.diagnosis_report import cause_lines, print_lines
from syncpoint.reports.divergence_message import divergence_lines
from syncpoint.reports.error_split_text import error_split_lines
from syncpoint.reports.number_and_name_format import (
    metric_text,
    more_text,
    ratio_text,
    run_text,
    short_source,
)
from syncpoint.reports.terminal_layout import (
    Column,
    build_table,
    drop_column,
    fit_columns,
    print_line,
    shorten_column,
)
from syncpoint.reports.verdict_line import headline, row_text
from syncpoint.reports.warning_lines import inputs_lines, unreadable_lines
from syncpoint.run.dims import format_shape
from syncpoint.run.model import Role

COLOURS = {
    Verdict.CLOSE: "green",
    Verdict.MODERATE: "yellow",
    Verdict.LARGE: "bold red",
    Verdict.INHERITED: "red",
    Verdict.AMPLIFIED: "bold red",
    Verdict.NONE: "dim",
}
_DEFAULT_ROWS = 24
_MAX_DETAILED_ROWS = 5
"""Maximum number of rows with a detailed message."""
_LABEL_WIDTH = len("reference  ")
_MIN_NAME_WIDTH, _MIN_VERDICT_WIDTH, _MIN_TYPE_WIDTH = 24, 20, 16
"""Minimum column widths on narrow terminals."""


def print_comparison(
    result: Result,
    console: Console,
    *,
    metric: str = "psnr",
    sort: str = "similarity",
    rows: int = _DEFAULT_ROWS,
) -> None:
    """Print the report of a comparison."""
    for line in inputs_lines(result):
        print_line(Text(line, style="bold red"), console, hang=2)
    print_line(Text(f"target     {run_text(result.target)}"), console, hang=_LABEL_WIDTH)
    print_line(Text(f"reference  {run_text(result.reference)}"), console, hang=_LABEL_WIDTH)
    verified = verified_line(result)
    if verified:
        print_line(Text(f"verified   {verified}"), console, hang=_LABEL_WIDTH)
    for warning in [*unverified_lines(result), *result.warnings, *_run_notes(result)]:
        print_line(Text(f"note       {warning}", style="yellow"), console, hang=_LABEL_WIDTH)
    if result.rows:
        console.print()
        columns = _columns(result, metric, sort, rows)
        if console.is_terminal:
            columns = fit_columns(columns, console.width, _NARROWING_STEPS)
        console.print(build_table(columns, one_line=console.is_terminal))
    hidden = len(result.rows) - rows
    if rows and hidden > 0:
        more = f"… {more_text(hidden, 'row')}; --rows 0 shows all, --csv writes all"
        console.print(Text(more, "dim"))
    for line in _unmatched_lines(result):
        print_line(Text(line, style="dim"), console, hang=2)
    unreadable = unreadable_lines(result)
    if unreadable:
        console.print()
    for line in unreadable:
        print_line(Text(line, style=COLOURS[Verdict.LARGE]), console, hang=2)
    for text in _detail_lines(result):
        print_line(text, console, hang=2)
    print_lines(cause_lines(result), console)
    if result.through is not None:
        console.print()
        for line in error_split_lines(result.through):
            print_line(Text(line), console, hang=2)
    console.print()
    print_line(Text(headline(result), style=COLOURS[result.verdict]), console, hang=2)


def _run_notes(result: Result) -> Iterator[str]:
    for side, about in (("target", result.target), ("reference", result.reference)):
        for note in about["notes"]:
            yield f"{side}: {note}"


def _select_rows(result: Result, metric: str, sort: str, count: int) -> list[Row]:
    """The `count` worst rows, or all for 0, in the order of `--sort`."""
    first_divergence = {row.target.key for row in result.first_divergence}

    def sort_key(row: Row) -> tuple[Any, ...]:
        """Worst first; within a verdict, ops of the first divergence lead.

        Rows downstream of them may have larger errors, such as small gradients.
        """
        rank, *further_keys = worst_first_key(row, metric)
        return (rank, row.target.key not in first_divergence, *further_keys)

    chosen = sorted(result.rows, key=sort_key)
    if count:
        chosen = chosen[:count]
    if sort == "operation":
        chosen.sort(key=lambda row: (row.target.order < 0, row.target.order))
    return chosen


def _columns(result: Result, metric: str, sort: str, count: int) -> list[Column]:
    chosen = _select_rows(result, metric, sort, count)
    verdicts = [Text(f"{r.verdict.glyph} {row_text(r)}", COLOURS[r.verdict]) for r in chosen]
    columns = [
        Column("", verdicts, min_width=_MIN_VERDICT_WIDTH),
        _name_column("target", (r.target.label for r in chosen)),
    ]
    if any(row.target.label != row.reference.label for row in chosen):
        columns.append(_name_column("reference", (r.reference.label for r in chosen), "dim"))
    if any(row.basis not in ("", "values") for row in result.rows):
        columns.append(Column("basis", [Text(r.basis, "dim") for r in chosen]))
    scores = [Text(_metric_cell(r, metric), COLOURS[r.verdict]) for r in chosen]
    columns.append(Column(f"{metric} {CATALOGUE[metric].unit}".strip(), scores, right=True))
    if any(row.introduced for row in result.rows):
        columns.append(Column("introduced", [_introduced_cell(r) for r in chosen], right=True))
    shapes = [f"{format_shape(r.target.shape)} {r.target.dtype}" for r in chosen]
    return [
        *columns,
        Column("type", [Text(_type_text(r), "dim") for r in chosen]),
        Column("shape", [Text(shape, "dim") for shape in shapes]),
        _name_column("module", (r.target.module for r in chosen)),
        _name_column("source", (short_source(r.target.source) for r in chosen), "dim"),
    ]


def _name_column(header: str, names: Iterable[str], style: str = "") -> Column:
    return Column(header, [Text(n, style) for n in names], min_width=_MIN_NAME_WIDTH, cut="start")


def _introduced_cell(row: Row) -> Text:
    introduced = row.introduced
    return (
        Text(ratio_text(introduced.ratio), COLOURS[row.introduced_verdict])
        if introduced
        else Text("")
    )


def _type_text(row: Row) -> str:
    return row.target.type if _is_op(row) else row.target.key.role.value


def _short_type(kind: str) -> str:
    """`com.microsoft.nchwc.Conv` -> `Conv`, `aten.add.Tensor` -> `add`."""
    parts = kind.split(".")
    if parts[0] == "aten" or parts[-1] == "default":
        return parts[1] if parts[0] == "aten" and len(parts) > 1 else ".".join(parts[-2:-1]) or kind
    return parts[-1] or kind


_NARROWING_STEPS = (
    shorten_column("type", _short_type, _MIN_TYPE_WIDTH),
    drop_column("shape"),
    drop_column("module"),
    drop_column("type"),
    drop_column("basis"),
    drop_column("reference"),
    drop_column("introduced"),
)
"""Steps for narrow terminals, the least important column first."""


def _is_op(row: Row) -> bool:
    return row.target.key.role in (Role.OUTPUT, Role.INPUT)


def _metric_cell(row: Row, metric: str) -> str:
    if row.numbers is None:
        return "–"
    if has_same_bytes(row):
        return "equal"
    if row.basis == "statistics":
        bound = row.numbers.get(f"{metric}_bound")
        return "–" if bound is None else f"≤{metric_text(metric, bound)}"
    if row.basis == "digest":
        return "differ"
    return metric_text(metric, row.numbers.get(metric))


def _unmatched_lines(result: Result) -> Iterator[str]:
    for side in ("target", "reference"):
        unmatched = [
            u for u in result.unmatched if u.side == side and u.why.code is not ReasonCode.EXCLUDED
        ]
        unmatched = [u for u in unmatched if u.counted]
        if not unmatched:
            continue
        names = ", ".join(
            f"{u.op}{f' ({u.reason})' if u.why.code is not ReasonCode.NO_COUNTERPART else ''}"
            for u in unmatched[:6]
        )
        more = f" and {len(unmatched) - 6} more" if len(unmatched) > 6 else ""
        tensors = "tensor" if len(unmatched) == 1 else "tensors"
        missing = getattr(result.coverage, f"{side}_missing")
        visibility = "" if missing else " (errors in them would show in compared tensors)"
        yield f"no counterpart for {len(unmatched)} {side} {tensors}{visibility}: {names}{more}"


def _detail_lines(result: Result) -> Iterator[Text]:
    """Messages about the first divergence, guilty ops and model outputs."""
    rows: list[Row] = list(result.first_divergence[:3])
    rows += [r for r in result.rows if r.first_non_finite and r not in rows][:1]
    # Ops that introduce a large error, wherever they are.
    rows += [r for r in result.rows if _introduces_large_error(r) and r not in rows][
        : _MAX_DETAILED_ROWS - len(rows)
    ]
    rows += [r for r in result.outputs if r.verdict.severity and r not in rows][:3]
    if not rows:
        rows = [r for r in result.worst(1) if r.verdict.severity]
    for row in rows:
        yield Text()
        lines = divergence_lines(row, result)
        lead = "output " if row.output else ""
        yield Text(lead + lines[0], style=COLOURS[row.verdict])
        for line in lines[1:]:
            yield Text(line)


def _introduces_large_error(row: Row) -> bool:
    return row.introduced_verdict is Verdict.LARGE and row.target.key.role is Role.OUTPUT


def as_text(result: Result, **options: Any) -> str:
    """The report as plain text."""
    console = Console(io.StringIO(), width=160)
    print_comparison(result, console, **options)
    out = console.file
    return out.getvalue() if isinstance(out, io.StringIO) else ""


def quiet_lines(result: Result) -> list[str]:
    """The lines of `--quiet`: warnings that qualify any verdict, then the verdict line."""
    return [
        *inputs_lines(result),
        *unreadable_lines(result),
        *unverified_lines(result),
        headline(result),
    ]


def quiet_text(result: Result) -> str:
    """What `--quiet` prints, as one text."""
    return "\n".join(map(make_visible, quiet_lines(result)))
