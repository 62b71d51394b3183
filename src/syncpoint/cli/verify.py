"""`syncpoint verify`: compute every checksum of a run, a dump or a comparison again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def verify(
    path: Annotated[Path, typer.Argument(help="A run, a dump or a comparison.")],
    json: Annotated[Path | None, typer.Option(help="Write the result as JSON.")] = None,
) -> None:
    """Check a run, a dump or a comparison against its checksums.

    Exit code 0: all of it is verified; 1: something is damaged; 3: not all of it has a checksum;
    2: it could not be read.
    """
    import json as encoder

    from syncpoint import api
    from syncpoint.errors import InputError
    from syncpoint.run.files import one_line, write_atomically

    result = api.verify(path)
    if json is not None:
        try:
            write_atomically(json, encoder.dumps(result.as_dict(), indent=1).encode() + b"\n")
        except OSError as error:
            raise InputError(f"{json} to be written", one_line(error)) from error
    for line in result.lines():
        typer.echo(line)
    raise typer.Exit(result.exit_code())
