"""`syncpoint diagnose`: from a table of errors to the cause."""

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
    comparison: Annotated[Path, typer.Argument(help="A saved comparison: NAME.cmp.")],
    *,
    target_model: Annotated[
        str | None,
        typer.Option(help="The target's model, to be run again for experiments."),
    ] = None,
    reference_model: Annotated[
        str | None,
        typer.Option(help="The reference's model, to run its ops on the target's values."),
    ] = None,
    sides: options.SideOptions,
    preprocess: Annotated[
        list[str] | None,
        typer.Option(
            help="Function that prepares a raw sample, file.py:name; twice, the target's first."
        ),
    ] = None,
    raw: Annotated[
        str | None, typer.Option(help="Raw sample for both: an image, .npy, .npz, text, bytes.")
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds for experiments; 60 more are for looking at what was recorded."
        ),
    ] = 60.0,
    no_save: Annotated[
        bool, typer.Option("--no-save", help="Do not keep the findings in the comparison.")
    ] = False,
    exit_rule: options.ExitOptions,
    resources: options.ResourceOptions,
    json: options.Json = None,
    html: options.Html = None,
) -> None:
    """Say why a comparison differs: the symptom, the causes, what to do next."""
    resources.apply()
    from syncpoint import api
    from syncpoint.reports.console import Console
    from syncpoint.reports.diagnosis_report import PIPED_WIDTH, print_diagnosis

    if (preprocess is not None or raw is not None) and (len(preprocess or ()) != 2 or raw is None):
        said = f"{len(preprocess or ())} and {raw or 'no sample'}"
        raise InputError("--preprocess twice and --raw FILE", said)
    for side, model, settings in (
        ("target", target_model, sides.target_set),
        ("reference", reference_model, sides.reference_set),
    ):
        if settings and model is None:
            raise InputError(f"--{side}-model beside --{side}-set", "no model")
    exit_rule.check()
    found = api.diagnose(
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
        found = replace(found, min_coverage=exit_rule.min_coverage)
    written = []
    if not no_save and not found.save_diagnosis(comparison):
        failed = found.diagnosis is not None and found.diagnosis.has_failed
        written.append(
            "the kept diagnosis stays: this one failed"
            if failed
            else "the kept diagnosis stays: it was made with models at hand, which this one had not"
        )
    if json is not None:
        written.append(f"json       {found.to_json(json)}")
    if html is not None:
        written.append(f"html       {found.to_html(html)}")
    print_diagnosis(found, Console(piped_width=PIPED_WIDTH))
    for line in written:
        echo(line)
    exit_with_verdict(found, exit_rule.fail_on)
