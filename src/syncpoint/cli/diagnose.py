"""The command `syncpoint diagnose`: finds the causes of the errors in a comparison, and the next
steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo
from syncpoint.cli.show_comparison import exit_with_verdict
from syncpoint.errors import InputError


def diagnose(
    comparison: Annotated[Path, typer.Argument(help="Saved comparison: NAME.cmp.")],
    *,
    target_model: Annotated[
        str | None,
        typer.Option(help="Model of the target; runs again for experiments."),
    ] = None,
    reference_model: Annotated[
        str | None,
        typer.Option(help="Model of the reference; its ops run on the target's values."),
    ] = None,
    sides: options.SideOptions,
    preprocess: Annotated[
        list[str] | None,
        typer.Option(
            help="Function that prepares a raw sample, file.py:name; give it twice, the target's"
            " first."
        ),
    ] = None,
    raw: Annotated[
        str | None,
        typer.Option(help="Raw sample for both functions: an image, .npy, .npz, text or bytes."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds for experiments; reading the recorded values may take 60 more."
        ),
    ] = 60.0,
    no_save: Annotated[
        bool, typer.Option("--no-save", help="Do not save the findings in the comparison.")
    ] = False,
    exit_rule: options.ExitOptions,
    resources: options.ResourceOptions,
    json: options.Json = None,
    html: options.Html = None,
) -> None:
    """Explain a comparison: symptom, causes, next steps."""
    resources.apply()
    from syncpoint import api
    from syncpoint.reports.console import Console
    from syncpoint.reports.diagnosis_report import PIPED_WIDTH, print_diagnosis

    if (preprocess is not None or raw is not None) and (len(preprocess or ()) != 2 or raw is None):
        raise InputError(
            f"--preprocess and --raw belong together, but there are {len(preprocess or ())}"
            f" --preprocess and {'no' if raw is None else 1} --raw",
            cure="give --preprocess twice, first the target's function, then the reference's, and"
            " --raw FILE once",
        )
    for side, model, settings in (
        ("target", target_model, sides.target_set),
        ("reference", reference_model, sides.reference_set),
    ):
        if settings and model is None:
            raise InputError(
                f"--{side}-set needs --{side}-model", cure=f"give the model with --{side}-model"
            )
    exit_rule.check()
    diagnosed = api.diagnose(
        comparison,
        target_model=target_model,
        reference_model=reference_model,
        target_options=sides.target_options(),
        reference_options=sides.reference_options(),
        seconds=seconds,
        preprocess=(preprocess[0], preprocess[1]) if preprocess else None,
        raw=raw,
        keep_runs=True,
    )
    if exit_rule.min_coverage is not None:
        diagnosed = replace(diagnosed, min_coverage=exit_rule.min_coverage)
    written = []
    if not no_save and not diagnosed.save_diagnosis(comparison):
        failed = diagnosed.diagnosis is not None and diagnosed.diagnosis.has_failed
        written.append(
            "the saved diagnosis is kept, because the new one failed"
            if failed
            else "the saved diagnosis is kept: it was made with models, and this one without"
        )
    if json is not None:
        written.append(f"json       {diagnosed.to_json(json)}")
    if html is not None:
        written.append(f"html       {diagnosed.to_html(html)}")
    print_diagnosis(diagnosed, Console(piped_width=PIPED_WIDTH))
    for line in written:
        echo(line)
    exit_with_verdict(diagnosed, exit_rule.fail_on)
