"""The flags of `syncpoint compare` for Ascend's dumps, under the names that its users know.

They are declared in this file alone: the command takes each group as one object, and a mode gets
the arguments of its function from the flags that belong to it.
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
"""The flags of each mode, and the arguments of its API function that they become."""

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
            help="offline_data: files of a device; torchair: GE dumps of TorchAir.",
        ),
    ] = None
    target_path: Annotated[
        Path | None,
        typer.Option(
            "-tp",
            "--target_path",
            help="Folder of the device's dump files; in training, dump_path/time; of TorchAir the"
            " GE dump.",
        ),
    ] = None
    golden_path: Annotated[
        Path | None,
        typer.Option(
            "-gp",
            "--golden_path",
            help="Folder of the original model's .npy files, or of another device's dump; of"
            " TorchAir the FX dump or a GE dump without fusion.",
        ),
    ] = None
    fusion_rule_file: Annotated[
        Path | None,
        typer.Option(
            "-fr",
            "--fusion_rule_file",
            help="JSON that ATC makes of the model; in training, a folder of them.",
        ),
    ] = None
    close_fusion_rule_file: Annotated[
        Path | None,
        typer.Option(
            "-cfr",
            "--close_fusion_rule_file",
            help="The same of the model without fusion, whose dump is -gp.",
        ),
    ] = None
    quant_fusion_rule_file: Annotated[
        Path | None,
        typer.Option("-qfr", "--quant_fusion_rule_file", help="JSON of the quantizing tool."),
    ] = None
    overflow_detection: Annotated[
        bool,
        typer.Option(
            "-overflow_detection", "--overflow_detection", help="Add the column OverFlow."
        ),
    ] = False
    advisor: Annotated[
        bool, typer.Option("-advisor", "--advisor", help="Write advisor_summary.txt too.")
    ] = False
    op_name: Annotated[
        str | None,
        typer.Option(
            "-op", "--op_name", help="Write every element of this device op, and the worst of them."
        ),
    ] = None
    topn: Annotated[
        int, typer.Option("-n", "--topn", min=1, max=10000, help="With -op: how many.")
    ] = 20
    dialect: Annotated[
        str | None,
        typer.Option(help="torchair: columns of the report, seed (those of the manual) or 26.2."),
    ] = None
    summary_mode: Annotated[
        str | None,
        typer.Option(
            "--summary_mode",
            help="torchair: columns of the manual for values, statistics or md5.",
        ),
    ] = None
    xlsx: Annotated[
        bool, typer.Option("--xlsx", help="torchair: the report as a coloured sheet too.")
    ] = False

    def __bool__(self) -> bool:
        # A configured --topn alone does not choose a mode.
        return any(getattr(self, field.name) for field in fields(self) if field.name != "topn")


@dataclass(frozen=True)
class MsprobeTables:
    """The tables of msProbe to write beside a comparison of two of its dumps."""

    panel: ClassVar[str] = _PANEL

    msprobe_csv: Annotated[
        Path | None,
        typer.Option(help="Of two dumps of msProbe for PyTorch: write that tool's own table too."),
    ] = None
    msprobe_xlsx: Annotated[
        Path | None, typer.Option(help="The same table as a coloured sheet (extra xlsx).")
    ] = None

    def __bool__(self) -> bool:
        return self.msprobe_csv is not None or self.msprobe_xlsx is not None

    def check(self, target: str, reference: str) -> None:
        """Refuse what has no such table before it is compared, as far as can be told without
        opening it: a run may be what became of such a dump."""
        if not self:
            return
        from syncpoint.ascend.sheets import require_xlsx
        from syncpoint.dumps.registry import find_format

        if self.msprobe_xlsx is not None:
            require_xlsx("--msprobe-xlsx")
        for side in map(Path, (target, reference)):
            dump_format = find_format(side) if side.exists() else None
            if dump_format is None or dump_format.name not in ("msprobe", "run"):
                raise InputError(
                    "two dumps of msProbe",
                    str(side) if side.exists() else f"nothing at {side}",
                    "only these have its columns",
                )

    def write(self, comparison: Comparison) -> None:
        """Write the tables that were asked for; the comparison holds its runs."""
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
    """Compare the dumps that the flags name; `options` are those of every mode's API function."""
    from syncpoint import api

    if flags.mode is None:
        raise InputError(
            "-m with the flags of a mode", "no mode", "add -m offline_data or -m torchair"
        )
    _check_choice(flags, "mode")
    if any(positional):
        raise InputError("folders by -tp and -gp", f"{' '.join(p for p in positional if p)} too")
    if flags.target_path is None or flags.golden_path is None:
        missing = "-tp" if flags.target_path is None else "-gp"
        raise InputError(f"{missing} with the folder of the dump files", "none")
    compare = api.compare_torchair if flags.mode == "torchair" else api.compare_offline
    return compare(flags.target_path, flags.golden_path, **_mode_arguments(flags), **options)


def _mode_arguments(flags: AscendFlags) -> dict[str, Any]:
    """The arguments of the mode's function; refuse the flags of other modes."""
    for mode, names in _MODES.items():
        for name in names:
            if mode != flags.mode and name != "topn" and getattr(flags, name):
                raise InputError(f"--{name} with --mode {mode}", f"--mode {flags.mode}")
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
        raise InputError(f"--{name} to be {' or '.join(allowed)}", repr(value))
