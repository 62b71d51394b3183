"""`syncpoint reduce`: a run or a dump made small, also while it is still being written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli.output import echo


def reduce(
    source: Annotated[str, typer.Argument(metavar="RUN|DUMP", help="A run or a dump.")],
    to: Annotated[str, typer.Option(help="statistics, digest or min-max.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to; NAME.statistics.run, or beside each file."),
    ] = None,
    watch: Annotated[
        bool, typer.Option(help="Go on while it is being written, until Ctrl-C.")
    ] = False,
    until_idle: Annotated[
        float | None, typer.Option(help="With --watch: end after so many seconds without news.")
    ] = None,
    delete: Annotated[
        bool, typer.Option(help="Remove each file once what was kept of it is verified.")
    ] = False,
) -> None:
    """Keep statistics, digests or the least and greatest values in place of tensors."""
    from syncpoint import api, cli

    cli.after_interrupt = "the same command goes on"

    def say(text: str) -> None:
        echo(text, err=True)

    done = api.reduce(
        source,
        to,
        output,
        watch=watch,
        delete=delete,
        until_idle=until_idle,
        progress=say if watch else None,
    )
    first, *remarks = done.lines()
    echo(first)
    for remark in remarks:
        echo(remark, err=True)
    raise typer.Exit(done.exit_code())
