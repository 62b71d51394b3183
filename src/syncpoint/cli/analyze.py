"""The command `syncpoint analyze`: its flags, and the report on a compiled model against eager mode
and float64."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo
from syncpoint.cli.parse import parse_settings


def analyze(
    model: Annotated[
        str,
        typer.Argument(
            help="Model: package.module:attribute, file.py:attribute, or torch's repro.py."
        ),
    ],
    *,
    samples: options.InputOptions,
    backend: Annotated[
        str, typer.Option(help="Compiler backend: inductor or aot_eager.")
    ] = "inductor",
    dtype: Annotated[
        str | None, typer.Option(help="Convert the model to f32, f16 or bf16.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of the runtime inductor, KEY=VALUE; repeat for more."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder to save the runs and the comparison in.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    no_save_intermediates: Annotated[
        bool,
        typer.Option(
            "--no-save-intermediates",
            help="Do not save the runs in -o.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = False,
    emulate_precision_casts: Annotated[
        bool,
        typer.Option(
            "--emulate-precision-casts",
            help="Compile again with the roundings of eager mode, and report whether they are the"
            " cause.",
        ),
    ] = False,
    resources: options.ResourceOptions,
    csv: options.Csv = None,
    json: options.Json = None,
    rows: options.Rows = 24,
    quiet: options.Quiet = False,
) -> None:
    """Compile a model and find where it leaves what eager mode computes, and who is right."""
    resources.apply()
    from syncpoint import api
    from syncpoint.reports.analysis_report import print_analysis
    from syncpoint.reports.console import Console

    chosen: dict[str, Any] = {"backend": backend, **parse_settings(set_)}
    if dtype is not None:
        chosen["dtype"] = dtype
    analysis = api.analyze(
        model,
        samples.inputs,
        shapes=samples.shapes(),
        out=output,
        save_intermediates=not no_save_intermediates,
        emulate_precision_casts=emulate_precision_casts,
        **chosen,
    )
    written = [] if output is None else [f"kept       {output}"]
    if csv is not None:
        written.append(f"csv        {analysis.comparison.to_csv(csv)}")
    if json is not None:
        written.append(f"json       {analysis.to_json(json)}")
    if quiet:
        echo(analysis.headline)
    else:
        console = Console()
        print_analysis(analysis, console, rows)
    for line in written:
        echo(line)
    raise typer.Exit(analysis.exit_code)
