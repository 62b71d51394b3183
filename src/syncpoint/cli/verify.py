"""The command `syncpoint verify`: recomputes the checksums of a run, a dump or a comparison, prints
the outcome, writes JSON, sets the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli.output import echo


def verify(
    path: Annotated[Path, typer.Argument(help="Run, dump or comparison to check.")],
    json: Annotated[Path | None, typer.Option(help="Write the result to this JSON file.")] = None,
) -> None:
    """Check a run, a dump or a comparison against its checksums.

    Exit code 0: all of it is verified; 1: something is damaged; 3: not all of it has a checksum;
    2: it could not be read.
    """
    from syncpoint import api

    verification = api.verify(path)
    if json is not None:
        verification.to_json(json)
    for line in verification.lines():
        echo(line)
    raise typer.Exit(verification.exit_code())
