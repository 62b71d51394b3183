"""`syncpoint convert`: a run or dump written in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli.output import echo


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A run or a dump.")],
    destination: Annotated[Path, typer.Argument(metavar="OUT", help="What to write.")],
    to: Annotated[
        str, typer.Option(help="The format: npz, safetensors, npy, aimodelintermediates or run.")
    ],
) -> None:
    """Write a run or dump in another format."""
    from syncpoint import api

    done = api.convert(source, destination, to=to)
    echo(f"{done.path}: {done.tensors} tensors as {to}")
    if done.left_out:
        echo(f"note: {done.left_out} tensors without values are left out", err=True)
