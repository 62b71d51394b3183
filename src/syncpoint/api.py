"""The functions people call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.analysis.result import AnalysisResult
from syncpoint.asking import Asked, again, both, in_step, inputs_of, split, tell, with_session
from syncpoint.capturing import GIVE_INPUTS, capture, open_run
from syncpoint.comparison.result import Result
from syncpoint.comparison.stages import Stage, Step, Watch, unwatched
from syncpoint.diagnosing import SECONDS, Models, diagnosed, diagnosed_again
from syncpoint.errors import InputError, SyncpointError, contain_exit
from syncpoint.supervision.channel import scratch_folder

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from syncpoint.bisecting import Bisection
    from syncpoint.comparison.judging import Choice
    from syncpoint.comparison.progress_log import ProgressLog
    from syncpoint.diagnosis.bisection import Cut
    from syncpoint.matching.map_file import MapFile
    from syncpoint.offline.mode import Outcome
    from syncpoint.recording import Recording
    from syncpoint.reducing.outcome import Reduced
    from syncpoint.runtimes.inputs import Shape
    from syncpoint.verification import Verification
    from syncpoint.viewing import View

Progress = Callable[[int, int], None]


class Comparison(Result):
    """A comparison as users hold it: the result, and the ways to show and keep it."""

    @classmethod
    def of(cls, result: Result) -> Comparison:
        """The public form of a result."""
        return cls(**{f.name: getattr(result, f.name) for f in fields(Result)})

    def rejudged(self, choice: Choice) -> Comparison:
        """The same measurements under other limits."""
        return Comparison.of(super().rejudged(choice))

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Keep it as a `.cmp` folder."""
        from syncpoint.comparison.storage import save

        return save(self, Path(path), overwrite)

    def to_csv(self, path: str | Path) -> Path:
        """One line a sync point."""
        from syncpoint.reports.csv_report import write_csv

        return write_csv(self, Path(path))

    def to_json(self, path: str | Path) -> Path:
        """The form for other programs; strict JSON."""
        from syncpoint.reports.json_report import write_json

        return write_json(self, Path(path))

    def to_html(self, path: str | Path) -> Path:
        """The page and all it shows in one file, for a browser without network or server. Tensors
        are previewed where the runs are on disk."""
        from syncpoint.page.opened import Opened
        from syncpoint.page.report import write

        with scratch_folder() as folder:
            saved = self.save(Path(folder) / f"{Path(path).stem}.cmp")
            return write(Opened(saved), Path(path))

    def view(self, port: int | None = None, browser: bool = True) -> View:
        """Look at it in the browser; the server ends with `stop()` or with the interpreter."""
        from syncpoint.viewing import view

        folder = scratch_folder()
        name = str(self.target["model"] or "comparison").rpartition("/")[2].partition(":")[0]
        return view(self.save(Path(folder.name) / f"{name}.cmp"), port, browser, folder)

    def _repr_html_(self) -> str:
        from syncpoint.reports.notebook_report import notebook_html

        return notebook_html(self)

    def __str__(self) -> str:
        from syncpoint.reports.terminal import as_text

        return as_text(self)

    def __repr__(self) -> str:
        from syncpoint.reports.message import verdict_text

        coverage = self.coverage
        return (
            f"<Comparison {verdict_text(self)}: {coverage.compared} of {coverage.target_tensors}"
            f" target and of {coverage.reference_tensors} reference tensors compared>"
        )


class Analysis(AnalysisResult):
    """An analysis as users hold it: what the runs say together, and the ways to show it."""

    @classmethod
    def of(cls, made: AnalysisResult, notes: list[str]) -> Analysis:
        """The public form of an analysis."""
        known = {f.name: getattr(made, f.name) for f in fields(AnalysisResult)}
        return cls(**{**known, "notes": (*notes, *made.notes)})

    @property
    def comparison(self) -> Comparison:
        """The compiled run against the ops of its graph, run one by one."""
        return Comparison.of(self.result)

    def to_json(self, path: str | Path) -> Path:
        """The form for other programs; strict JSON."""
        from syncpoint.reports.analysis_report import write_analysis_json

        return write_analysis_json(self, Path(path))

    def __str__(self) -> str:
        from syncpoint.reports.analysis_report import as_text

        return as_text(self)

    def __repr__(self) -> str:
        from syncpoint.reports.analysis_report import headline

        return f"<Analysis {headline(self)}>"


def open_comparison(path: str | Path) -> Comparison:
    """Open a saved comparison."""
    from syncpoint.comparison.storage import load

    return Comparison.of(load(Path(path)))


def verify(path: str | Path) -> Verification:
    """Compute every checksum of a run, a dump or a comparison again: what is damaged, what was
    verified, and what has no checksum."""
    from syncpoint.verification import verify as verify_path

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
    """Record an engine of any kind by hand: a context manager that takes tensors by name.

    A run has one writer: with `rank` the run is `NAME.rankN.run`. `model` and `runtime` are what
    reports call it. The other options are those of `capture`.
    """
    from syncpoint.recording import Recording

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

    Gives the path of its metadata.json. Apple's signature: with a `node_filter` the files are
    those of Apple's function to the byte; None writes all there is.
    """
    from importlib.util import find_spec

    from syncpoint.errors import MissingExtra

    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch", "save_intermediates")
    from syncpoint.intermediates.saving import save_intermediates as save

    return save(
        program, inputs, output_dir, node_filter, coreai_program, enable_autocast, model_name
    )


@contain_exit()
def compare(
    target: object,
    reference: object,
    *,
    inputs: object = None,
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
    shapes: Mapping[str, Shape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    store: str | Path | None = None,
    resume: bool = False,
    diagnose: bool = True,
    min_coverage: float | None = None,
    threads: int = 0,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Compare two runs, dumps or models (which are captured on the way, into `store` if given).

    With `out` the comparison is kept in that folder, and while it goes on so is what has been
    measured. `resume` goes on with one that was interrupted there: same arguments, same result.
    `through` is a third run, dump or model between the two, such as the quantized program in
    PyTorch: it splits each error in what compressing cost and what the runtime adds.
    `confirm` runs both models once more, on another input, if tensors are paired by values alone.
    `diagnose` looks for the causes of what differs; models captured here may be run again for it.
    It has `syncpoint.diagnosing.SECONDS`; where it fails, `diagnosis.troubles` says so, and the
    comparison, saved before, stays.
    `min_coverage` is the share of each side that must be compared to pass, by default that of
    METRICS.md: without it the exit code is 3 and the verdict holds as far as was compared.
    `progress` is told how many sync points are measured of how many; `watch` of every stage.
    """
    from syncpoint.comparison.engine import Options
    from syncpoint.comparison.engine import compare as compare_runs
    from syncpoint.comparison.storage import is_comparison, keep_diagnosis

    if introduced not in ("local", "replay", "off"):
        raise InputError("introduced to be local, replay or off", repr(introduced))
    if min_coverage is not None and not 0 <= min_coverage <= 1:
        raise InputError("min_coverage from 0 to 1", repr(min_coverage))
    if resume and out is None:
        raise InputError("the folder of a comparison to resume", "none", "name it with -o")
    chosen = choice(preset, limits)
    map_file = _map_file(map, (ignore,) if isinstance(ignore, str) else tuple(ignore))
    asked = Asked(
        target,
        reference,
        inputs,
        target_options or {},
        reference_options or {},
        shapes or {},
        reference_model,
        through,
    )
    told = watch or unwatched
    asked = in_step(asked, told)
    with _logged(out, asked, chosen, map_file, introduced, resume, confirm) as log:
        target_run, reference_run = both(asked, store, resume, introduced != "off", told)
        if reference_model is not None:
            told(Step(Stage.REFERENCE))
            reference_run = with_session(reference_run, reference_model, asked.reference_options)
            tell(told, "reference", reference_run, "opened with its model")
        samples = inputs_of(target_run) if introduced == "replay" else None
        result = compare_runs(
            target_run,
            reference_run,
            Options(
                chosen,
                map_file,
                introduced,
                samples or (),
                threads,
                progress,
                log,
                again(asked, target_run, reference_run) if confirm else None,
                watch=watch,
            ),
        )
        result = replace(result, min_coverage=min_coverage)
        if through is not None:
            result = split(result, target_run, reference_run, asked, Options(chosen, map_file))
        comparison = Comparison.of(result)
        # Saved before the diagnosis, which may fail or be killed; its log goes after that, so that
        # `resume` knows of a diagnosis that is missing.
        if out is not None and not is_comparison(Path(out)):
            comparison.save(out)
        if diagnose:
            result = diagnosed(result, target_run, reference_run, Models.of(asked))
            comparison = Comparison.of(result)
            if out is not None:
                keep_diagnosis(comparison, Path(out))
    return comparison


@contain_exit()
def diagnose(
    comparison: Comparison | str | Path,
    *,
    target_model: object = None,
    reference_model: object = None,
    target_options: Mapping[str, Any] | None = None,
    reference_options: Mapping[str, Any] | None = None,
    seconds: float = SECONDS,
    preprocess: tuple[object, object] | None = None,
    raw: object = None,
) -> Comparison:
    """Look for the causes of what differs: the comparison with `diagnosis` and `findings`.

    Its runs are opened where they still are. Models are run again, for experiments, only where
    they are named here; after `seconds` no more are begun. `preprocess` is two functions, the
    target's first, that are run on the sample `raw` to see how what they prepare differs.
    """
    result = comparison if isinstance(comparison, Result) else open_comparison(comparison)
    models = Models(target_model, reference_model, target_options or {}, reference_options or {})
    given = {"preprocess": preprocess, "raw": raw} if preprocess is not None else {}
    return Comparison.of(diagnosed_again(result, models, seconds, **given))


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
    shapes: Mapping[str, Shape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    told: Callable[[Cut], None] | None = None,
) -> Bisection:
    """Find the first bad op of a model that shows nothing but its outputs.

    The target, an ONNX or a PyTorch model, is cut at one tensor after another and run as it is;
    about log2 of its ops many runs. With `out` the cut models are kept there. `told` hears of
    every run.
    """
    from syncpoint.bisecting import bisect as found_by_cutting

    return found_by_cutting(
        target,
        reference,
        inputs,
        target_options or {},
        reference_options or {},
        shapes or {},
        choice(preset, limits),
        Path(out) if out is not None else None,
        told,
    )


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
    limits: Choice = "auto",
    threads: int = 0,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compare the dumps of an Ascend device with those of its original model or of another build.

    Writes the report as CSV and the comparison beside it into `out`; one of each for every model
    of a training dump.
    """
    from syncpoint.offline.asked import Asked as AskedOffline
    from syncpoint.offline.batch import compare_all

    def path(said: str | Path | None) -> Path | None:
        return None if said is None else Path(said)

    return compare_all(
        AskedOffline(
            Path(target),
            Path(golden),
            path(fusion_rule),
            path(close_fusion_rule),
            path(quant_fusion_rule),
            Path(out),
            overflow,
            advisor,
            op,
            top,
            threads,
        ),
        limits,
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
    limits: Choice = "auto",
    threads: int = 0,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Compare a GE dump of TorchAir with its FX dump, or with a GE dump without fusion.

    Writes a report as CSV, with `xlsx` also as a coloured sheet, and the comparison beside it into
    `out`; one of each for every rank. `dialect` says whose columns the report has: `seed`, those
    of the manual, or `26.2`; `summary` what those of the manual are made of: `values`,
    `statistics` or `md5`.
    """
    from syncpoint.offline.torchair.asked import Asked as AskedTorchair
    from syncpoint.offline.torchair.asked import Dialect, Summary
    from syncpoint.offline.torchair.mode import compare_torchair as compare_all

    known = [str(name) for name in Dialect]
    if dialect not in known:
        raise InputError(f"a dialect {' or '.join(known)}", repr(dialect))
    known = [str(name) for name in Summary]
    if summary not in known:
        raise InputError(f"a summary of {', '.join(known)}", repr(summary))
    if dialect != Dialect.SEED and summary != Summary.VALUES:
        raise InputError(f"the dialect seed for a summary of {summary}", repr(dialect))
    asked = AskedTorchair(
        *(Path(target), Path(golden), Path(out), Dialect(dialect), xlsx, threads),
        summary=Summary(summary),
    )
    return compare_all(asked, limits, progress)


@contain_exit()
def analyze(
    model: object,
    inputs: object = None,
    *,
    shapes: Mapping[str, Shape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    save_intermediates: bool = True,
    emulate_precision_casts: bool = False,
    contribution: int = 5,
    **options: Any,
) -> Analysis:
    """Run a model compiled, eager and in float64 on the same inputs, and say who is right.

    `options` are those of the runtime inductor, such as backend, dtype and config. With `out`
    the runs and the comparison stay in that folder.
    """
    from syncpoint.analysis.analyze import analyze as analyze_runs
    from syncpoint.runtimes.torch_repro import is_repro, load_repro

    notes: list[str] = []
    if isinstance(model, str) and is_repro(model):
        model, given, notes = load_repro(model)
        inputs = given if inputs is None else inputs
    if inputs is None:
        raise InputError("inputs to run the model with", "none", GIVE_INPUTS)
    made = analyze_runs(
        model,
        inputs,
        options=options,
        shapes=shapes,
        out=out,
        save_intermediates=save_intermediates,
        emulate_precision_casts=emulate_precision_casts,
        contribution=contribution,
    )
    analysis = Analysis.of(made, notes)
    if out is not None:
        folder = Path(out)
        analysis.comparison.save(folder / "compiled.cmp", overwrite=True)
        analysis.to_json(folder / "analysis.json")
    return analysis


def assert_parity(
    target: object,
    reference: object,
    *,
    preset: str = "auto",
    fail_on: str = "large",
    min_coverage: float | None = None,
    **options: Any,
) -> Comparison:
    """Compare, and raise an AssertionError that says where they part unless nothing is large."""
    comparison = compare(target, reference, preset=preset, min_coverage=min_coverage, **options)
    if comparison.exit_code(fail_on):
        from syncpoint.reports.message import summary

        raise AssertionError(summary(comparison, fail_on))
    return comparison


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
    """Make a run or a dump small: `to` is statistics, digest or min-max.

    The first two give a run at `out` (`NAME.statistics.run`), min-max a small file for each file,
    beside it or below `out`. With `watch` it goes on while the dump is being written, until the
    source says it is complete, nothing came for `until_idle` seconds, or Ctrl-C. `delete` removes
    each file once its reduced form is on the disk and was verified. Whatever ends it, the same call
    goes on where it stopped.
    """
    from syncpoint.reducing.reduce import reduce as reduce_files

    return reduce_files(
        Path(source),
        to,
        None if out is None else Path(out),
        watch=watch,
        delete=delete,
        until_idle=until_idle,
        progress=progress,
    )


def choice(preset: str, limits: str | Path | None = None) -> Choice:
    """The limits to judge by: a preset's name, or a file of one's own."""
    from syncpoint.comparison.judging import AUTO
    from syncpoint.metrics.limits import load_limits
    from syncpoint.metrics.limits import preset as named

    if limits is not None:
        if preset != AUTO:
            raise InputError("a preset or limits of your own", "both", "leave one out")
        return load_limits(Path(limits))
    return AUTO if preset == AUTO else named(preset)


def _map_file(
    said: str | Path | Mapping[str, Any] | None, ignore: tuple[str, ...]
) -> MapFile | None:
    from syncpoint.matching.map_file import MapFile

    if said is None and not ignore:
        return None
    if said is None:
        map_file = MapFile()
    elif isinstance(said, str | Path):
        map_file = MapFile.load(Path(said))
    else:
        map_file = MapFile.of(dict(said))
    return map_file.ignoring(*ignore)


def _logged(
    out: str | Path | None,
    asked: Asked,
    chosen: Choice,
    map_file: MapFile | None,
    introduced: str,
    resume: bool,
    confirm: bool,
) -> AbstractContextManager[ProgressLog | None]:
    """The log of a comparison that is kept; nothing for one that is not."""
    if out is None:
        return nullcontext()
    from syncpoint import __version__
    from syncpoint.comparison.progress_log import ProgressLog

    limits = (
        chosen
        if isinstance(chosen, str)
        else {f.name: getattr(chosen, f.name) for f in fields(chosen)}
    )
    said = {
        **asked.in_words(),
        "limits": limits,
        "map": map_file and map_file.in_words(),
        "introduced": introduced,
        "confirm": confirm,
        "version": __version__,
    }
    return ProgressLog(Path(out), said, resume=resume)


__all__ = [
    "Analysis",
    "Comparison",
    "SyncpointError",
    "analyze",
    "assert_parity",
    "capture",
    "compare",
    "compare_offline",
    "compare_torchair",
    "diagnose",
    "open_comparison",
    "open_run",
    "record",
    "reduce",
    "save_intermediates",
]
