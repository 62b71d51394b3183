"""The option groups that several commands share, and their checks: inputs, runtimes, limits,
`--fail-on`, tables, report files, browser, time and memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from syncpoint.cli.parse import check_choice, parse_bytes, parse_settings, parse_shapes
from syncpoint.errors import InputError

if TYPE_CHECKING:
    from syncpoint.runtimes.inputs.shapes import InputShape

INPUTS = "Inputs"
PAIRING = "Pairing"
VERDICT = "Verdict"
OUTPUT = "Output"
RESOURCES = "Resources"

Limits = Annotated[
    Path | None,
    typer.Option(
        help="YAML file with your own limits (see docs/limits.md).", rich_help_panel=VERDICT
    ),
]
FailOn = Annotated[
    str,
    typer.Option(
        help="Verdict from which the exit code is 1: large or moderate.", rich_help_panel=VERDICT
    ),
]
Csv = Annotated[
    Path | None,
    typer.Option(help="Write all rows and columns to this CSV file.", rich_help_panel=OUTPUT),
]
Json = Annotated[
    Path | None, typer.Option(help="Write everything to this JSON file.", rich_help_panel=OUTPUT)
]
Html = Annotated[
    Path | None,
    typer.Option(
        help="Write the page as one HTML file that needs no server.", rich_help_panel=OUTPUT
    ),
]
Rows = Annotated[
    int, typer.Option(min=0, help="Rows to print; 0 prints all.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the verdict line only.", rich_help_panel=OUTPUT),
]


@dataclass(frozen=True)
class InputOptions:
    """What the models are run on."""

    panel: ClassVar[str] = INPUTS

    inputs: Annotated[
        str | None,
        typer.Option(
            help="Inputs of the model: .npz, .npy, .safetensors, a run, module:function, a folder"
            " or glob of samples, or random[:seed], zeros, ones (default: the inputs that the"
            " other side recorded)."
        ),
    ] = None
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="Shape of a generated input: NAME=1,3,224,224[:dtype]; repeat for each input."
        ),
    ] = None

    def shapes(self) -> dict[str, InputShape]:
        """The shapes by the name of the input."""
        return parse_shapes(self.shape)


@dataclass(frozen=True)
class SideOptions:
    """Options of the two runtimes."""

    panel: ClassVar[str] = INPUTS

    target_set: Annotated[
        list[str] | None,
        typer.Option(help="Option of the target's runtime, KEY=VALUE; repeat for more."),
    ] = None
    reference_set: Annotated[
        list[str] | None,
        typer.Option(help="Option of the reference's runtime, KEY=VALUE; repeat for more."),
    ] = None

    def target_options(self) -> dict[str, str]:
        """Options of the target's runtime by their name."""
        return parse_settings(self.target_set, "--target-set")

    def reference_options(self) -> dict[str, str]:
        """Options of the reference's runtime by their name."""
        return parse_settings(self.reference_set, "--reference-set")


@dataclass(frozen=True)
class LimitOptions:
    """Which limits to judge by."""

    panel: ClassVar[str] = VERDICT

    preset: Annotated[
        str,
        typer.Option(help="Limits to use: auto, f32, tf32, f16, bf16, int8, fp8, int4 or exact."),
    ] = "auto"
    limits: Limits = None


@dataclass(frozen=True)
class ExitOptions:
    """What decides the exit code."""

    panel: ClassVar[str] = VERDICT

    fail_on: FailOn = "large"
    min_coverage: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share of each side that must be compared; below it the exit code is 3 (default:"
            " 0.5, or 0.9 against a dump that is known to be partial).",
        ),
    ] = None

    def check(self) -> None:
        """Refuse an unknown verdict before any work is done."""
        check_fail_on(self.fail_on)


def check_fail_on(verdict: str) -> None:
    """Refuse a verdict that `--fail-on` does not know."""
    check_choice(verdict, ("large", "moderate"), "--fail-on")


@dataclass(frozen=True)
class TableOptions:
    """How to print a comparison."""

    panel: ClassVar[str] = OUTPUT

    metric: Annotated[str, typer.Option(help="Metric to show and to sort by.")] = "psnr"
    sort: Annotated[
        str,
        typer.Option(
            help="Order of the rows: similarity (worst first) or operation (as executed)."
        ),
    ] = "similarity"
    rows: Rows = 24
    quiet: Quiet = False

    def check(self) -> None:
        """Refuse what cannot be shown before any work is done."""
        from syncpoint.metrics import CATALOGUE, METRIC_IDS

        choices = [name for name in METRIC_IDS if CATALOGUE[name].better is not None]
        if self.metric not in choices:
            raise InputError(
                f"--metric {self.metric!r} is not a metric that rows can be sorted by",
                cure=f"use one of {', '.join(choices)}",
            )
        check_choice(self.sort, ("similarity", "operation"), "--sort")


@dataclass(frozen=True)
class ReportFiles:
    """The files to write a comparison to."""

    panel: ClassVar[str] = OUTPUT

    csv: Csv = None
    json: Json = None
    html: Html = None


@dataclass(frozen=True)
class BrowserOptions:
    """How to serve the page."""

    panel: ClassVar[str] = OUTPUT

    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 (default: a free one).")
    ] = None
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address and do not open a browser.")
    ] = False


@dataclass(frozen=True)
class ResourceOptions:
    """How long a command may take, and how much memory."""

    panel: ClassVar[str] = RESOURCES

    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Time limit in seconds; the command then ends with exit code 2."
        ),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit such as 8GiB; above it the command ends with exit code 2."),
    ] = None

    def apply(self) -> None:
        """Have the supervisor end the command after this time or above this memory."""
        if self.timeout is None and self.memory is None:
            return
        from syncpoint.supervision import report_to_supervisor

        byte_limit = parse_bytes(self.memory)
        if not report_to_supervisor.is_supervised():
            raise InputError(
                "--timeout and --memory need a supervised command, and this one runs in the"
                " process of its caller",
                cure="use the command syncpoint, without SYNCPOINT_SUPERVISE=0",
            )
        report_to_supervisor.set_limits(self.timeout, byte_limit)
