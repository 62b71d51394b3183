"""The comparison on a terminal: who against whom, where they part, the table, the verdict."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from syncpoint.comparison.result import Result, badness, has_same_bytes
from syncpoint.comparison.rows import Row
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.verdict import Reason, Verdict
from syncpoint.reports.diagnosis_report import causes, print_lines
from syncpoint.reports.message import (
    divergence,
    headline,
    inputs_lines,
    is_output,
    row_text,
)
from syncpoint.reports.numbers import metric_text, ratio_text, run_text, shape_text, short_source
from syncpoint.run.model import Role

COLOURS = {
    Verdict.CLOSE: "green",
    Verdict.MODERATE: "yellow",
    Verdict.LARGE: "bold red",
    Verdict.INHERITED: "red",
    Verdict.AMPLIFIED: "bold red",
    Verdict.NONE: "dim",
}
_SHOWN = 24
_MOST = 5
"""Rows that are told in words."""


def print_comparison(
    result: Result,
    console: Console,
    *,
    metric: str = "psnr",
    sort: str = "similarity",
    rows: int = _SHOWN,
) -> None:
    """Everything a person needs to see first."""
    for line in inputs_lines(result):
        console.print(Text(line, style="bold red"))
    console.print(Text(f"target     {run_text(result.target)}"), soft_wrap=True)
    console.print(Text(f"reference  {run_text(result.reference)}"), soft_wrap=True)
    for warning in [*result.warnings, *_run_notes(result)]:
        console.print(Text(f"note       {warning}", style="yellow"), soft_wrap=True)
    if result.rows:
        console.print()
        console.print(_table(result, metric, sort, rows))
    hidden = len(result.rows) - rows
    if rows and hidden > 0:
        console.print(Text(f"… {hidden} more rows; --rows 0 shows all, --csv writes all", "dim"))
    for line in _unmatched_lines(result):
        console.print(Text(line, style="dim"), soft_wrap=True)
    for text in _what_matters(result):
        console.print(text, soft_wrap=True)
    print_lines(causes(result), console)
    if result.through is not None:
        console.print()
        for line in result.through.lines():
            console.print(Text(line), soft_wrap=True)
    console.print()
    console.print(Text(headline(result), style=COLOURS[result.verdict]), soft_wrap=True)


def _run_notes(result: Result) -> Iterator[str]:
    for side, about in (("target", result.target), ("reference", result.reference)):
        for note in about["notes"]:
            yield f"{side}: {note}"


def _table(result: Result, metric: str, sort: str, count: int) -> Table:
    parting = {row.target.key for row in result.first_divergence}

    def place(row: Row) -> tuple[Any, ...]:
        """The worst first; among those of one verdict, the ops where the runs part lead: what
        they damaged may be further off than they are, as small gradients are."""
        rank, *others = badness(row, metric)
        return (rank, row.target.key not in parting, *others)

    chosen = sorted(result.rows, key=place)
    if count:
        chosen = chosen[:count]
    if sort == "operation":
        chosen.sort(key=lambda row: (row.target.order < 0, row.target.order))
    known = any(row.introduced for row in result.rows)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    table.add_column("")
    table.add_column("target", overflow="fold")
    if any(row.target.label != row.reference.label for row in chosen):
        table.add_column("reference", overflow="fold")
    if any(row.basis not in ("", "values") for row in result.rows):
        table.add_column("basis", no_wrap=True)
    unit = CATALOGUE[metric].unit
    table.add_column(f"{metric} {unit}".strip(), justify="right", no_wrap=True)
    if known:
        table.add_column("introduced", justify="right", no_wrap=True)
    table.add_column("type", overflow="ellipsis", no_wrap=True)
    table.add_column("shape", no_wrap=True)
    table.add_column("module", overflow="fold")
    table.add_column("source", overflow="fold")
    columns = [str(column.header) for column in table.columns]
    for row in chosen:
        table.add_row(*_cells(row, metric, columns))
    return table


def _cells(row: Row, metric: str, columns: list[str]) -> list[Text]:
    colour = COLOURS[row.verdict]
    cells = [Text(f"{row.verdict.glyph} {row_text(row)}", style=colour), Text(row.target.label)]
    if "reference" in columns:
        cells.append(Text(row.reference.label, style="dim"))
    if "basis" in columns:
        cells.append(Text(row.basis, style="dim"))
    cells.append(Text(_score(row, metric), style=colour))
    known = "introduced" in columns
    if known:
        made = row.introduced
        style = COLOURS[row.introduced_verdict] if made else "dim"
        cells.append(Text(ratio_text(made.ratio) if made else "", style=style))
    kind = row.target.key.role if not _is_op(row) else row.target.type
    cells += [
        Text(kind, style="dim"),
        Text(f"{shape_text(row.target.shape)} {row.target.dtype}", style="dim"),
        Text(row.target.module),
        Text(short_source(row.target.source), style="dim"),
    ]
    return cells


def _is_op(row: Row) -> bool:
    return row.target.key.role in (Role.OUTPUT, Role.INPUT)


def _score(row: Row, metric: str) -> str:
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
        left = [u for u in result.unmatched if u.side == side and u.reason != Reason.EXCLUDED]
        left = [u for u in left if u.counted]
        if not left:
            continue
        names = ", ".join(
            f"{u.op}{f' ({u.reason})' if u.reason != Reason.NO_COUNTERPART else ''}"
            for u in left[:6]
        )
        more = f" and {len(left) - 6} more" if len(left) > 6 else ""
        yield f"no counterpart for {len(left)} {side} tensors: {names}{more}"


def _what_matters(result: Result) -> Iterator[Text]:
    """Where the runs part, then what became of the outputs."""
    shown: list[Row] = list(result.first_divergence[:3])
    shown += [r for r in result.rows if r.first_non_finite and r not in shown][:1]
    # Guilty on its own account, wherever it lies.
    shown += [r for r in result.rows if _makes_much(r) and r not in shown][: _MOST - len(shown)]
    shown += [r for r in result.outputs if r.verdict.severity and r not in shown][:3]
    if not shown:
        shown = [r for r in result.worst(1) if r.verdict.severity]
    for row in shown:
        yield Text()
        lines = divergence(row, result)
        lead = "output " if is_output(row) else ""
        yield Text(lead + lines[0], style=COLOURS[row.verdict])
        for line in lines[1:]:
            yield Text(line)


def _makes_much(row: Row) -> bool:
    return row.introduced_verdict is Verdict.LARGE and row.target.key.role is Role.OUTPUT


def as_text(result: Result, **options: Any) -> str:
    """The same as plain text."""
    console = Console(file=io.StringIO(), width=160, color_system=None, highlight=False)
    print_comparison(result, console, **options)
    out = console.file
    return out.getvalue() if isinstance(out, io.StringIO) else ""
