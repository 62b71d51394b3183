"""`syncpoint compare`: pair the tensors of two runs, measure them, say who is guilty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from syncpoint import cli
from syncpoint.cli import offline, options
from syncpoint.cli.output import echo
from syncpoint.errors import InputError
from syncpoint.supervision.channel import scratch_folder


def compare(
    target: Annotated[
        str | None, typer.Argument(help="The run you ship: a run, a dump, or a model to capture.")
    ] = None,
    reference: Annotated[
        str | None, typer.Argument(help="The run you trust: a run, a dump, or a model to capture.")
    ] = None,
    mode: offline.Mode = None,
    target_path: offline.TargetPath = None,
    golden_path: offline.GoldenPath = None,
    fusion_rule_file: offline.FusionRule = None,
    close_fusion_rule_file: offline.CloseFusionRule = None,
    quant_fusion_rule_file: offline.QuantFusionRule = None,
    overflow_detection: offline.Overflow = False,
    advisor: offline.Advisor = False,
    op_name: offline.OpName = None,
    topn: offline.TopN = 20,
    dialect: offline.Dialect = None,
    xlsx: offline.Xlsx = False,
    summary_mode: offline.SummaryMode = None,
    inputs: options.Inputs = None,
    shape: options.Shapes = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            "--output_path",
            help="Keep the comparison as NAME.cmp; with --mode, the folder of the report.",
        ),
    ] = None,
    target_set: Annotated[
        list[str] | None, typer.Option(help="Option of the target's runtime, KEY=VALUE.")
    ] = None,
    reference_set: Annotated[
        list[str] | None, typer.Option(help="Option of the reference's runtime, KEY=VALUE.")
    ] = None,
    metric: options.Metric = "psnr",
    preset: options.Preset = "auto",
    limits: options.Limits = None,
    fail_on: options.FailOn = "large",
    map_: Annotated[
        Path | None, typer.Option("--map", help="YAML file with pairs to pin and names to ignore.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Leave out ops whose name or module matches.")
    ] = None,
    introduced: Annotated[
        str,
        typer.Option(
            help="local: find what each op added; replay: the same by feeding the target's ops the"
            " reference's values; off: total error only."
        ),
    ] = "local",
    reference_model: Annotated[
        str | None,
        typer.Option(help="The model a recorded reference came from, to run its ops again."),
    ] = None,
    through: Annotated[
        str | None,
        typer.Option(
            help="A run, dump or model between the two, such as the quantized program in PyTorch:"
            " splits each error in compression and runtime."
        ),
    ] = None,
    no_confirm: Annotated[
        bool,
        typer.Option(
            "--no-confirm", help="Do not run models again to confirm pairs found by values alone."
        ),
    ] = False,
    no_diagnose: Annotated[
        bool, typer.Option("--no-diagnose", help="Do not look for the causes of what differs.")
    ] = False,
    min_coverage: options.MinCoverage = None,
    no_store: Annotated[
        bool, typer.Option("--no-store", help="Do not keep the runs of models captured here.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted comparison in -o.")
    ] = False,
    timeout: options.Timeout = None,
    memory: options.Memory = None,
    threads: Annotated[int, typer.Option(min=0, help="Threads to measure with; 0: all.")] = 0,
    msprobe_csv: Annotated[
        Path | None,
        typer.Option(help="Of two dumps of msProbe for PyTorch: write that tool's own table too."),
    ] = None,
    msprobe_xlsx: Annotated[
        Path | None, typer.Option(help="The same table as a coloured sheet (extra xlsx).")
    ] = None,
    csv: options.Csv = None,
    json: options.Json = None,
    html: options.Html = None,
    rows: options.Rows = 24,
    sort: options.Sort = "similarity",
    quiet: options.Quiet = False,
) -> None:
    """Compare a target with a reference and say where they part."""
    options.set_limits(timeout, memory)
    from syncpoint import api
    from syncpoint.cli.progress import measuring
    from syncpoint.comparison.progress_log import can_resume

    options.check(metric, sort, fail_on)
    said = offline.Said(
        mode,
        target_path,
        golden_path,
        fusion_rule_file,
        close_fusion_rule_file,
        quant_fusion_rule_file,
        overflow_detection,
        advisor,
        op_name,
        topn,
        dialect,
        xlsx,
        summary_mode,
    )
    if said:
        offline.refuse(
            {
                **{"--inputs": inputs, "--shape": shape, "--target-set": target_set},
                **{"--reference-set": reference_set, "--map": map_, "--ignore": ignore},
                **{"--introduced": introduced != "local", "--reference-model": reference_model},
                **{"--through": through, "--no-confirm": no_confirm, "--no-store": no_store},
                **{"--resume": resume, "--no-diagnose": no_diagnose, "--msprobe-csv": msprobe_csv},
                **{"--msprobe-xlsx": msprobe_xlsx},
            }
        )
        shown = offline.Shown(metric, sort, rows, quiet, csv, json, html)
        offline.compare(
            said,
            (target, reference),
            output,
            api.choice(preset, limits),
            threads,
            shown,
            fail_on,
            min_coverage,
        )
        return
    if target is None or reference is None:
        raise InputError(
            "TARGET and REFERENCE",
            "nothing" if target is None else f"{target} alone",
            "syncpoint compare TARGET REFERENCE, or see syncpoint compare --help",
        )
    if msprobe_csv is not None or msprobe_xlsx is not None:
        from syncpoint.dumps.msprobe.table import write_table

        write_table(target, reference, msprobe_csv, msprobe_xlsx)
    if resume and output is not None and not can_resume(output):
        echo(f"note: nothing to resume at {output}: starting from nothing", err=True)
    if output is not None:
        cli.after_interrupt = f"to go on, give the same command with --resume ({output})"
    with _kept(output, html) as kept, measuring() as progress:
        comparison = api.compare(
            target,
            reference,
            inputs=inputs,
            preset=preset,
            limits=limits,
            map=map_,
            ignore=ignore or (),
            introduced=introduced,
            reference_model=reference_model,
            through=through,
            confirm=not no_confirm,
            target_options=options.settings(target_set, "--target-set"),
            reference_options=options.settings(reference_set, "--reference-set"),
            shapes=options.shapes(shape),
            out=kept,
            store=None if no_store else kept,
            resume=resume,
            diagnose=not no_diagnose,
            min_coverage=min_coverage,
            threads=threads,
            progress=progress,
        )
        options.show(
            comparison,
            metric=metric,
            sort=sort,
            rows=rows,
            quiet=quiet,
            csv=csv,
            json=json,
            html=html,
            saved=output,
        )
    options.finish(comparison, fail_on)


@contextmanager
def _kept(output: Path | None, html: Path | None) -> Iterator[Path | None]:
    """Where the comparison and its runs are kept: a report shows tensors, and where nobody asked
    to keep the runs they live until it is written."""
    if output is not None or html is None:
        yield output
        return
    with scratch_folder() as folder:
        yield Path(folder) / f"{html.stem}.cmp"
