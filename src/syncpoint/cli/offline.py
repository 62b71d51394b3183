"""`syncpoint compare -m offline_data|torchair`: dumps of an Ascend device, with the flags that its
users know."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncpoint.cli import options
from syncpoint.cli.output import echo
from syncpoint.errors import InputError

if TYPE_CHECKING:
    from syncpoint.comparison.judging import Choice
    from syncpoint.comparison.measuring import Progress
    from syncpoint.offline.mode import Outcome

_PANEL = "Dumps of an Ascend device (--mode offline_data or torchair)"
_MODES = ("offline_data", "torchair")
_DIALECTS = ("seed", "26.2")
_SUMMARIES = ("values", "statistics", "md5")

Mode = Annotated[
    str | None,
    typer.Option(
        "-m",
        "--mode",
        help="offline_data: files of a device; torchair: GE dumps of TorchAir.",
        rich_help_panel=_PANEL,
    ),
]
TargetPath = Annotated[
    Path | None,
    typer.Option(
        "-tp",
        "--target_path",
        help="Folder of the device's dump files; in training, dump_path/time; of TorchAir the GE"
        " dump.",
        rich_help_panel=_PANEL,
    ),
]
GoldenPath = Annotated[
    Path | None,
    typer.Option(
        "-gp",
        "--golden_path",
        help="Folder of the original model's .npy files, or of another device's dump; of TorchAir"
        " the FX dump or a GE dump without fusion.",
        rich_help_panel=_PANEL,
    ),
]
FusionRule = Annotated[
    Path | None,
    typer.Option(
        "-fr",
        "--fusion_rule_file",
        help="JSON that ATC makes of the model; in training, a folder of them.",
        rich_help_panel=_PANEL,
    ),
]
CloseFusionRule = Annotated[
    Path | None,
    typer.Option(
        "-cfr",
        "--close_fusion_rule_file",
        help="The same of the model without fusion, whose dump is -gp.",
        rich_help_panel=_PANEL,
    ),
]
QuantFusionRule = Annotated[
    Path | None,
    typer.Option(
        "-qfr",
        "--quant_fusion_rule_file",
        help="JSON of the quantizing tool.",
        rich_help_panel=_PANEL,
    ),
]
Overflow = Annotated[
    bool,
    typer.Option(
        "-overflow_detection",
        "--overflow_detection",
        help="Add the column OverFlow.",
        rich_help_panel=_PANEL,
    ),
]
Advisor = Annotated[
    bool,
    typer.Option(
        "-advisor", "--advisor", help="Write advisor_summary.txt too.", rich_help_panel=_PANEL
    ),
]
OpName = Annotated[
    str | None,
    typer.Option(
        "-op",
        "--op_name",
        help="Write every element of this device op, and the worst of them.",
        rich_help_panel=_PANEL,
    ),
]
TopN = Annotated[
    int,
    typer.Option(
        "-n", "--topn", min=1, max=10000, help="With -op: how many.", rich_help_panel=_PANEL
    ),
]

Dialect = Annotated[
    str | None,
    typer.Option(
        help="torchair: columns of the report, seed (those of the manual) or 26.2.",
        rich_help_panel=_PANEL,
    ),
]
SummaryMode = Annotated[
    str | None,
    typer.Option(
        "--summary_mode",
        help="torchair: columns of the manual for values, statistics or md5.",
        rich_help_panel=_PANEL,
    ),
]
Xlsx = Annotated[
    bool,
    typer.Option(
        "--xlsx", help="torchair: the report as a coloured sheet too.", rich_help_panel=_PANEL
    ),
]


@dataclass(frozen=True)
class Said:
    """The flags of the mode as they were given."""

    mode: str | None
    target_path: Path | None
    golden_path: Path | None
    fusion_rule_file: Path | None
    close_fusion_rule_file: Path | None
    quant_fusion_rule_file: Path | None
    overflow_detection: bool
    advisor: bool
    op_name: str | None
    topn: int
    dialect: str | None = None
    xlsx: bool = False
    summary_mode: str | None = None

    def __bool__(self) -> bool:
        return any(getattr(self, f.name) for f in fields(self) if f.name != "topn")


@dataclass(frozen=True)
class Shown:
    """How to show a comparison."""

    metric: str
    sort: str
    rows: int
    quiet: bool
    csv: Path | None
    json: Path | None
    html: Path | None = None


def refuse(given: dict[str, object]) -> None:
    """Refuse what has no meaning in these modes: nobody should believe that it was heeded."""
    vain = [flag for flag, value in given.items() if value]
    if vain:
        raise InputError("options that dumps of a device know", f"{', '.join(vain)} too")


def compare(
    said: Said,
    positional: tuple[str | None, str | None],
    output: Path | None,
    choice: Choice,
    threads: int,
    shown: Shown,
    fail_on: str,
    min_coverage: float | None,
) -> None:
    """Compare as the flags say, print what was found, and leave with its exit code."""
    from syncpoint import api
    from syncpoint.cli.progress import measuring
    from syncpoint.errors import EXIT_UNCOVERED
    from syncpoint.reports.message import uncovered

    if said.mode is None:
        raise InputError(
            "-m with the flags of a mode", "no mode", "add -m offline_data or -m torchair"
        )
    options.one_of(said.mode, _MODES, "--mode")
    if any(positional):
        raise InputError("folders by -tp and -gp", f"{' '.join(p for p in positional if p)} too")
    if said.target_path is None or said.golden_path is None:
        missing = "-tp" if said.target_path is None else "-gp"
        raise InputError(f"{missing} with the folder of the dump files", "none")
    with measuring() as progress:
        run = _torchair if said.mode == "torchair" else _offline
        found = run(said, output if output is not None else Path(), choice, threads, progress)
    several = len(found) > 1
    if several and (shown.csv or shown.json or shown.html):
        raise InputError("--csv, --json and --html for one comparison", f"{len(found)} of them")
    codes = []
    for outcome in found:
        result = outcome.result
        if min_coverage is not None:
            result = replace(result, min_coverage=min_coverage)
        options.show(
            api.Comparison.of(result),
            metric=shown.metric,
            sort=shown.sort,
            rows=shown.rows,
            quiet=shown.quiet,
            csv=shown.csv,
            json=shown.json,
            html=shown.html,
            saved=outcome.comparison,
        )
        echo(f"report     {outcome.report}")
        for path in outcome.others:
            echo(f"also       {path}")
        codes.append(result.exit_code(fail_on))
        if codes[-1] == EXIT_UNCOVERED:
            echo(f"syncpoint: {uncovered(result)}", err=True)
    # A divergence says more than too little to compare.
    raise typer.Exit(next((code for code in (1, 3) if code in codes), 0))


def _offline(
    said: Said, output: Path, choice: Choice, threads: int, progress: Progress | None
) -> list[Outcome]:
    from syncpoint import api

    assert said.target_path is not None and said.golden_path is not None
    _refuse(said, ("dialect", "xlsx", "summary_mode"), "torchair")
    return api.compare_offline(
        said.target_path,
        said.golden_path,
        fusion_rule=said.fusion_rule_file,
        close_fusion_rule=said.close_fusion_rule_file,
        quant_fusion_rule=said.quant_fusion_rule_file,
        out=output,
        overflow=said.overflow_detection,
        advisor=said.advisor,
        op=said.op_name,
        top=said.topn,
        limits=choice,
        threads=threads,
        progress=progress,
    )


def _torchair(
    said: Said, output: Path, choice: Choice, threads: int, progress: Progress | None
) -> list[Outcome]:
    from syncpoint import api

    assert said.target_path is not None and said.golden_path is not None
    rules = ("fusion_rule_file", "close_fusion_rule_file", "quant_fusion_rule_file")
    _refuse(said, (*rules, "overflow_detection", "advisor", "op_name"), "offline_data")
    return api.compare_torchair(
        said.target_path,
        said.golden_path,
        out=output,
        dialect=options.one_of(said.dialect or _DIALECTS[0], _DIALECTS, "--dialect"),
        summary=options.one_of(said.summary_mode or _SUMMARIES[0], _SUMMARIES, "--summary_mode"),
        xlsx=said.xlsx,
        limits=choice,
        threads=threads,
        progress=progress,
    )


def _refuse(said: Said, names: tuple[str, ...], mode: str) -> None:
    """Flags of the other mode would be passed over without a word."""
    for name in names:
        if getattr(said, name):
            raise InputError(f"--{name} with --mode {mode}", f"--mode {said.mode}")
