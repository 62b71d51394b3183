"""The flags of `syncpoint compare` for Ascend and msProbe dumps, with msProbe's names: refuse flags
of other modes; call the mode or write msProbe's tables.

They are declared only here: the command takes each group as one object, and the function of a mode
gets its arguments from the flags of that mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from syncpoint.errors import InputError

if TYPE_CHECKING:
    from syncpoint.api import Comparison
    from syncpoint.ascend.mode.outcome import Outcome

_PANEL = "Ascend"

_MODES: Mapping[str, Mapping[str, str]] = {
    "offline_data": {
        "fusion_rule_file": "fusion_rule",
        "close_fusion_rule_file": "close_fusion_rule",
        "quant_fusion_rule_file": "quant_fusion_rule",
        "overflow_detection": "overflow",
        "advisor": "advisor",
        "op_name": "op",
        "topn": "top",
    },
    "torchair": {"dialect": "dialect", "summary_mode": "summary", "xlsx": "xlsx"},
}
"""For each mode, its flags and the arguments of its API function that they set."""

_CHOICES = {
    "mode": tuple(_MODES),
    "dialect": ("seed", "26.2"),
    "summary_mode": ("values", "statistics", "md5"),
}


@dataclass(frozen=True, kw_only=True)
class AscendFlags:
    """The flags of `-m offline_data` and `-m torchair`."""

    panel: ClassVar[str] = _PANEL

    mode: Annotated[
        str | None,
        typer.Option(
            "-m",
            "--mode",
            help="Kind of Ascend dumps: offline_data (device files) or torchair (GE dumps).",
        ),
    ] = None
    target_path: Annotated[
        Path | None,
        typer.Option(
            "-tp",
            "--target_path",
            help="Folder with the dump files of the device; for training dumps dump_path/time; for"
            " torchair the GE dump.",
        ),
    ] = None
    golden_path: Annotated[
        Path | None,
        typer.Option(
            "-gp",
            "--golden_path",
            help="Folder with the .npy files of the original model, or with the dump of another"
            " device; for torchair the FX dump or a GE dump without fusion.",
        ),
    ] = None
    fusion_rule_file: Annotated[
        Path | None,
        typer.Option(
            "-fr",
            "--fusion_rule_file",
            help="Rule file (JSON) that ATC writes for the model; for training dumps a folder.",
        ),
    ] = None
    close_fusion_rule_file: Annotated[
        Path | None,
        typer.Option(
            "-cfr",
            "--close_fusion_rule_file",
            help="Rule file of the model without fusion, if its dump is -gp.",
        ),
    ] = None
    quant_fusion_rule_file: Annotated[
        Path | None,
        typer.Option(
            "-qfr", "--quant_fusion_rule_file", help="Rule file (JSON) of the quantizing tool."
        ),
    ] = None
    overflow_detection: Annotated[
        bool,
        typer.Option(
            "-overflow_detection", "--overflow_detection", help="Add the column OverFlow."
        ),
    ] = False
    advisor: Annotated[
        bool, typer.Option("-advisor", "--advisor", help="Also write advisor_summary.txt.")
    ] = False
    op_name: Annotated[
        str | None,
        typer.Option(
            "-op",
            "--op_name",
            help="Write every element of this device op, and the worst elements.",
        ),
    ] = None
    topn: Annotated[
        int,
        typer.Option("-n", "--topn", min=1, max=10000, help="With -op: number of worst elements."),
    ] = 20
    dialect: Annotated[
        str | None,
        typer.Option(help="torchair: columns of the report: seed (as in the manual) or 26.2."),
    ] = None
    summary_mode: Annotated[
        str | None,
        typer.Option(
            "--summary_mode",
            help="torchair: what the columns of the manual compare: values, statistics or md5.",
        ),
    ] = None
    xlsx: Annotated[
        bool, typer.Option("--xlsx", help="torchair: also write the report as a coloured sheet.")
    ] = False

    def __bool__(self) -> bool:
        # A configured --topn alone does not choose a mode.
        return any(getattr(self, field.name) for field in fields(self) if field.name != "topn")


@dataclass(frozen=True)
class MsprobeTables:
    """The msProbe tables to write for a comparison of two msProbe dumps."""

    panel: ClassVar[str] = _PANEL

    msprobe_csv: Annotated[
        Path | None,
        typer.Option(help="For two msProbe dumps of PyTorch: also write the table of msProbe."),
    ] = None
    msprobe_xlsx: Annotated[
        Path | None, typer.Option(help="Also write that table as a coloured sheet (extra xlsx).")
    ] = None

    def __bool__(self) -> bool:
        return self.msprobe_csv is not None or self.msprobe_xlsx is not None

    def check(self, target: str, reference: str) -> None:
        """Refuse inputs that have no such table before they are compared. A run is accepted: it may
        come from an msProbe dump."""
        if not self:
            return
        from syncpoint.ascend.sheets import require_xlsx
        from syncpoint.dumps.registry import find_format

        if self.msprobe_xlsx is not None:
            require_xlsx("--msprobe-xlsx")
        for side in map(Path, (target, reference)):
            dump_format = find_format(side) if side.exists() else None
            if dump_format is None or dump_format.name not in ("msprobe", "run"):
                problem = "is not an msProbe dump" if side.exists() else "does not exist"
                raise InputError(
                    f"{side} {problem}: the msProbe table needs two msProbe dumps",
                    cure="give two msProbe dumps, or leave out --msprobe-csv and --msprobe-xlsx",
                )

    def write(self, comparison: Comparison) -> None:
        """Write the requested tables; the comparison holds its runs."""
        if not self:
            return
        from syncpoint import api

        runs = comparison.run_references.alive()
        api.write_msprobe_tables(
            runs["target"], runs["reference"], csv=self.msprobe_csv, xlsx=self.msprobe_xlsx
        )


def compare_dumps(
    flags: AscendFlags, positional: tuple[str | None, str | None], **options: Any
) -> list[Outcome]:
    """Compare the dumps that the flags name; `options` are the common arguments of the modes."""
    from syncpoint import api

    if flags.mode is None:
        raise InputError(
            "comparing Ascend dumps needs a mode",
            cure="add -m offline_data for device dumps or -m torchair for TorchAir",
        )
    _check_choice(flags, "mode")
    if any(positional):
        paths = " ".join(path for path in positional if path)
        raise InputError(
            f"positional paths do not apply with -m: {paths}",
            cure="give the folders with -tp and -gp",
        )
    if flags.target_path is None or flags.golden_path is None:
        missing = "-tp" if flags.target_path is None else "-gp"
        raise InputError(
            f"{missing} is missing", cure=f"give the folder of the dump files with {missing}"
        )
    compare = api.compare_torchair if flags.mode == "torchair" else api.compare_offline
    return compare(flags.target_path, flags.golden_path, **_mode_arguments(flags), **options)


def _mode_arguments(flags: AscendFlags) -> dict[str, Any]:
    """The arguments of the function of the mode; refuse the flags of other modes."""
    for mode, names in _MODES.items():
        for name in names:
            if mode != flags.mode and name != "topn" and getattr(flags, name):
                raise InputError(
                    f"--{name} applies only to --mode {mode}, not to --mode {flags.mode}",
                    cure=f"leave --{name} out",
                )
    arguments = {}
    for name, argument in _MODES[str(flags.mode)].items():
        value = getattr(flags, name)
        if value is not None:
            _check_choice(flags, name)
            arguments[argument] = value
    return arguments


def _check_choice(flags: AscendFlags, name: str) -> None:
    value, allowed = getattr(flags, name), _CHOICES.get(name)
    if allowed is not None and value not in allowed:
        raise InputError(
            f"{value!r} is not a valid value of --{name}", cure=f"use {' or '.join(allowed)}"
        )
