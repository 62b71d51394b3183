"""The command `syncpoint capture`: runs a model and keeps every intermediate tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo
from syncpoint.cli.parse import parse_bytes, parse_settings


@dataclass(frozen=True)
class RecordOptions:
    """What to record of an execution."""

    panel: ClassVar[str] = options.OUTPUT

    record: Annotated[
        str, typer.Option(help="What to keep of each tensor: values, statistics or digest.")
    ] = "values"
    filter: Annotated[
        str | None,
        typer.Option(help="Record only ops whose name or module matches this regular expression."),
    ] = None
    max_bytes: Annotated[
        str | None,
        typer.Option(
            help="Byte budget for values, such as 2GiB; beyond it only statistics are kept."
        ),
    ] = None
    force: Annotated[bool, typer.Option(help="Replace an existing run.")] = False


def capture(
    model: Annotated[
        str, typer.Argument(help="Model file, package.module:attribute, or file.py:attribute.")
    ],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Run to write: NAME.run.", rich_help_panel=options.OUTPUT
        ),
    ],
    samples: options.InputOptions,
    runtime: Annotated[
        str | None, typer.Option(help="Runtime to use (default: detected from the model).")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Option of the runtime, KEY=VALUE; `syncpoint doctor` lists them."
        ),
    ] = None,
    fusion: Annotated[
        str | None,
        typer.Option(help="Short for --set fusion=VALUE: as-executed or unfused."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Convert the model to f32, f16 or bf16.")
    ] = None,
    recorded: RecordOptions,
    resources: options.ResourceOptions,
) -> None:
    """Run a model and record every intermediate tensor."""
    resources.apply()
    from syncpoint import api

    chosen: dict[str, Any] = {**parse_settings(set_)}
    for name, value in (("fusion", fusion), ("dtype", dtype)):
        if value is not None:
            chosen[name] = value
    run = api.capture(
        model,
        samples.inputs,
        out=output,
        runtime=runtime,
        record=recorded.record,
        filter=recorded.filter,
        max_bytes=parse_bytes(recorded.max_bytes),
        shapes=samples.shapes(),
        overwrite=recorded.force,
        **chosen,
    )
    info = run.info
    facts = ", ".join(p for p in (info.runtime, info.device, info.precision) if p)
    echo(f"{output}: {len(run.ops)} ops, {len(run.tensors)} tensors ({facts})")
    if info.observer is not None and not info.observer.equal:
        echo(f"note: recording changed the outputs: {info.observer.detail}", err=True)
    for note in info.notes:
        echo(f"note: {note}", err=True)
