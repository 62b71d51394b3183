"""`syncpoint capture`: run a model and keep every intermediate tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo


def capture(
    model: Annotated[
        str, typer.Argument(help="A model file, or package.module:attribute or file.py:attribute.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run to write: NAME.run.")],
    inputs: options.Inputs = None,
    shape: options.Shapes = None,
    runtime: Annotated[str | None, typer.Option(help="Which runtime; found by itself.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the runtime, KEY=VALUE; doctor lists them."),
    ] = None,
    fusion: Annotated[
        str | None,
        typer.Option(
            help="Short for --set fusion=: as-executed or unfused, where there is a choice."
        ),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Convert the model to f32, f16, bf16.")] = None,
    record: Annotated[str, typer.Option(help="values, statistics or digest.")] = "values",
    filter: Annotated[
        str | None, typer.Option(help="Record only ops whose name or module matches this regex.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="After so many bytes keep statistics only: 500MB, 2GiB.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace a run of the same name.")] = False,
    timeout: options.Timeout = None,
    memory: options.Memory = None,
) -> None:
    """Run a model and record every intermediate tensor."""
    options.set_limits(timeout, memory)
    from syncpoint import api

    chosen: dict[str, Any] = {**options.settings(set_)}
    for name, value in (("fusion", fusion), ("dtype", dtype)):
        if value is not None:
            chosen[name] = value
    run = api.capture(
        model,
        inputs,
        out=output,
        runtime=runtime,
        record=record,
        filter=filter,
        max_bytes=options.byte_count(max_bytes),
        shapes=options.shapes(shape),
        overwrite=force,
        **chosen,
    )
    info = run.info
    facts = ", ".join(p for p in (info.runtime, info.device, info.precision) if p)
    echo(f"{output}: {len(run.ops)} ops, {len(run.tensors)} tensors ({facts})")
    if info.observer is not None and not info.observer.equal:
        echo(f"note: capturing changed the outputs: {info.observer.detail}", err=True)
    for note in info.notes:
        echo(f"note: {note}", err=True)
