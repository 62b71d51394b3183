"""Whom to compare: models, runs and dumps as the caller names them -> runs.

What is recorded is opened, what is a model is run; and a model that is at hand can be run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from syncpoint.capturing import GIVE_INPUTS, capture, describe, open_run
from syncpoint.comparison.stages import Stage, Step, Watch, unwatched
from syncpoint.errors import InputError, NoShape
from syncpoint.supervision.channel import scratch_folder

_OF_CAPTURE = ("runtime", "record", "filter", "max_bytes")
"""Options of a side that are capture's own, not its runtime's."""

if TYPE_CHECKING:
    from syncpoint.comparison.engine import Options as EngineOptions
    from syncpoint.comparison.result import Result
    from syncpoint.matching.confirming import Again
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.inputs import Shape
    from syncpoint.runtimes.protocol import Inputs, Session


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
            said[name] = str(value) if isinstance(value, str | Path) else describe(value)
            file = _file_of(value)
            if file is not None:
                said[f"file of the {name}"] = stamp(file)
        return said

    def can_be_reused(self, side: str) -> bool:
        """Whether names alone say that a run of this side, captured earlier, is still right."""
        named = (str, Path, type(None))
        return isinstance(getattr(self, side), str | Path) and isinstance(self.inputs, named)


def in_step(asked: Asked, watch: Watch = unwatched) -> Asked:
    """The same with the steps of one side on the other: a loop is compared with a loop.

    Where one side was recorded in steps, or is asked to make some, the other makes them too
    unless its options say otherwise.
    """
    sides = {
        "target": (asked.target, asked.target_options),
        "reference": (asked.reference, asked.reference_options),
    }
    steps = {}
    for side, said in sides.items():
        watch(Step(Stage(side)))
        steps[side] = _makes_steps(*said)
    if not any(steps.values()):
        return asked
    changed = {}
    for side, (thing, options) in sides.items():
        model = thing
        if recording(thing) is not None:
            model = asked.reference_model if side == "reference" else None
        if model is not None and "steps" not in options and _knows_steps(model, options):
            changed[f"{side}_options"] = {**options, **_steps(True)}
    return replace(asked, **changed)


def _makes_steps(thing: object, options: Mapping[str, Any]) -> bool:
    run = recording(thing)
    if run is not None:
        return any(tensor.key.part.step >= 0 for tensor in run.tensors)
    return "steps" in options and _settings(thing, options).get("steps") is True


def _knows_steps(model: object, options: Mapping[str, Any]) -> bool:
    from syncpoint.runtimes.registry import find

    return any(o.name == "steps" for o in find(model, options.get("runtime")).options())


def _steps(steps: bool) -> dict[str, Any]:
    return {"steps": True} if steps else {}


def _settings(model: object, options: Mapping[str, Any]) -> dict[str, Any]:
    from syncpoint.runtimes.registry import find, parse_options

    return parse_options(find(model, options.get("runtime")), _of_runtime(options))


def _of_runtime(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OF_CAPTURE}


def _file_of(thing: object) -> Path | None:
    """The file behind a path or behind `file.py:attribute`; of a Core AI asset its program."""
    for text in (
        (str(thing), str(thing).rpartition(":")[0]) if isinstance(thing, str | Path) else ()
    ):
        for file in (Path(text), Path(text) / "main.mlirb"):
            if text and file.is_file():
                return file
    return None


def both(
    asked: Asked,
    store: str | Path | None,
    resume: bool,
    evaluates: bool,
    watch: Watch = unwatched,
) -> tuple[Run, Run]:
    """Both sides as runs. What is recorded is opened first, since its inputs serve the other."""
    found = {}
    for side in ("reference", "target"):
        watch(Step(Stage(side)))
        found[side] = recording(getattr(asked, side))
        tell(watch, side, found[side], "opened")
    settings = {"target": asked.target_options, "reference": asked.reference_options}
    waiting = ["reference", "target"]
    for at, side in enumerate(waiting):
        if found[side] is not None:
            continue
        watch(Step(Stage(side)))
        model = getattr(asked, side)
        out = Path(store) / f"{side}.run" if store is not None else None
        run = _open_recording(out) if resume and out and asked.can_be_reused(side) else None
        if run is not None and run.info.complete:
            if side == "reference" and evaluates and asked.reference_model is None:
                run = with_session(run, model, settings[side])
            found[side] = run
            tell(watch, side, run, "captured before")
            continue
        other = found["target" if side == "reference" else "reference"]
        late = at > 1  # The other side had to say in which shape inputs are made up.
        fed = inputs_of(other) if late or asked.inputs is None else asked.inputs
        if fed is None:
            raise InputError(
                f"inputs to run the {side} with",
                "none",
                GIVE_INPUTS,
            )
        try:
            found[side] = capture(
                model,
                fed,
                out=out,
                shapes=asked.shapes,
                overwrite=True,
                progress=partial(_recorded, watch, side),
                **settings[side],
            )
        except NoShape:
            if late or (side == "target" and other is None):
                raise
            waiting.append(side)
            continue
        tell(watch, side, found[side], "captured")
    made_target, made_reference = found["target"], found["reference"]
    if made_target is None or made_reference is None:
        raise AssertionError("both sides were resolved above")
    return made_target, made_reference


def _recorded(watch: Watch, side: str, ops: int) -> None:
    watch(Step(Stage(side), ops))


def tell(watch: Watch, side: str, run: Run | None, how: str) -> None:
    """Say that a side is there, if it is."""
    if run is None:
        return
    facts = ", ".join(part for part in (run.info.runtime, run.info.precision) if part)
    text = f"{how}: {len(run.ops)} ops{f' ({facts})' if facts else ''}"
    watch(Step(Stage(side), len(run.ops), len(run.ops), True, text))


def split(
    result: Result, target: Run, reference: Run, asked: Asked, options: EngineOptions
) -> Result:
    """The result with what the run in between says of it."""
    from syncpoint.comparison.engine import compare as compare_runs
    from syncpoint.comparison.through import through

    middle = recording(asked.through)
    if middle is None:
        fed = asked.inputs if asked.inputs is not None else inputs_of(target)
        if fed is None:
            raise InputError("inputs to run the model in between with", "none", GIVE_INPUTS)
        steps = _makes_steps(target, {}) and _knows_steps(asked.through, {})
        middle = capture(asked.through, fed, shapes=asked.shapes, **_steps(steps))
    options = replace(options, introduced="off")
    label = str(middle.path.name) if isinstance(asked.through, str | Path) and middle.path else ""
    found = through(
        label or middle.info.model,
        result,
        compare_runs(target, middle, options),
        compare_runs(middle, reference, options),
    )
    return replace(result, through=found)


def recording(thing: object) -> Run | None:
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


def inputs_of(run: Run | None) -> list[Inputs] | None:
    """What a run was given, one for each sample."""
    from syncpoint.runtimes import inputs

    return (inputs.inputs_of(run) or None) if run is not None else None


def with_session(run: Run, model: object, options: Mapping[str, Any]) -> Run:
    """The reference's model opened again, so that its ops can be run on the target's values.

    It is run once on the recorded inputs: only a model that gives the recorded tensors again
    is the one that was recorded.
    """
    from syncpoint.run.model import Role

    inputs = inputs_of(run)
    if inputs is None:
        raise InputError("recorded inputs in the reference run", "none")
    again = capture(model, inputs, **{**options, "record": "digest"})
    pairs = [(t, run.tensor(t.key)) for t in again.tensors]
    both = [(mine, theirs) for mine, theirs in pairs if theirs is not None]
    unlike = [str(a.key) for a, b in both if again.content(a) != run.content(b)]
    # Weights alone do not tell how the model was run.
    computed = [mine for mine, _ in both if mine.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)]
    if unlike or not computed:
        raise InputError(
            "the model that the reference run was recorded from",
            f"other values at {unlike[0]}" if unlike else "a model with other ops or samples",
            "name the model and options of the recording",
        )
    run.session = again.session
    return run


def again(asked: Asked, target: Run, reference: Run) -> Again | None:
    """A way to run both models on another input; None where one of them is not at hand."""
    sides = (
        (target, asked.target, asked.target_options),
        (reference, asked.reference, asked.reference_options),
    )
    if any(run.session is None and recording(model) is not None for run, model, _ in sides):
        return None

    def again() -> tuple[Run, Run]:
        from syncpoint.runtimes.second_input import second_inputs

        samples = [inputs_of(run) for run in (target, reference)]
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

    chosen = find(model, options.get("runtime"))
    return chosen.open(model, parse_options(chosen, _of_runtime(options)))


def _run_again(session: object, samples: list[Inputs]) -> Run:
    from syncpoint.run.model import Part, RunInfo
    from syncpoint.run.reader import Run
    from syncpoint.run.recorder import Recorder
    from syncpoint.run.writer import RunWriter

    keep = scratch_folder()
    path = Path(keep.name) / "again.run"
    with RunWriter(path, RunInfo()) as writer:
        recorder = Recorder(writer)
        for number, sample in enumerate(samples, start=len(samples)):
            # A session remembers by part what it ran, and must not forget the first inputs.
            cast("Session", session).run(sample, recorder.for_part(Part(sample=number)))
    run = Run.open(path)
    run.keep = keep
    return run
