"""The command `syncpoint report`: shows a saved comparison again, also under other limits; measures
nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.show_comparison import exit_with_verdict, show_comparison


def report(
    comparison: Annotated[Path, typer.Argument(help="Saved comparison: NAME.cmp.")],
    *,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Judge again with this preset (default: the limits of the comparison).",
            rich_help_panel=options.VERDICT,
        ),
    ] = None,
    limits: options.Limits = None,
    exit_rule: options.ExitOptions,
    table: options.TableOptions,
    files: options.ReportFiles,
) -> None:
    """Show a saved comparison; nothing is measured again."""
    from syncpoint import api

    table.check()
    exit_rule.check()
    result = api.open_comparison(comparison)
    if preset is not None or limits is not None:
        result = result.judged_by(preset or "auto", limits)
    if exit_rule.min_coverage is not None:
        result = replace(result, min_coverage=exit_rule.min_coverage)
    show_comparison(result, table, files)
    exit_with_verdict(result, exit_rule.fail_on)
