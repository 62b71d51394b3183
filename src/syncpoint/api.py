"""The functions people call, and the one resolver from what they name to a run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from syncpoint.analysis.result import AnalysisResult
from syncpoint.comparison.result import Result
from syncpoint.errors import InputError, SyncpointError

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from syncpoint.comparison.engine import Options as EngineOptions
    from syncpoint.comparison.judging import Choice
    from syncpoint.comparison.progress_log import ProgressLog
    from syncpoint.matching.confirming import Again
    from syncpoint.matching.map_file import MapFile
    from syncpoint.recording import Recording
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs import Shape
    from syncpoint.runtimes.protocol import Inputs, Session

Progress = Callable[[int, int], None]
_GIVE_INPUTS = "add --inputs, for example --inputs data.npz"


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

    def __str__(self) -> str:
        from syncpoint.reports.terminal import as_text

        return as_text(self)

    def __repr__(self) -> str:
        coverage = self.coverage
        return (
            f"<Comparison {self.verdict}: {coverage.compared} of {coverage.target_tensors} target"
            " tensors compared>"
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


def open_run(path: str | Path) -> Run:
    """Open a run, or any dump that is known, by its path."""
    from syncpoint.dumps.registry import open_dump

    return open_dump(path)


def open_comparison(path: str | Path) -> Comparison:
    """Open a saved comparison."""
    from syncpoint.comparison.storage import load

    return Comparison.of(load(Path(path)))


def capture(
    model: object,
    inputs: object = None,
    *,
    out: str | Path | None = None,
    runtime: str | None = None,
    record: str = "values",
    filter: str | None = None,
    max_bytes: int | None = None,
    shapes: Mapping[str, Shape | tuple[int, ...]] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Run:
    """Run a model and record every intermediate tensor.

    Without `out` the run lives in a temporary folder for as long as the returned object does.
    """
    from syncpoint.run.folder import check_folder
    from syncpoint.run.model import Kept, Part, RunInfo
    from syncpoint.run.reader import Run
    from syncpoint.run.recorder import Recorder
    from syncpoint.run.writer import RunWriter
    from syncpoint.runtimes.inputs import read_inputs
    from syncpoint.runtimes.protocol import Declares
    from syncpoint.runtimes.registry import find, parse_options

    if inputs is None:
        raise InputError("inputs to run the model with", "none", _GIVE_INPUTS)
    if record not in set(Kept):
        raise InputError(f"record to be one of {', '.join(Kept)}", repr(record))
    if out is not None:
        check_folder(Path(out), overwrite)  # before minutes of loading and running a model
    chosen = find(model, runtime)
    settings = parse_options(chosen, options)
    session = chosen.open(model, settings)
    declared = session.inputs() if isinstance(session, Declares) else ()
    samples = read_inputs(inputs, shapes or {}, declared)
    keep = None
    if out is None:
        keep = tempfile.TemporaryDirectory(prefix="syncpoint-")
        out = Path(keep.name) / "capture.run"
    info = RunInfo(
        model=str(model) if isinstance(model, str | Path) else _describe(model),
        runtime=chosen.name,
        runtime_version=chosen.version() or "",
        options=settings,
        record=Kept(record),
    )
    with RunWriter(Path(out), info, overwrite=overwrite) as writer:
        recorder = Recorder(writer, record=Kept(record), filter=filter, max_bytes=max_bytes)
        for number, sample in enumerate(samples):
            part = Part(sample=number) if len(samples) > 1 else Part()
            session.run(sample, recorder.for_part(part))
    run = Run.open(Path(out))
    run.session = session
    run.keep = keep
    return run


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
    threads: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two runs, dumps or models (which are captured on the way, into `store` if given).

    With `out` the comparison is kept in that folder, and while it goes on so is what has been
    measured. `resume` goes on with one that was interrupted there: same arguments, same result.
    `through` is a third run, dump or model between the two, such as the quantized program in
    PyTorch: it splits each error in what compressing cost and what the runtime adds.
    `confirm` runs both models once more, on another input, if tensors are paired by values alone.
    """
    from syncpoint.comparison.engine import Options
    from syncpoint.comparison.engine import compare as compare_runs

    if introduced not in ("local", "replay", "off"):
        raise InputError("introduced to be local, replay or off", repr(introduced))
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
    with _logged(out, asked, chosen, map_file, introduced, resume, confirm) as log:
        target_run, reference_run = _both(asked, store, resume, introduced != "off")
        if reference_model is not None:
            reference_run = _with_session(reference_run, reference_model, asked.reference_options)
        samples = _inputs_of(target_run) if introduced == "replay" else None
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
                _again(asked, target_run, reference_run) if confirm else None,
            ),
        )
        if through is not None:
            result = _split(result, target_run, reference_run, asked, Options(chosen, map_file))
        comparison = Comparison.of(result)
        if out is not None:
            comparison.save(out)
    return comparison


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
        raise InputError("inputs to run the model with", "none", _GIVE_INPUTS)
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
    min_coverage: float = 0.5,
    **options: Any,
) -> Comparison:
    """Compare, and raise an AssertionError that says where they part unless nothing is large."""
    comparison = compare(target, reference, preset=preset, **options)
    if comparison.exit_code(fail_on, min_coverage):
        from syncpoint.reports.message import summary

        raise AssertionError(summary(comparison, fail_on, min_coverage))
    return comparison


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


@dataclass(frozen=True)
class Asked:
    """Whom to compare, as the caller named it."""

    target: object
    reference: object
    inputs: object
    target_options: Mapping[str, Any]
    reference_options: Mapping[str, Any]
    shapes: Mapping[str, Shape | tuple[int, ...]]
    reference_model: object
    through: object = None

    def in_words(self) -> dict[str, Any]:
        """Names, and of files that are named also when they were written."""
        from syncpoint.comparison.progress_log import stamp

        said: dict[str, Any] = {}
        for field in fields(self):
            name = field.name.replace("_", " ")
            value = getattr(self, field.name)
            if value is None or isinstance(value, Mapping):
                said[name] = value and {str(k): str(v) for k, v in value.items()}
                continue
            said[name] = str(value) if isinstance(value, str | Path) else _describe(value)
            file = _file_of(value)
            if file is not None:
                said[f"file of the {name}"] = stamp(file)
        return said

    def can_be_reused(self, side: str) -> bool:
        """Whether names alone say that a run of this side, captured earlier, is still right."""
        named = (str, Path, type(None))
        return isinstance(getattr(self, side), str | Path) and isinstance(self.inputs, named)


def _file_of(thing: object) -> Path | None:
    """The file behind a path or behind `file.py:attribute`; of a Core AI asset its program."""
    for text in (
        (str(thing), str(thing).rpartition(":")[0]) if isinstance(thing, str | Path) else ()
    ):
        for file in (Path(text), Path(text) / "main.mlirb"):
            if text and file.is_file():
                return file
    return None


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


def _both(asked: Asked, store: str | Path | None, resume: bool, evaluates: bool) -> tuple[Run, Run]:
    """Both sides as runs. What is recorded is opened first, since its inputs serve the other."""
    found = {side: _recording(getattr(asked, side)) for side in ("target", "reference")}
    settings = {"target": asked.target_options, "reference": asked.reference_options}
    for side in ("reference", "target"):
        if found[side] is not None:
            continue
        model = getattr(asked, side)
        out = Path(store) / f"{side}.run" if store is not None else None
        run = _open_recording(out) if resume and out and asked.can_be_reused(side) else None
        if run is not None and run.info.complete:
            if side == "reference" and evaluates and asked.reference_model is None:
                run = _with_session(run, model, settings[side])
            found[side] = run
            continue
        other = found["target" if side == "reference" else "reference"]
        fed = asked.inputs if asked.inputs is not None else _inputs_of(other)
        if fed is None:
            raise InputError(
                f"inputs to run the {side} with",
                "none",
                _GIVE_INPUTS,
            )
        found[side] = capture(
            model, fed, out=out, shapes=asked.shapes, overwrite=True, **settings[side]
        )
    made_target, made_reference = found["target"], found["reference"]
    if made_target is None or made_reference is None:
        raise AssertionError("both sides were resolved above")
    return made_target, made_reference


def _split(
    result: Result, target: Run, reference: Run, asked: Asked, options: EngineOptions
) -> Result:
    """The result with what the run in between says of it."""
    from syncpoint.comparison.engine import compare as compare_runs
    from syncpoint.comparison.through import through

    middle = _recording(asked.through)
    if middle is None:
        fed = asked.inputs if asked.inputs is not None else _inputs_of(target)
        if fed is None:
            raise InputError("inputs to run the model in between with", "none", _GIVE_INPUTS)
        middle = capture(asked.through, fed, shapes=asked.shapes)
    options = replace(options, introduced="off")
    label = str(middle.path.name) if isinstance(asked.through, str | Path) and middle.path else ""
    found = through(
        label or middle.info.model,
        result,
        compare_runs(target, middle, options),
        compare_runs(middle, reference, options),
    )
    return replace(result, through=found)


def _recording(thing: object) -> Run | None:
    """The run behind `thing`, or None if it is a model that must be run first."""
    from syncpoint.run.reader import Run

    if isinstance(thing, Run):
        return thing
    if isinstance(thing, str | Path):
        from syncpoint.runtimes.registry import runtimes

        run = _open_recording(Path(thing))
        if run is None and not any(runtime.accepts(thing) for runtime in runtimes()):
            return open_run(thing)  # says what is wrong with the path
        return run
    return None


def _open_recording(path: Path) -> Run | None:
    from syncpoint.dumps.registry import find

    if not path.exists():
        return None
    found = find(path)
    return found.open(path) if found is not None else None


def _inputs_of(run: Run | None) -> list[Inputs] | None:
    from syncpoint.runtimes.inputs import inputs_of

    return (inputs_of(run) or None) if run is not None else None


def _with_session(run: Run, model: object, options: Mapping[str, Any]) -> Run:
    """The reference's model opened again, so that its ops can be run on the target's values.

    It is run once on the recorded inputs: only a model that gives the recorded tensors again
    is the one that was recorded.
    """
    inputs = _inputs_of(run)
    if inputs is None:
        raise InputError("recorded inputs in the reference run", "none")
    again = capture(model, inputs, record="digest", **options)
    pairs = [(t, run.tensor(t.key)) for t in again.tensors]
    both = [(mine, theirs) for mine, theirs in pairs if theirs is not None]
    unlike = [str(a.key) for a, b in both if again.content(a) != run.content(b)]
    known = len(both)
    if unlike or not known:
        raise InputError(
            "the model that the reference run was recorded from",
            f"other values at {unlike[0]}" if unlike else "a model with other ops",
            "name the model and options of the recording",
        )
    run.session = again.session
    return run


def _again(asked: Asked, target: Run, reference: Run) -> Again | None:
    """A way to run both models on another input; None where one of them is not at hand."""
    sides = (
        (target, asked.target, asked.target_options),
        (reference, asked.reference, asked.reference_options),
    )
    if any(run.session is None and _recording(model) is not None for run, model, _ in sides):
        return None

    def again() -> tuple[Run, Run]:
        from syncpoint.runtimes.second_input import second_inputs

        samples = [_inputs_of(run) for run in (target, reference)]
        if samples[0] is None or samples[1] is None:
            raise InputError("recorded inputs", "none")
        grids = any(t.quantization is not None for run, *_ in sides for t in run.tensors)
        found = []
        for (run, model, options), inputs in zip(
            sides, second_inputs(samples[0], samples[1], signs=not grids), strict=True
        ):
            found.append(_run_again(run.session or _opened(model, options), inputs))
        return found[0], found[1]

    return again


def _opened(model: object, options: Mapping[str, Any]) -> Session:
    from syncpoint.runtimes.registry import find, parse_options

    settings = dict(options)
    chosen = find(model, settings.pop("runtime", None))
    return chosen.open(model, parse_options(chosen, settings))


def _run_again(session: object, samples: list[Inputs]) -> Run:
    from syncpoint.run.model import Part, RunInfo
    from syncpoint.run.reader import Run
    from syncpoint.run.recorder import Recorder
    from syncpoint.run.writer import RunWriter

    keep = tempfile.TemporaryDirectory(prefix="syncpoint-")
    path = Path(keep.name) / "again.run"
    with RunWriter(path, RunInfo()) as writer:
        recorder = Recorder(writer)
        for number, sample in enumerate(samples, start=len(samples)):
            # A session remembers by part what it ran, and must not forget the first inputs.
            cast("Session", session).run(sample, recorder.for_part(Part(sample=number)))
    run = Run.open(path)
    run.keep = keep
    return run


def _describe(model: object) -> str:
    return f"{type(model).__module__}.{type(model).__qualname__}"


__all__ = [
    "Analysis",
    "Comparison",
    "SyncpointError",
    "analyze",
    "assert_parity",
    "capture",
    "compare",
    "open_comparison",
    "open_run",
    "record",
    "save_intermediates",
]
