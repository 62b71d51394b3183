"""The command `syncpoint reduce`: makes a run or a dump smaller, also while it is being written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli.output import echo


def reduce(
    source: Annotated[str, typer.Argument(metavar="RUN|DUMP", help="Run or dump to reduce.")],
    to: Annotated[
        str, typer.Option(help="What to keep of each tensor: statistics, digest or min-max.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder to write (default: NAME.statistics.run, or beside each file).",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option(help="Continue while the dump is being written, until Ctrl-C.")
    ] = False,
    until_idle: Annotated[
        float | None,
        typer.Option(help="With --watch: end after this many seconds without a new file."),
    ] = None,
    delete: Annotated[
        bool, typer.Option(help="Delete each file after its reduced form was verified.")
    ] = False,
) -> None:
    """Replace tensors by statistics, digests, or minimum and maximum."""
    from syncpoint import api, cli

    cli.after_interrupt = "repeat the command to continue"

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
