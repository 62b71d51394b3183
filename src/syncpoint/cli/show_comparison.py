"""The common end of commands that show a comparison: write its report files, print it, explain its
exit code, and exit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from syncpoint.cli.options import ReportFiles, TableOptions
from syncpoint.cli.output import echo

if TYPE_CHECKING:
    from syncpoint.api import Comparison
    from syncpoint.comparison.result import Result


def show_comparison(
    comparison: Comparison, table: TableOptions, files: ReportFiles, saved: Path | None = None
) -> None:
    """Write the report files, then print.

    In this order, because a reader that closes the output early, such as `head`, must not prevent
    a file from being written.
    """
    from syncpoint.reports.console import Console
    from syncpoint.reports.terminal_report import print_comparison, quiet_lines

    written = [] if saved is None else [f"comparison {saved}"]
    if files.csv is not None:
        written.append(f"csv        {comparison.to_csv(files.csv)}")
    if files.json is not None:
        written.append(f"json       {comparison.to_json(files.json)}")
    if files.html is not None:
        written.append(f"html       {comparison.to_html(files.html)}")
    if table.quiet:
        for line in quiet_lines(comparison):
            echo(line)
    else:
        print_comparison(
            comparison, Console(), metric=table.metric, sort=table.sort, rows=table.rows
        )
    for line in written:
        echo(line)


def explain_exit_code(result: Result, fail_on: str) -> int:
    """Return the exit code of a comparison, and print why if too little was compared."""
    from syncpoint.errors import EXIT_UNCOVERED
    from syncpoint.reports.coverage_text import uncovered_text

    code = result.exit_code(fail_on)
    if code == EXIT_UNCOVERED:
        echo(f"syncpoint: {uncovered_text(result)}", err=True)
    return code


def exit_with_verdict(comparison: Comparison, fail_on: str) -> None:
    """Exit with the code of the comparison."""
    raise typer.Exit(explain_exit_code(comparison, fail_on))
