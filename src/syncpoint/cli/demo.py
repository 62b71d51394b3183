"""The command `syncpoint demo`: prepares and runs a speech detector, compares it with a correct and
a faulty half-precision copy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncpoint.cli.output import echo
from syncpoint.errors import InputError, MissingExtra

if TYPE_CHECKING:
    from syncpoint.api import Comparison
    from syncpoint.run.reader import Run


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the model, the runs and the reports.")
    ] = Path("syncpoint-demo"),
) -> None:
    """Compare a trained model with a good and with a faulty half-precision copy of itself."""
    from syncpoint.reports.console import Console
    from syncpoint.reports.terminal_report import print_comparison
    from syncpoint.reports.verdict_line import headline

    if find_spec("silero_vad") is None:
        raise MissingExtra("silero-vad", "demo", "the demo")
    model = _prepared(output)
    reference = _capture(model, "reference", output / "reference.run")

    echo("The same model in half precision: different bits, but nothing is wrong.")
    echo()
    copy = _capture(model, "reference", output / "copy.run", "f16")
    good = _compare(copy, reference, model, output / "copy.cmp", " -q")
    echo(headline(good))
    echo()

    echo("The half-precision model as it was shipped: one convolution is padded wrongly.")
    echo()
    target = _capture(model, "shipped", output / "shipped.run", "f16")
    bad = _compare(target, reference, model, output / "shipped.cmp", " --sort operation")
    console = Console()
    print_comparison(bad, console, sort="operation")

    probabilities = ", ".join(
        f"{_speech(run):.2f} {name}"
        for name, run in (("reference", reference), ("copy", copy), ("shipped", target))
    )
    echo()
    echo(f"probability that the sound is speech: {probabilities}")
    saved = output / "shipped.cmp"
    echo(f"comparison {saved}        (syncpoint report {saved})")
    echo(f"report     {bad.to_csv(output / 'shipped.csv')}")
    echo(f"           {bad.to_json(output / 'shipped.json')}")


def _prepared(output: Path) -> Path:
    """The folder with the model in it."""
    from syncpoint.files.outputs import write_output
    from syncpoint.files.write_errors import write_errors

    model = output / "model.py"
    if output.exists() and any(output.iterdir()) and not model.is_file():
        raise InputError(
            f"{output} is neither empty nor from an earlier demo",
            cure="give another folder with -o",
        )
    with write_errors(output):
        output.mkdir(parents=True, exist_ok=True)
        write_output(model, (Path(__file__).parent / "demo_model.py.txt").read_text())
    return model


def _capture(model: Path, name: str, out: Path, dtype: str = "") -> Run:
    from syncpoint import api

    options: dict[str, Any] = {"dtype": dtype} if dtype else {}
    flag = f" --dtype {dtype}" if dtype else ""
    _say(f"capture {model}:{name} --inputs {model}:inputs{flag} -o {out}")
    run = api.capture(f"{model}:{name}", f"{model}:inputs", out=out, overwrite=True, **options)
    echo(f"{len(run.ops)} ops, {len(run.tensors)} tensors")
    echo()
    return run


def _compare(target: Run, reference: Run, model: Path, out: Path, flags: str = "") -> Comparison:
    from syncpoint import api
    from syncpoint.comparison.storage.comparison_folder import is_comparison

    model_flag = f"--reference-model {model}:reference"
    _say(f"compare {target.path} {reference.path} {model_flag} -o {out}{flags}")
    comparison = api.compare(target, reference)
    comparison.save(out, overwrite=is_comparison(out))
    return comparison


def _speech(run: Run) -> float:
    """Return the highest speech probability of all frames."""
    from syncpoint.run.model import Role

    output = next(t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT)
    return float(run.values(output).max())


def _say(command: str) -> None:
    echo(f"$ syncpoint {command}", bold=True)
