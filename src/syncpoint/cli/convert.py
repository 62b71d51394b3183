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
    from syncpoint.dumps.registry import save_dump
    from syncpoint.run.model import Kept

    run = api.open_run(source)
    save_dump(run, destination, to)
    left = 0 if to == "run" else sum(tensor.kept is not Kept.VALUES for tensor in run.tensors)
    echo(f"{destination}: {len(run.tensors) - left} tensors as {to}")
    if left:
        echo(f"note: {left} tensors without values are left out", err=True)
