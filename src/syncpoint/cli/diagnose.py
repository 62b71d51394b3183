"""`syncpoint diagnose`: from a table of errors to the cause."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo
from syncpoint.errors import InputError


def diagnose(
    comparison: Annotated[Path, typer.Argument(help="A saved comparison: NAME.cmp.")],
    target_model: Annotated[
        str | None,
        typer.Option(help="The target's model, to be run again for experiments."),
    ] = None,
    reference_model: Annotated[
        str | None,
        typer.Option(help="The reference's model, to run its ops on the target's values."),
    ] = None,
    target_set: Annotated[
        list[str] | None, typer.Option(help="Option of the target's runtime, KEY=VALUE.")
    ] = None,
    reference_set: Annotated[
        list[str] | None, typer.Option(help="Option of the reference's runtime, KEY=VALUE.")
    ] = None,
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
    timeout: options.Timeout = None,
    memory: options.Memory = None,
    json: options.Json = None,
    html: options.Html = None,
    fail_on: options.FailOn = "large",
    min_coverage: options.MinCoverage = None,
) -> None:
    """Say why a comparison differs: the symptom, the causes, what to do next."""
    options.set_limits(timeout, memory)
    from syncpoint import api
    from syncpoint.comparison.storage import keep_diagnosis
    from syncpoint.reports.console import Console
    from syncpoint.reports.diagnosis_report import print_diagnosis

    if (preprocess is not None or raw is not None) and (len(preprocess or ()) != 2 or raw is None):
        said = f"{len(preprocess or ())} and {raw or 'no sample'}"
        raise InputError("--preprocess twice and --raw FILE", said)
    for side, model, settings in (
        ("target", target_model, target_set),
        ("reference", reference_model, reference_set),
    ):
        if settings and model is None:
            raise InputError(f"--{side}-model beside --{side}-set", "no model")
    options.one_of(fail_on, ("large", "moderate"), "--fail-on")
    found = api.diagnose(
        comparison,
        target_model=target_model,
        reference_model=reference_model,
        target_options=options.settings(target_set, "--target-set"),
        reference_options=options.settings(reference_set, "--reference-set"),
        seconds=seconds,
        preprocess=(preprocess[0], preprocess[1]) if preprocess else None,
        raw=raw,
    )
    if min_coverage is not None:
        found = replace(found, min_coverage=min_coverage)
    written = []
    if not no_save and not keep_diagnosis(found, comparison):
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
    print_diagnosis(found, Console(piped_width=100))
    for line in written:
        echo(line)
    options.finish(found, fail_on)
