"""The command `syncpoint session`: serves a page in the browser on which to make comparisons and
see past ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo
from syncpoint.cli.parse import parse_bytes


def session(
    target: Annotated[
        str, typer.Argument(help="Target to fill in: a model, a run or a dump.")
    ] = "",
    reference: Annotated[
        str, typer.Argument(help="Reference to fill in: a model, a run or a dump.")
    ] = "",
    *,
    folder: Annotated[
        list[Path] | None,
        typer.Option(
            help="Folder whose files can be chosen (default: the current one); repeatable."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to save comparisons in.")
    ] = Path("comparisons"),
    resources: options.ResourceOptions,
    browser: options.BrowserOptions,
) -> None:
    """Compare models, runs and dumps in the browser, until Ctrl-C."""
    from syncpoint import api

    api.session(
        target,
        reference,
        folders=folder or [Path()],
        out=output,
        timeout=resources.timeout,
        max_bytes=parse_bytes(resources.memory),
        port=browser.port,
        browser=not browser.no_browser,
        say=echo,
    )
