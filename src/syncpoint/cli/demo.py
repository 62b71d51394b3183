"""`syncpoint demo`: the main job on a small transformer that was shipped with a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncpoint.errors import InputError


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the model, the runs and the reports.")
    ] = Path("syncpoint-demo"),
) -> None:
    """Capture a reference, capture a target, compare them and report."""
    from rich.console import Console

    from syncpoint import api
    from syncpoint.comparison.storage import is_comparison
    from syncpoint.reports.terminal import print_comparison

    model = output / "model.py"
    if output.exists() and any(output.iterdir()) and not model.is_file():
        raise InputError("an empty folder or an earlier demo", str(output), "choose another -o")
    try:
        output.mkdir(parents=True, exist_ok=True)
        model.write_text((Path(__file__).parent / "demo_model.py.txt").read_text())
    except OSError as error:
        raise InputError(f"a folder that can be written at {output}", str(error)) from error
    named = {"reference": f"{model}:reference", "target": f"{model}:shipped"}
    inputs = f"{model}:inputs"
    runs = {side: output / f"{side}.run" for side in named}

    _say(f"capture {named['reference']} --inputs {inputs} -o {runs['reference']}")
    reference = api.capture(named["reference"], inputs, out=runs["reference"], overwrite=True)
    typer.echo(f"{len(reference.ops)} ops, {len(reference.tensors)} tensors\n")
    _say(f"capture {named['target']} --inputs {inputs} --dtype bf16 -o {runs['target']}")
    target = api.capture(named["target"], inputs, out=runs["target"], overwrite=True, dtype="bf16")
    typer.echo(f"{len(target.ops)} ops, {len(target.tensors)} tensors\n")
    _say(
        f"compare {runs['target']} {runs['reference']} --reference-model {named['reference']}"
        f" -o {output / 'demo.cmp'}"
    )
    comparison = api.compare(target, reference)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    print_comparison(comparison, console, rows=16)
    saved = comparison.save(output / "demo.cmp", overwrite=is_comparison(output / "demo.cmp"))
    typer.echo(f"\ncomparison {saved}        (syncpoint report {saved})")
    typer.echo(f"report     {comparison.to_csv(output / 'demo.csv')}")
    typer.echo(f"           {comparison.to_json(output / 'demo.json')}")


def _say(command: str) -> None:
    typer.secho(f"$ syncpoint {command}", bold=True)
