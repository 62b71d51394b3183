"""`syncpoint bisect`: the first bad op of a model that shows nothing but its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo


def bisect(
    target: Annotated[str, typer.Argument(help="The model you ship: ONNX or PyTorch.")],
    reference: Annotated[
        str, typer.Argument(help="The run you trust: a run, a dump, or a model to capture.")
    ],
    inputs: options.Inputs = None,
    shape: options.Shapes = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder to keep the cut models and the result in."),
    ] = None,
    target_set: Annotated[
        list[str] | None, typer.Option(help="Option of the target's runtime, KEY=VALUE.")
    ] = None,
    reference_set: Annotated[
        list[str] | None, typer.Option(help="Option of the reference's runtime, KEY=VALUE.")
    ] = None,
    preset: options.Preset = "auto",
    limits: options.Limits = None,
    fail_on: options.FailOn = "large",
    timeout: options.Timeout = None,
    memory: options.Memory = None,
    json: options.Json = None,
) -> None:
    """Find the first bad op by cutting the target and running the pieces."""
    options.set_limits(timeout, memory)
    from syncpoint import api
    from syncpoint.reports.bisection_report import as_lines, cut_line, write_json

    options.one_of(fail_on, ("large", "moderate"), "--fail-on")
    found = api.bisect(
        target,
        reference,
        inputs=inputs,
        shapes=options.shapes(shape),
        target_options=options.settings(target_set, "--target-set"),
        reference_options=options.settings(reference_set, "--reference-set"),
        preset=preset,
        limits=limits,
        out=output,
        told=lambda cut: echo(cut_line(cut), err=True),
    )
    if json is not None:
        write_json(found, json)
    for line in as_lines(found):
        echo(line)
    raise typer.Exit(found.exit_code(fail_on))
