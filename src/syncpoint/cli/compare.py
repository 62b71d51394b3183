"""The command `syncpoint compare`: its flags for models, pairing, errors and storage, Ascend's
modes (refused flags, joint exit code), and `--resume`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from syncpoint import cli
from syncpoint.ascend.cli import AscendFlags, MsprobeTables, compare_dumps
from syncpoint.cli import options
from syncpoint.cli.option_groups import used_flags
from syncpoint.cli.output import echo
from syncpoint.cli.show_comparison import exit_with_verdict, explain_exit_code, show_comparison
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED, InputError

if TYPE_CHECKING:
    from syncpoint.ascend.mode.outcome import Outcome


@dataclass(frozen=True)
class ModelOptions:
    """Inputs of the target, and models and runs besides the two that are compared."""

    panel: ClassVar[str] = options.INPUTS

    target_inputs: Annotated[
        str | None,
        typer.Option(
            help="Inputs of the target if it takes other ones than the reference, in the forms of"
            " --inputs (default: the inputs of --inputs that it has)."
        ),
    ] = None
    reference_model: Annotated[
        str | None,
        typer.Option(help="Model of a recorded reference; needed to measure introduced error."),
    ] = None
    through: Annotated[
        str | None,
        typer.Option(
            help="Run, dump or model between the two, such as the quantized program in PyTorch:"
            " splits each error into compression and runtime."
        ),
    ] = None


@dataclass(frozen=True)
class PairingOptions:
    """How the tensors are paired."""

    panel: ClassVar[str] = options.PAIRING

    map_: Annotated[
        Path | None,
        typer.Option(
            "--map",
            help="YAML file that pins pairs, ignores or masks tensors (see docs/matching.md).",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave out ops whose name or module matches this regular expression; repeatable."
        ),
    ] = None
    no_confirm: Annotated[
        bool,
        typer.Option(
            "--no-confirm",
            help="Skip the second execution that confirms pairs found by values alone.",
        ),
    ] = False


@dataclass(frozen=True)
class ErrorOptions:
    """What to find out about the errors."""

    panel: ClassVar[str] = options.VERDICT

    introduced: Annotated[
        str,
        typer.Option(
            help="How to measure the error that each op adds. local: the reference's op on the"
            " target's inputs; replay: the target's op on the reference's inputs; off: not at all."
        ),
    ] = "local"
    no_diagnose: Annotated[
        bool, typer.Option("--no-diagnose", help="Skip the search for causes.")
    ] = False


@dataclass(frozen=True)
class StorageOptions:
    """What to keep besides the comparison."""

    panel: ClassVar[str] = options.OUTPUT

    no_store: Annotated[
        bool, typer.Option("--no-store", help="Delete the runs that this command captures.")
    ] = False
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted comparison in -o.")
    ] = False


def compare(
    target: Annotated[
        str | None, typer.Argument(help="What you ship: a run, a dump, or a model to capture.")
    ] = None,
    reference: Annotated[
        str | None, typer.Argument(help="What you trust: a run, a dump, or a model to capture.")
    ] = None,
    *,
    samples: options.InputOptions,
    sides: options.SideOptions,
    models: ModelOptions,
    pairing: PairingOptions,
    judge_by: options.LimitOptions,
    exit_rule: options.ExitOptions,
    errors: ErrorOptions,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--output_path",
            help="Save the comparison as NAME.cmp; with --mode, the folder of the report.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    storage: StorageOptions,
    table: options.TableOptions,
    files: options.ReportFiles,
    resources: options.ResourceOptions,
    threads: Annotated[
        int,
        typer.Option(
            min=0,
            help="Threads for measuring; 0 uses all cores.",
            rich_help_panel=options.RESOURCES,
        ),
    ] = 0,
    ascend: AscendFlags,
    msprobe: MsprobeTables,
) -> None:
    """Compare a target with a reference and show where they diverge."""
    resources.apply()
    from syncpoint import api
    from syncpoint.cli.progress import measuring

    table.check()
    exit_rule.check()
    if ascend:
        _refuse(used_flags(samples, sides, models, pairing, errors, storage, msprobe))
        with measuring() as progress:
            outcomes = compare_dumps(
                ascend,
                (target, reference),
                out=Path() if output is None else output,
                preset=judge_by.preset,
                limits=judge_by.limits,
                threads=threads,
                progress=progress,
            )
        raise typer.Exit(_show_outcomes(outcomes, table, files, exit_rule))
    if target is None or reference is None:
        raise InputError(
            "compare needs a target and a reference, but "
            + ("neither was given" if target is None else f"only {target} was given"),
            cure="use syncpoint compare TARGET REFERENCE, or see syncpoint compare --help",
        )
    msprobe.check(target, reference)
    _announce_resume(output, storage.resume)
    with measuring() as progress:
        comparison = api.compare(
            target,
            reference,
            inputs=samples.inputs,
            target_inputs=models.target_inputs,
            preset=judge_by.preset,
            limits=judge_by.limits,
            map=pairing.map_,
            ignore=pairing.ignore or (),
            introduced=errors.introduced,
            reference_model=models.reference_model,
            through=models.through,
            confirm=not pairing.no_confirm,
            target_options=sides.target_options(),
            reference_options=sides.reference_options(),
            shapes=samples.shapes(),
            out=output,
            store=None if storage.no_store else output,
            resume=storage.resume,
            diagnose=not errors.no_diagnose,
            min_coverage=exit_rule.min_coverage,
            threads=threads,
            progress=progress,
            keep_runs=True,
        )
        msprobe.write(comparison)
        show_comparison(comparison, table, files, saved=output)
    exit_with_verdict(comparison, exit_rule.fail_on)


def _refuse(flags: list[str]) -> None:
    """Refuse flags without a meaning for Ascend's modes, which would have no effect."""
    if flags:
        raise InputError(
            f"{', '.join(flags)} cannot be used with --mode", cure="leave out these options"
        )


def _show_outcomes(
    outcomes: list[Outcome],
    table: options.TableOptions,
    files: options.ReportFiles,
    exit_rule: options.ExitOptions,
) -> int:
    """Show every comparison of a mode, and return the exit code of all of them."""
    from syncpoint import api

    if len(outcomes) > 1 and files != options.ReportFiles():
        raise InputError(
            f"--csv, --json and --html take one comparison, but there are {len(outcomes)}",
            cure="give the dumps of one rank or step, or leave out these options",
        )
    codes = set()
    for outcome in outcomes:
        result = outcome.result
        if exit_rule.min_coverage is not None:
            result = replace(result, min_coverage=exit_rule.min_coverage)
        show_comparison(api.Comparison.of(result), table, files, saved=outcome.comparison)
        echo(f"report     {outcome.report}")
        for path in outcome.others:
            echo(f"also       {path}")
        codes.add(explain_exit_code(result, exit_rule.fail_on))
    # A divergence says more than too little to compare.
    return next((code for code in (EXIT_DIVERGED, EXIT_UNCOVERED) if code in codes), EXIT_CLOSE)


def _announce_resume(output: Path | None, resume: bool) -> None:
    """Say where there is nothing to resume, and how to resume after an interrupt."""
    from syncpoint.comparison.storage.progress_log import can_resume

    if output is None:
        return
    if resume and not can_resume(output):
        echo(f"note: {output} holds nothing to resume; starting from the beginning", err=True)
    cli.after_interrupt = f"to continue, repeat the command with --resume ({output})"
