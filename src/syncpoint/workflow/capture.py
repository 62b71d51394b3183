"""Capture a model of any runtime into a run; open a run or dump by its path; name a model object by
its class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import CaptureError, InputError, contain_exit
from syncpoint.supervision.report_to_supervisor import activity
from syncpoint.supervision.scratch_folder import scratch_folder

if TYPE_CHECKING:
    from syncpoint.run.events import EventSink
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs.shapes import InputShape
    from syncpoint.runtimes.inputs.shared_inputs import SharedInputs

GIVE_INPUTS = "add --inputs, for example --inputs data.npz"


def open_run(path: str | Path) -> Run:
    """Open a run, or a dump of any supported format, by its path."""
    from syncpoint.dumps.open_dump import open_dump

    return open_dump(path)


def capture(
    model: object,
    inputs: object = None,
    *,
    out: str | Path | None = None,
    runtime: str | None = None,
    record: str = "values",
    filter: str | None = None,
    max_bytes: int | None = None,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Run:
    """Run a model and record every intermediate tensor.

    Without `out` the run is in a temporary folder, which is removed with the returned object.
    `progress` is called with the number of recorded ops.
    """
    from syncpoint.run.events import OpCounter

    if progress is not None and not callable(progress):
        # `--set progress=...`
        raise InputError(f"progress must be a function, not {progress!r}")
    run: Run = capture_model(
        model,
        inputs,
        out=out,
        runtime=runtime,
        record=record,
        filter=filter,
        max_bytes=max_bytes,
        shapes=shapes,
        overwrite=overwrite,
        events=OpCounter(progress) if progress is not None else None,
        options=options,
    )
    return run


@contain_exit()
def capture_model(
    model: object,
    inputs: object,
    *,
    options: Mapping[str, Any],
    out: str | Path | None = None,
    runtime: str | None = None,
    record: str = "values",
    filter: str | None = None,
    max_bytes: int | None = None,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    overwrite: bool = False,
    events: EventSink | None = None,
    shared: SharedInputs | None = None,
) -> Run:
    """Capture a model; `options` are those of the runtime, `events` receives the progress. `shared`
    selects what the model takes of inputs that another model is run on too."""
    from syncpoint.run.events import NULL_SINK
    from syncpoint.run.model import Kept, Part, RunInfo
    from syncpoint.run.reader import Run
    from syncpoint.run.recorder import Recorder
    from syncpoint.run.storage.folder import check_new_run_path
    from syncpoint.run.storage.writer import RunWriter
    from syncpoint.runtimes.inputs.read_inputs import read_inputs
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.protocol import Declares
    from syncpoint.runtimes.registry import RUNTIMES, find_runtime

    if inputs is None:
        raise InputError("there are no inputs to run the model with", cure=GIVE_INPUTS)
    if record not in set(Kept):
        raise InputError(f"record must be one of {', '.join(Kept)}, not {record!r}")
    if out is not None:
        check_new_run_path(Path(out), overwrite)  # before the model is loaded and run for minutes
    chosen = find_runtime(model, runtime)
    settings = parse_options(chosen, options)
    label = str(model) if isinstance(model, str | Path) else describe_model(model)
    with (
        activity(f"opening {label}"),
        RUNTIMES.contain_errors(chosen.name, InputError, f"to open {label}"),
    ):
        session = chosen.open(model, settings)
        declared = session.inputs() if isinstance(session, Declares) else ()
        samples = read_inputs(inputs, shapes or {}, declared)
        input_notes: list[str] = []
        if shared is not None and declared:
            samples, input_notes = shared.select(samples, session, declared, Path(label).name)
    keep = None
    recording = None if out is None else Path(out)
    if out is None:
        keep = scratch_folder()
        out = Path(keep.name) / "capture.run"
    info = RunInfo(
        model=label,
        runtime=chosen.name,
        runtime_version=chosen.version() or "",
        options=settings,
        record=Kept(record),
    )
    with (
        activity(f"capturing {label}", recording),
        RunWriter(Path(out), info, overwrite=overwrite) as writer,
        RUNTIMES.contain_errors(chosen.name, CaptureError, f"to run {label}"),
    ):
        recorder = Recorder(
            writer,
            record=Kept(record),
            filter=filter,
            max_bytes=max_bytes,
            events=events or NULL_SINK,
        )
        for note in input_notes:
            recorder.note(note)
        for number, sample in enumerate(samples):
            part = Part(sample=number) if len(samples) > 1 else Part()
            session.run(sample, recorder.for_part(part))
    run = Run.open(Path(out))
    run.session = session
    run.keep = keep
    return run


def describe_model(model: object) -> str:
    """The name of a model object in reports: its class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"
