"""Open or capture each side of a comparison: path or object to run and model; choose inputs,
runtime options, steps; find and reuse stored captures.

Each side is opened once, by `open_sides`; all later steps use its result. A recording is opened, a
model is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.comparison.events import CaptureSteps, Stage, Step
from syncpoint.errors import InputError, NoShape
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.runtimes.inputs.read_inputs import find_recorded_names, read_recorded_inputs
from syncpoint.runtimes.inputs.shared_inputs import SharedInputs
from syncpoint.workflow.capture import GIVE_INPUTS, capture_model, open_run
from syncpoint.workflow.recorded_model import attach_session

if TYPE_CHECKING:
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.protocol import Inputs
    from syncpoint.workflow.compare_request import ComparisonRequest, ComparisonSettings

ROLES = ("reference", "target")
"""In the order in which models are captured."""
_CAPTURE_OPTIONS = ("runtime", "record", "filter", "max_bytes")
"""Options of a side that are options of `capture`, not of its runtime."""


@dataclass(frozen=True)
class OpenedSide:
    """One side of a comparison as the caller named it, opened if it is a recording."""

    role: str
    source: object
    """The model, path or run that the caller named."""
    options: Mapping[str, Any]
    recording: Run | None
    """None for a model, which must be run first."""
    named_model: object = None
    """The model that the caller named for a recorded side."""

    @property
    def model(self) -> object:
        """The model that may be run for this side; None if there is only a recording."""
        if self.named_model is not None or self.recording is not None:
            return self.named_model
        return self.source


@dataclass(frozen=True)
class ResolvedSide:
    """One side of a comparison: its run, and its model if there is one."""

    role: str
    run: Run
    options: Mapping[str, Any]
    model: object = None
    """The model that produced the run; None for a recording without a named model."""

    @cached_property
    def samples(self) -> list[Inputs] | None:
        """The inputs that the run was recorded with, one per sample."""
        return read_recorded_inputs(self.run)


def open_sides(request: ComparisonRequest, events: EventSink = NULL_SINK) -> dict[str, OpenedSide]:
    """Open the sides that are recordings, and set the option `steps` of models if needed.

    A loop is compared with a loop: if one side was recorded in steps, or has the option `steps`,
    the other side records steps too, unless its options say otherwise.
    """
    sides = {}
    for role in ("target", "reference"):
        events.send(Step(stage=Stage(role)))
        sides[role] = OpenedSide(
            role,
            getattr(request, role),
            getattr(request, f"{role}_options"),
            open_recording(getattr(request, role)),
            request.reference_model if role == "reference" else None,
        )
    for role in ROLES:
        events.send(Step(stage=Stage(role)))
        report_run(events, role, sides[role].recording, "opened", opened=True)
    if any(_records_steps(side) for side in sides.values()):
        sides = {role: _add_steps_option(side) for role, side in sides.items()}
    return sides


def _records_steps(side: OpenedSide) -> bool:
    if side.recording is not None:
        return has_steps(side.recording)
    if "steps" not in side.options:
        return False
    from syncpoint.runtimes.options import parse_options
    from syncpoint.runtimes.registry import find_runtime

    runtime = find_runtime(side.source, side.options.get("runtime"))
    return parse_options(runtime, runtime_options(side.options)).get("steps") is True


def _add_steps_option(side: OpenedSide) -> OpenedSide:
    model = side.named_model if side.recording is not None else side.source
    if model is None or "steps" in side.options or not can_record_steps(model, side.options):
        return side
    return replace(side, options={**side.options, "steps": True})


def has_steps(run: Run) -> bool:
    """Whether a run was recorded in steps."""
    return any(tensor.key.part.step >= 0 for tensor in run.tensors)


def can_record_steps(model: object, options: Mapping[str, Any]) -> bool:
    """Whether the runtime of a model has the option `steps`."""
    from syncpoint.runtimes.registry import find_runtime

    return any(o.name == "steps" for o in find_runtime(model, options.get("runtime")).options())


def runtime_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a side that belong to its runtime."""
    return {name: value for name, value in options.items() if name not in _CAPTURE_OPTIONS}


def resolve_sides(
    request: ComparisonRequest,
    settings: ComparisonSettings,
    opened: Mapping[str, OpenedSide],
    events: EventSink = NULL_SINK,
) -> tuple[ResolvedSide, ResolvedSide]:
    """Turn target and reference into runs: a model is captured, unless an earlier attempt did so.

    The inputs of a recording are used for the other side.
    """
    runs = {role: opened[role].recording for role in ROLES}
    shared = _share_inputs(request, opened)
    pending = [role for role in ROLES if runs[role] is None]
    retried: set[str] = set()
    while pending:
        role = pending.pop(0)
        other = runs["target" if role == "reference" else "reference"]
        events.send(Step(stage=Stage(role)))
        run = _open_stored(request, settings, opened[role])
        if run is not None:
            report_run(events, role, run, "captured before")
        else:
            user_inputs = find_named_inputs(request, opened, role)
            inputs = _choose_inputs(role, user_inputs, other, role in retried)
            try:
                run = _capture_side(request, settings, opened[role], inputs, shared, events)
            except NoShape:
                # The other side may declare the shape of generated inputs: capture it first.
                if role in retried or (role == "target" and other is None):
                    raise
                retried.add(role)
                pending.append(role)
                continue
            report_run(events, role, run, "captured")
        runs[role] = run
    return _build_resolved_side(opened["target"], runs["target"]), _build_resolved_side(
        opened["reference"], runs["reference"]
    )


def _share_inputs(
    request: ComparisonRequest, opened: Mapping[str, OpenedSide]
) -> SharedInputs | None:
    """Let each side take its own of the inputs by name, where both sides are run on the same ones;
    None where the names of one side are not known."""
    if request.target_inputs is not None:
        return None
    recordings = [side.recording for side in opened.values() if side.recording is not None]
    if not recordings:
        return SharedInputs()
    names = {name for run in recordings for name in find_recorded_names(run)}
    return SharedInputs(names) if names else None


def _build_resolved_side(side: OpenedSide, run: Run | None) -> ResolvedSide:
    if run is None:
        raise AssertionError(f"the {side.role} was opened or captured above")
    return ResolvedSide(side.role, run, side.options, side.model)


def _open_stored(
    request: ComparisonRequest, settings: ComparisonSettings, side: OpenedSide
) -> Run | None:
    """Open the run of a model that an interrupted attempt has captured completely."""
    if not settings.resume or settings.store is None or not request.can_reuse_run(side.role):
        return None
    from syncpoint.dumps.open_dump import open_recognized

    run = open_recognized(_stored_path(settings.store, side.role))
    if run is None or not run.info.complete:
        return None
    needs_session = side.role == "reference" and settings.introduced != "off"
    if needs_session and side.named_model is None:
        run = attach_session(run, side.source, side.options)
    return run


def _stored_path(store: Path, role: str) -> Path:
    return store / f"{role}.run"


def _choose_inputs(role: str, user_inputs: object, other: Run | None, is_retry: bool) -> object:
    """Choose the inputs of a side: those that the caller named, else those of the other side."""
    inputs = read_recorded_inputs(other) if is_retry or user_inputs is None else user_inputs
    if inputs is None:
        raise InputError(f"there are no inputs to run the {role} with", cure=GIVE_INPUTS)
    return inputs


def _capture_side(
    request: ComparisonRequest,
    settings: ComparisonSettings,
    side: OpenedSide,
    inputs: object,
    shared: SharedInputs | None,
    events: EventSink,
) -> Run:
    capture_options = {
        name: value for name, value in side.options.items() if name in _CAPTURE_OPTIONS
    }
    run: Run = capture_model(
        side.source,
        inputs,
        out=_stored_path(settings.store, side.role) if settings.store is not None else None,
        shapes=request.shapes,
        overwrite=True,
        events=CaptureSteps(events, Stage(side.role)),
        options=runtime_options(side.options),
        shared=shared,
        **capture_options,
    )
    return run


def report_run(
    events: EventSink, role: str, run: Run | None, how: str, *, opened: bool = False
) -> None:
    """Send the step that finishes the stage of a side, if it has a run; `opened` means that the
    caller named a recording."""
    if run is None:
        return
    facts = ", ".join(part for part in (run.info.runtime, run.info.precision) if part)
    text = f"{how}: {len(run.ops)} ops{f' ({facts})' if facts else ''}"
    count = len(run.ops)
    step = Step(stage=Stage(role), done=count, total=count, finished=True, text=text, opened=opened)
    events.send(step)


def find_recording(source: object, opened: Mapping[str, OpenedSide]) -> Run | None:
    """Find the run of `source`: that of a side with the same path, or a newly opened one; None if
    it is a model, which must be run first."""
    return _find_side_recording(source, opened) or open_recording(source)


def find_named_inputs(
    request: ComparisonRequest, opened: Mapping[str, OpenedSide], role: str = "reference"
) -> object:
    """The inputs that the caller named for a side. If they are the run of a side, they are read
    from that run, and it is not opened again."""
    from syncpoint.run.storage.folder import is_run

    has_own = role == "target" and request.target_inputs is not None
    inputs = request.target_inputs if has_own else request.inputs
    if isinstance(inputs, str | Path) and is_run(Path(inputs)):
        # A run without inputs stays a path: reading it raises the right error.
        return read_recorded_inputs(_find_side_recording(inputs, opened)) or inputs
    return inputs


def _find_side_recording(source: object, opened: Mapping[str, OpenedSide]) -> Run | None:
    """Find the recording of a side that the caller named by the same path as `source`."""
    for side in opened.values():
        paths = [p for p in (source, side.source) if isinstance(p, str | Path)]
        if len(paths) == 2 and Path(paths[0]).resolve() == Path(paths[1]).resolve():
            return side.recording
    return None


def open_recording(source: object) -> Run | None:
    """Open the run of `source`; None if it is a model, which must be run first."""
    from syncpoint.run.reader import Run

    if isinstance(source, Run):
        return source
    if not isinstance(source, str | Path):
        return None
    from syncpoint.dumps.open_dump import open_recognized
    from syncpoint.runtimes.registry import find_runtimes_accepting

    run = open_recognized(Path(source))
    if run is None and not find_runtimes_accepting(source):
        return open_run(source)  # raises the error for this path
    return run
