"""The command `syncpoint bisect`: finds the first bad op of a model that shows nothing but its
outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo


def bisect(
    target: Annotated[str, typer.Argument(help="Model you ship: ONNX or PyTorch.")],
    reference: Annotated[
        str, typer.Argument(help="What you trust: a run, a dump, or a model to capture.")
    ],
    *,
    samples: options.InputOptions,
    sides: options.SideOptions,
    judge_by: options.LimitOptions,
    fail_on: options.FailOn = "large",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder to save the cut models and the result in.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    resources: options.ResourceOptions,
    json: options.Json = None,
) -> None:
    """Find the first bad op by cutting the target and running the pieces."""
    resources.apply()
    from syncpoint import api
    from syncpoint.reports.bisection_report import as_lines, cut_line

    options.check_fail_on(fail_on)
    bisection = api.bisect(
        target,
        reference,
        inputs=samples.inputs,
        shapes=samples.shapes(),
        target_options=sides.target_options(),
        reference_options=sides.reference_options(),
        preset=judge_by.preset,
        limits=judge_by.limits,
        out=output,
        told=lambda cut: echo(cut_line(cut), err=True),
    )
    if json is not None:
        bisection.to_json(json)
    for line in as_lines(bisection):
        echo(line)
    raise typer.Exit(bisection.exit_code(fail_on))
