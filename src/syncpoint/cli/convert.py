"""The command `syncpoint convert`: writes a run or dump in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli.output import echo


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="Run or dump to read.")],
    destination: Annotated[Path, typer.Argument(metavar="OUT", help="File or folder to write.")],
    to: Annotated[
        str,
        typer.Option(help="Format to write: npz, safetensors, npy, aimodelintermediates or run."),
    ],
) -> None:
    """Write a run or dump in another format."""
    from syncpoint import api

    done = api.convert(source, destination, to=to)
    echo(f"{done.path}: {done.tensors} tensors as {to}")
    if done.left_out:
        echo(f"note: left out {done.left_out} tensors that have no values", err=True)
