"""`syncpoint verify`: compute every checksum of a run, a dump or a comparison again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli.output import echo


def verify(
    path: Annotated[Path, typer.Argument(help="A run, a dump or a comparison.")],
    json: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
) -> None:
    """Check a run, a dump or a comparison against its checksums.

    Exit code 0: all of it is verified; 1: something is damaged; 3: not all of it has a checksum;
    2: it could not be read.
    """
    from syncpoint import api

    result = api.verify(path)
    if json is not None:
        result.to_json(json)
    for line in result.lines():
        echo(line)
    raise typer.Exit(result.exit_code())
