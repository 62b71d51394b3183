"""`syncpoint report`: show a saved comparison again, also under other limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options


def report(
    comparison: Annotated[Path, typer.Argument(help="A saved comparison: NAME.cmp.")],
    metric: options.Metric = "psnr",
    preset: Annotated[
        str | None, typer.Option(help="Judge again under this preset, or auto.")
    ] = None,
    limits: options.Limits = None,
    fail_on: options.FailOn = "large",
    min_coverage: options.MinCoverage = None,
    csv: options.Csv = None,
    json: options.Json = None,
    html: options.Html = None,
    rows: options.Rows = 24,
    sort: options.Sort = "similarity",
    quiet: options.Quiet = False,
) -> None:
    """Show a saved comparison; nothing is measured again."""
    from syncpoint import api

    options.check(metric, sort, fail_on)
    found = api.open_comparison(comparison)
    if preset is not None or limits is not None:
        found = found.rejudged(api.choice(preset or "auto", limits))
    if min_coverage is not None:
        found = replace(found, min_coverage=min_coverage)
    options.show(
        found, metric=metric, sort=sort, rows=rows, quiet=quiet, csv=csv, json=json, html=html
    )
    options.finish(found, fail_on)
