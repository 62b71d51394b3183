"""The Python API: the public functions of INTERFACE.md (`compare`, `capture`, `convert`, `view`,
`bisect`, `record` and more), each passes its arguments on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.api_results import Analysis, Bisection, Comparison
from syncpoint.comparison.events import Progress, Watch, sink_for
from syncpoint.comparison.result import Result
from syncpoint.errors import InputError, SyncpointError, contain_exit
from syncpoint.workflow.capture import GIVE_INPUTS, capture, open_run
from syncpoint.workflow.compare import compare_sides
from syncpoint.workflow.compare_request import (
    ComparisonRequest,
    ComparisonSettings,
    choose_limits,
    read_map,
)
from syncpoint.workflow.diagnose import SECONDS, Models, collect_runs, diagnose_again

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from syncpoint.ascend.mode.outcome import Outcome
    from syncpoint.bisection.result import Cut
    from syncpoint.reducing.result import Reduced
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs.shapes import InputShape
    from syncpoint.server.server_thread import ServedComparison
    from syncpoint.workflow.convert import Conversion
    from syncpoint.workflow.installation import Installation
    from syncpoint.workflow.manual_recording import Recording
    from syncpoint.workflow.verify import Verification


def open_comparison(path: str | Path) -> Comparison:
    """Open a saved comparison."""
    from syncpoint.comparison.storage.comparison_folder import load

    return Comparison.of(load(Path(path)))


def view(path: str | Path, *, port: int | None = None, browser: bool = True) -> ServedComparison:
    """Show a saved comparison in the browser; its rows are read when the page needs them.

    The server runs in a thread until `stop()` or the end of the interpreter.
    """
    from syncpoint.server.server_thread import serve_in_thread

    return serve_in_thread(Path(path), port, browser)


def convert(source: Run | str | Path, out: str | Path, *, to: str) -> Conversion:
    """Write a run or a dump in another format: npz, safetensors, npy, aimodelintermediates, run.

    Tensors without values are left out, except in the format run. An existing `out` is never
    replaced.
    """
    from syncpoint.workflow.convert import convert as convert_run

    return convert_run(_open_if_path(source), Path(out), to)


def doctor() -> Installation:
    """Describe this installation: versions, runtimes with their options, dump formats."""
    from syncpoint.workflow.installation import describe_installation

    return describe_installation()


def write_msprobe_tables(
    target: Run | str | Path,
    reference: Run | str | Path,
    *,
    csv: str | Path | None = None,
    xlsx: str | Path | None = None,
) -> None:
    """Write the table of `msprobe compare` for two dumps of msProbe: as CSV, as a coloured sheet
    (needs the extra `xlsx`), or both."""
    from syncpoint.ascend.msprobe.write_table import write_tables
    from syncpoint.ascend.sheets import require_xlsx

    if xlsx is not None:
        require_xlsx("--msprobe-xlsx")  # before the dumps are read
    write_tables(_open_if_path(target), _open_if_path(reference), _path(csv), _path(xlsx))


@contain_exit()
def session(
    target: str = "",
    reference: str = "",
    *,
    folders: Sequence[str | Path] = (".",),
    out: str | Path = "comparisons",
    timeout: float | None = None,
    max_bytes: int | None = None,
    port: int | None = None,
    browser: bool = True,
    say: Callable[[str], None] = print,
) -> None:
    """Compare models, runs and dumps in the browser, until interrupted.

    Only files in `folders` and `out` can be chosen. A comparison that takes longer than `timeout`
    seconds or more than `max_bytes` of memory is ended. `say` is called with the address.
    """
    from syncpoint.server.run_server import require_web, serve

    require_web("session")
    from syncpoint.server.session import open_session
    from syncpoint.server.worker_process import ProcessLimits

    limits = ProcessLimits(timeout, max_bytes)
    roots = [Path(folder) for folder in folders]
    opened, library = open_session(roots, Path(out), target, reference, limits)
    serve(library, "/", say, port=port, browser=browser, session=opened)


def verify(path: str | Path) -> Verification:
    """Recompute every checksum of a run, a dump or a comparison. The result lists what is damaged,
    what was verified, and what has no checksum."""
    from syncpoint.workflow.verify import verify as verify_path

    return verify_path(path)


def record(
    path: str | Path,
    *,
    rank: int | None = None,
    record: str = "values",
    filter: str | None = None,
    max_bytes: int | None = None,
    overwrite: bool = False,
    model: str = "",
    runtime: str = "by hand",
) -> Recording:
    """Record any engine by hand: returns a context manager that records tensors by name.

    A run has one writer: with `rank` the run is `NAME.rankN.run`. Reports show `model` and
    `runtime`. The other options are those of `capture`.
    """
    from syncpoint.workflow.manual_recording import Recording

    return Recording(
        path,
        rank=rank,
        record=record,
        filter=filter,
        max_bytes=max_bytes,
        overwrite=overwrite,
        model=model,
        runtime=runtime,
    )


@contain_exit()
def save_intermediates(
    program: ExportedProgram,
    inputs: tuple[Any, ...] | list[Any],
    output_dir: str | Path,
    node_filter: Callable[[Node, Any], bool] | None = None,
    coreai_program: Any = None,
    enable_autocast: bool = False,
    model_name: str = "main",
) -> str:
    """Run an exported program and write `MODEL_NAME.aimodelintermediates` into `output_dir`.

    Returns the path of its metadata.json. The signature is Apple's: with a `node_filter` the files
    are byte for byte those of Apple's function; None writes all nodes.
    """
    from importlib.util import find_spec

    from syncpoint.errors import MissingExtra

    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch", "save_intermediates")
    from syncpoint.intermediates.save_intermediates import save_intermediates as save

    return save(
        program, inputs, output_dir, node_filter, coreai_program, enable_autocast, model_name
    )


@contain_exit()
def compare(
    target: object,
    reference: object,
    *,
    inputs: object = None,
    target_inputs: object = None,
    preset: str = "auto",
    limits: str | Path | None = None,
    map: str | Path | Mapping[str, Any] | None = None,
    ignore: tuple[str, ...] | list[str] | str = (),
    introduced: str = "local",
    reference_model: object = None,
    through: object = None,
    confirm: bool = True,
    target_options: Mapping[str, Any] | None = None,
    reference_options: Mapping[str, Any] | None = None,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: bool = False,
    diagnose: bool = True,
    min_coverage: float | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    watch: Watch | None = None,
    keep_runs: bool = False,
) -> Comparison:
    """Compare two runs, dumps or models. Models are captured first, into `store` if it is set.

    `inputs`: of both models; of inputs by name each model takes those that it has.
    `target_inputs`: those of the target, if it takes other ones than the reference.
    `out`: the folder to save the comparison in; progress is saved there too while it runs.
    `resume`: continue a comparison that was interrupted in `out`: same arguments, same result.
    `through`: a third run, dump or model between the two, such as the quantized program in
    PyTorch. It splits each error into the cost of compression and the error of the runtime.
    `confirm`: run both models once more, on another input, if tensors are paired by values alone.
    `diagnose`: look for the causes of differences. Models captured here may be run again for it.
    The time limit is `syncpoint.workflow.diagnose.SECONDS`. If the diagnosis fails,
    `diagnosis.troubles` says so, and the comparison, saved before, stays.
    `min_coverage`: the share of each side that must be compared to pass (default: METRICS.md).
    Below it the exit code is 3, and the verdict holds only for what was compared.
    `progress`: called with the number of measured sync points and their total; `watch`: called
    for every stage.
    `keep_runs`: the comparison keeps its runs as long as it lives. Reports then show the tensors
    of models that were captured here, and need not open recordings again.
    """
    settings = ComparisonSettings(
        choice=choose_limits(preset, limits),
        map_file=read_map(map, (ignore,) if isinstance(ignore, str) else tuple(ignore)),
        introduced=introduced,
        confirm=confirm,
        diagnose=diagnose,
        min_coverage=min_coverage,
        threads=threads,
        out=_path(out),
        store=_path(store),
        resume=resume,
    )
    request = ComparisonRequest(
        target=target,
        reference=reference,
        inputs=inputs,
        target_inputs=target_inputs,
        target_options=target_options or {},
        reference_options=reference_options or {},
        shapes=shapes or {},
        reference_model=reference_model,
        through=through,
    )
    outcome = compare_sides(request, settings, sink_for(progress, watch))
    runs = {side.role: side.run for side in (outcome.target, outcome.reference)}
    return Comparison.of(outcome.result, runs, keep_runs=keep_runs)


@contain_exit()
def diagnose(
    comparison: Result | str | Path,
    *,
    target_model: object = None,
    reference_model: object = None,
    target_options: Mapping[str, Any] | None = None,
    reference_options: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    preprocess: tuple[object, object] | None = None,
    raw: object = None,
    keep_runs: bool = False,
) -> Comparison:
    """Look for the causes of differences; returns the comparison with `diagnosis` and `findings`.

    Runs that the caller still holds are used, with the models that they were captured from; other
    runs are opened by their paths. Other models are run again, for experiments, only if they are
    named here; after `seconds` no new experiment starts. `preprocess` is two functions, the
    target's first; both are run on the sample `raw` to compare the inputs that they prepare.
    `keep_runs` is that of `compare`.
    """
    if isinstance(comparison, str | Path):
        comparison = open_comparison(comparison)
    live_runs = comparison.run_references.alive() if isinstance(comparison, Comparison) else {}
    sides = collect_runs(comparison, live_runs)
    models = Models(target_model, reference_model, target_options or {}, reference_options or {})
    preprocessing = {"preprocess": preprocess, "raw": raw} if preprocess is not None else {}
    diagnosed = diagnose_again(comparison, sides, models, seconds, **preprocessing)
    return Comparison.of(diagnosed, sides.runs, keep_runs=keep_runs)


@contain_exit()
def bisect(
    target: object,
    reference: object,
    *,
    inputs: object = None,
    preset: str = "auto",
    limits: str | Path | None = None,
    target_options: Mapping[str, Any] | None = None,
    reference_options: Mapping[str, Any] | None = None,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    told: Callable[[Cut], None] | None = None,
) -> Bisection:
    """Find the first bad op of a model that shows only its outputs.

    The target, an ONNX or a PyTorch model, is truncated at one tensor after another and run; this
    takes about log2(number of ops) runs. With `out` the truncated models are saved there. `told`
    is called after every run.
    """
    from syncpoint.bisection.bisect import bisect as bisect_models

    folder = _path(out)
    bisected = bisect_models(
        target,
        reference,
        inputs,
        target_options or {},
        reference_options or {},
        shapes or {},
        choose_limits(preset, limits),
        folder,
        told,
    )
    bisection = Bisection.of(bisected)
    if folder is not None:
        bisection.to_json(folder / "bisection.json")
    return bisection


def compare_offline(
    target: str | Path,
    golden: str | Path,
    *,
    fusion_rule: str | Path | None = None,
    close_fusion_rule: str | Path | None = None,
    quant_fusion_rule: str | Path | None = None,
    out: str | Path = ".",
    overflow: bool = False,
    advisor: bool = False,
    op: str | None = None,
    top: int = 20,
    preset: str = "auto",
    limits: str | Path | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compare the dumps of an Ascend device with those of its original model or of another build.

    Writes the report as CSV and the comparison into `out`, one of each for every model of a
    training dump. `preset` and `limits` are those of `compare`.
    """
    from syncpoint.ascend.mode.offline_data.options import OfflineFlags
    from syncpoint.ascend.mode.offline_data.training_batch import compare_all

    return compare_all(
        OfflineFlags(
            target=Path(target),
            golden=Path(golden),
            fusion_rule=_path(fusion_rule),
            close_fusion_rule=_path(close_fusion_rule),
            quant_fusion_rule=_path(quant_fusion_rule),
            output=Path(out),
            overflow=overflow,
            advisor=advisor,
            op=op,
            top=top,
            threads=threads,
        ),
        choose_limits(preset, limits),
        progress,
    )


def compare_torchair(
    target: str | Path,
    golden: str | Path,
    *,
    out: str | Path = ".",
    dialect: str = "seed",
    summary: str = "values",
    xlsx: bool = False,
    preset: str = "auto",
    limits: str | Path | None = None,
    threads: int = 0,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compare a GE dump of TorchAir with its FX dump, or with a GE dump without fusion.

    Writes a report as CSV, with `xlsx` also as a coloured sheet, and the comparison into `out`, one
    of each for every rank. `dialect` selects the columns of the report: `seed` (those of the
    manual) or `26.2`. `summary` selects what the columns of `seed` are computed from: `values`,
    `statistics` or `md5`. `preset` and `limits` are those of `compare`.
    """
    from syncpoint.ascend.mode.torchair.mode import compare_torchair as compare_all
    from syncpoint.ascend.mode.torchair.options import Dialect, Summary, TorchairFlags

    _check_choice("dialect", dialect, [str(name) for name in Dialect])
    _check_choice("summary", summary, [str(name) for name in Summary])
    if dialect != Dialect.SEED and summary != Summary.VALUES:
        raise InputError(
            f"--summary_mode {summary} works only with --dialect seed, not with {dialect}",
            cure="use --dialect seed or --summary_mode values",
        )
    flags = TorchairFlags(
        target=Path(target),
        golden=Path(golden),
        output=Path(out),
        dialect=Dialect(dialect),
        xlsx=xlsx,
        threads=threads,
        summary=Summary(summary),
    )
    return compare_all(flags, choose_limits(preset, limits), progress)


@contain_exit()
def analyze(
    model: object,
    inputs: object = None,
    *,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    save_intermediates: bool = True,
    emulate_precision_casts: bool = False,
    contribution: int = 5,
    **options: Any,
) -> Analysis:
    """Run a model compiled, eager and in float64 on the same inputs, and say which one is right.

    `options` are those of the runtime inductor, such as backend, dtype and config. With `out`
    the runs and the comparison are saved in that folder.
    """
    from syncpoint.analysis.analyze import analyze as analyze_runs
    from syncpoint.analysis.runs import load_repro

    repro = load_repro(model)
    if repro is not None:
        model, inputs = repro.model, repro.inputs if inputs is None else inputs
    if inputs is None:
        raise InputError("there are no inputs to run the model with", cure=GIVE_INPUTS)
    runs = analyze_runs(
        model,
        inputs,
        options=options,
        shapes=shapes,
        out=out,
        save_intermediates=save_intermediates,
        emulate_precision_casts=emulate_precision_casts,
        contribution=contribution,
    )
    analysis = Analysis.of(runs, list(repro.notes) if repro is not None else [])
    if out is not None:
        folder = Path(out)
        analysis.comparison.save(folder / "compiled.cmp", overwrite=True)
        analysis.to_json(folder / "analysis.json")
    return analysis


def reduce(
    source: str | Path,
    to: str = "statistics",
    out: str | Path | None = None,
    *,
    watch: bool = False,
    delete: bool = False,
    until_idle: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Reduced:
    """Reduce a run or a dump to statistics, digests or minima and maxima (`to`: statistics, digest
    or min-max).

    The first two write a run to `out` (default: `NAME.statistics.run`); min-max writes a small
    file for each file, next to it or below `out`. With `watch` it continues while the dump is being
    written, until the source is complete, nothing was added for `until_idle` seconds, or Ctrl-C.
    `delete` removes each file after its reduced form is on the disk and verified. However it
    ended, the same call continues where it stopped.
    """
    from syncpoint.reducing.reduce import reduce as reduce_files

    return reduce_files(
        Path(source),
        to,
        _path(out),
        watch=watch,
        delete=delete,
        until_idle=until_idle,
        progress=progress,
    )


def _open_if_path(source: Run | str | Path) -> Run:
    return open_run(source) if isinstance(source, str | Path) else source


def _check_choice(option: str, value: str, choices: list[str]) -> None:
    if value not in choices:
        raise InputError(
            f"there is no {option} {value!r}", cure=f"use one of: {', '.join(choices)}"
        )


def _path(name: str | Path | None) -> Path | None:
    return None if name is None else Path(name)


__all__ = [
    "Analysis",
    "Bisection",
    "Comparison",
    "SyncpointError",
    "analyze",
    "bisect",
    "capture",
    "choose_limits",
    "compare",
    "compare_offline",
    "compare_torchair",
    "convert",
    "diagnose",
    "doctor",
    "open_comparison",
    "open_run",
    "record",
    "reduce",
    "save_intermediates",
    "session",
    "verify",
    "view",
    "write_msprobe_tables",
]
