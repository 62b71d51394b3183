"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncpoint.cli.output import echo
from syncpoint.errors import InputError

if TYPE_CHECKING:
    from syncpoint.api import Comparison
    from syncpoint.runtimes.inputs import Shape

Inputs = Annotated[
    str | None,
    typer.Option(
        help="What the model is given: .npz, .npy, .safetensors, a run, module:function, a folder"
        " or glob of samples, or random[:seed], zeros, ones (with --shape)."
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(help="Shape of an input for random, zeros and ones: NAME=1,3,224,224[:dtype]."),
]
Metric = Annotated[str, typer.Option(help="The metric to show and to sort by.")]
Preset = Annotated[str, typer.Option(help="auto, f32, tf32, f16, bf16, int8, fp8, int4 or exact.")]
Limits = Annotated[Path | None, typer.Option(help="YAML file with limits of your own.")]
FailOn = Annotated[str, typer.Option(help="Exit with 1 from this verdict on: large or moderate.")]
MinCoverage = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Exit with 3 if less of the target or of the reference was compared (default: 0.5,"
        " or 0.9 against a dump that is known to be partial).",
    ),
]
Csv = Annotated[Path | None, typer.Option(help="Write all rows and columns as CSV.")]
Json = Annotated[Path | None, typer.Option(help="Write everything as strict JSON.")]
Html = Annotated[
    Path | None, typer.Option(help="Write one HTML file that shows it all without a server.")
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; else a free one.")
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address only.")]
Timeout = Annotated[
    float | None,
    typer.Option(min=0.001, help="Seconds after which a comparison or capture is ended."),
]
Memory = Annotated[
    str | None,
    typer.Option(help="Memory above which a comparison or capture is ended, such as 8GiB."),
]
Rows = Annotated[int, typer.Option(min=0, help="Rows to print; 0 prints all.")]
Sort = Annotated[str, typer.Option(help="similarity (worst first) or operation (as executed).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict line only.")]


def set_limits(timeout: float | None, memory: str | None) -> None:
    """Have the command ended after `timeout` seconds or above so much memory."""
    if timeout is None and memory is None:
        return
    from syncpoint.supervision import channel

    byte_limit = byte_count(memory)
    if not channel.is_supervised():
        raise InputError(
            "a supervised command for --timeout and --memory",
            "one that runs in the process of its caller",
            "use the command syncpoint, without SYNCPOINT_SUPERVISE=0",
        )
    channel.set_limits(timeout, byte_limit)


def settings(pairs: list[str] | None, flag: str = "--set") -> dict[str, str]:
    """KEY=VALUE pairs of `--set`."""
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{flag} KEY=VALUE", repr(pair))
        found[key] = value
    return found


def shapes(said: list[str] | None) -> dict[str, Shape]:
    """NAME=1,3,224,224[:dtype] of `--shape`."""
    if not said:
        return {}
    from syncpoint.runtimes.inputs import parse_shape

    return dict(parse_shape(text) for text in said)


_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
}


def byte_count(text: str | None) -> int | None:
    """A number of bytes such as 500MB or 2GiB."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if found is None or (found[2] or "") not in _UNITS:
        raise InputError("a number of bytes such as 500MB or 2GiB", repr(text))
    return int(float(found[1]) * _UNITS[found[2] or ""])


def one_of(value: str, allowed: tuple[str, ...], flag: str) -> str:
    """A value out of a small set, or an error that names the set."""
    if value not in allowed:
        raise InputError(f"{flag} to be {' or '.join(allowed)}", repr(value))
    return value


def check(metric: str, sort: str, fail_on: str) -> None:
    """Refuse what cannot be shown before any work is done."""
    from syncpoint.metrics import CATALOGUE, METRIC_IDS

    choices = [name for name in METRIC_IDS if CATALOGUE[name].better is not None]
    if metric not in choices:
        raise InputError("a metric to rank by", repr(metric), f"one of {', '.join(choices)}")
    one_of(sort, ("similarity", "operation"), "--sort")
    one_of(fail_on, ("large", "moderate"), "--fail-on")


def show(
    comparison: Comparison,
    *,
    metric: str,
    sort: str,
    rows: int,
    quiet: bool,
    csv: Path | None,
    json: Path | None,
    html: Path | None = None,
    saved: Path | None = None,
) -> None:
    """Write the files that were asked for, then print: a reader of the output that goes away,
    as `head` does, must not cost a file."""
    from syncpoint.reports.console import Console
    from syncpoint.reports.message import (
        headline,
        inputs_lines,
        unreadable_lines,
        unverified_lines,
    )
    from syncpoint.reports.terminal import print_comparison

    written = [] if saved is None else [f"comparison {saved}"]
    if csv is not None:
        written.append(f"csv        {comparison.to_csv(csv)}")
    if json is not None:
        written.append(f"json       {comparison.to_json(json)}")
    if html is not None:
        written.append(f"html       {comparison.to_html(html)}")
    if quiet:
        lines = [
            *inputs_lines(comparison),
            *unreadable_lines(comparison),
            *unverified_lines(comparison),
            headline(comparison),
        ]
        for line in lines:
            echo(line)
    else:
        console = Console()
        print_comparison(comparison, console, metric=metric, sort=sort, rows=rows)
    for line in written:
        echo(line)


def finish(comparison: Comparison, fail_on: str) -> None:
    """Leave with the exit code of the comparison; where it is not a verdict, say why."""
    from syncpoint.errors import EXIT_UNCOVERED
    from syncpoint.reports.message import uncovered

    code = comparison.exit_code(fail_on)
    if code == EXIT_UNCOVERED:
        echo(f"syncpoint: {uncovered(comparison)}", err=True)
    raise typer.Exit(code)
