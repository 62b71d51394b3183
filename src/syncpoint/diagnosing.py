"""Why two runs differ: a comparison and whatever of its runs and models is at hand -> a diagnosis.

A run is data and never makes code run. Models are run again only where the caller named them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.asking import Asked, inputs_of, recording, with_session
from syncpoint.capturing import capture, describe, open_run
from syncpoint.errors import InputError, SyncpointError, Unsupported
from syncpoint.run.files import one_line
from syncpoint.supervision.channel import activity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from syncpoint.comparison.findings import Diagnosis
    from syncpoint.comparison.result import Result
    from syncpoint.diagnosis.case import Subject
    from syncpoint.run.model import TensorKey
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.protocol import Inputs

SECONDS = 60.0
"""After so long no more experiments are begun, unless the caller says otherwise. Values may be
looked at for `diagnosis.budget.EXTRA_SECONDS` more."""


@dataclass(frozen=True)
class Models:
    """The models behind a comparison, as far as the caller names them."""

    target: object = None
    reference: object = None
    target_options: Mapping[str, Any] = field(default_factory=dict)
    reference_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Asked) -> Models:
        """Those of a comparison that has just been made."""
        target = None if recording(asked.target) is not None else asked.target
        reference = asked.reference_model
        if reference is None and recording(asked.reference) is None:
            reference = asked.reference
        return cls(target, reference, asked.target_options, asked.reference_options)


@activity("looking for the causes")
def diagnosed(
    result: Result,
    target: Run | None,
    reference: Run | None,
    models: Models,
    seconds: float = SECONDS,
    absent: Mapping[str, str] | None = None,
    **asked: Any,
) -> Result:
    """The result with its diagnosis. A diagnosis that fails, for want of memory or by a fault of
    ours, costs the comparison nothing: it says so in `diagnosis.troubles`."""
    try:
        made = _diagnosis(result, target, reference, models, seconds, absent or {}, asked)
    except Exception as error:
        made = _failed(result, error)
    return replace(result, diagnosis=made)


def _failed(result: Result, error: Exception) -> Diagnosis:
    from syncpoint.comparison.findings import Diagnosis, Symptom, failed
    from syncpoint.diagnosis.symptom import symptom

    try:
        what, summary = symptom(result)
    except Exception:
        what, summary = Symptom.UNKNOWN, "the diagnosis did not come to its end"
    return Diagnosis(what, summary, troubles=(failed(error),))


def _diagnosis(
    result: Result,
    target: Run | None,
    reference: Run | None,
    models: Models,
    seconds: float,
    absent: Mapping[str, str],
    asked: Mapping[str, Any],
) -> Diagnosis:
    from syncpoint.diagnosis.case import Case
    from syncpoint.diagnosis.diagnose import diagnose

    runs = {"target": target, "reference": reference}
    subjects: dict[str, Subject] = {}
    for side, run in runs.items():
        model = getattr(models, side)
        if model is not None and run is not None:
            subjects[side] = _subject(run, model, getattr(models, f"{side}_options"))
    return diagnose(Case(result, target, reference, absent, subjects, asked, seconds))


def diagnosed_again(
    result: Result, models: Models, seconds: float = SECONDS, **asked: Any
) -> Result:
    """The same for a comparison that was saved: its runs are opened where they still are."""
    runs: dict[str, Run | None] = {}
    absent: dict[str, str] = {}
    for side, about in (("target", result.target), ("reference", result.reference)):
        runs[side], absent[side] = _opened(about)
    if runs["reference"] is not None and models.reference is not None:
        runs["reference"] = with_session(
            runs["reference"], models.reference, models.reference_options
        )
    if runs["target"] is not None and models.target is not None:
        _check(runs["target"], models.target, models.target_options)
    if "preprocess" in asked:
        asked = _prepared(**asked)
    absent = {side: why for side, why in absent.items() if why}
    return diagnosed(result, runs["target"], runs["reference"], models, seconds, absent, **asked)


def _check(run: Run, model: object, options: Mapping[str, Any]) -> None:
    """That the model named for the target is the one that was recorded: it has its ops. Its values
    need not be the same; that they are not may be what is looked for."""
    inputs = inputs_of(run)
    if inputs is None:
        return
    made = capture(model, inputs, **{**options, "record": "digest"})
    known, found = ({op.key for op in one.ops} for one in (run, made))
    if known and 2 * len(known & found) < len(known):
        raise InputError(
            "the model that the target was recorded from as --target-model",
            f"one that shares {len(known & found)} of its {len(known)} ops",
            "name the model and options of the recording",
        )


def _prepared(preprocess: object, raw: object) -> dict[str, Any]:
    """What both pipelines make of the raw sample. Asked for by name, so what goes wrong in them
    ends the work."""
    from syncpoint.diagnosis.pipelines import prepared, raw_sample

    pipelines = tuple(preprocess) if isinstance(preprocess, Iterable) else ()
    if len(pipelines) != 2 or raw is None:
        raise InputError(
            "two pipelines and a raw sample",
            f"{len(pipelines)} and {'none' if raw is None else 'one'}",
            "give --preprocess twice, the target's first, and --raw FILE",
        )
    return {"prepared": tuple(prepared(one, raw_sample(raw)) for one in pipelines)}


def _opened(about: Mapping[str, Any]) -> tuple[Run | None, str]:
    path = about["path"]
    if not path:
        return None, "it was not kept"
    if not Path(path).exists():
        return None, f"{path} is not there"
    try:
        run = open_run(path)
    except SyncpointError as error:
        return None, one_line(error)
    known = about.get("digest")
    if known and all(t.digest for t in run.tensors) and run.digest() != known:
        return None, f"{path} is not the run that was compared"
    return run, ""


def _subject(run: Run, model: object, options: Mapping[str, Any]) -> Subject:
    from syncpoint.diagnosis.case import Subject

    label = str(model) if isinstance(model, str | Path) else describe(model)
    return Subject(
        label,
        partial(_captured, run, model, options),
        run.info.runtime,
        partial(_replayed, run, model, options),
    )


def _captured(
    run: Run,
    model: object,
    options: Mapping[str, Any],
    inputs: list[Inputs] | None = None,
    **more: Any,
) -> Run:
    given = inputs if inputs is not None else inputs_of(run)
    made: Run = capture(model, given, **{**options, **more})
    return made


def _replayed(
    run: Run,
    model: object,
    options: Mapping[str, Any],
    values: Mapping[TensorKey, NDArray[Any]],
) -> Mapping[TensorKey, NDArray[Any]]:
    """What the model gives on the recorded inputs with other values in some places."""
    import numpy as np

    from syncpoint.comparison.operands import dequantized, operand_of
    from syncpoint.comparison.replayed import replayed
    from syncpoint.run.model import Kept, Role
    from syncpoint.runtimes.protocol import Replays

    if run.session is None:
        run = with_session(run, model, options)
    samples = inputs_of(run)
    if not isinstance(run.session, Replays) or samples is None:
        raise Unsupported("a model whose ops can be fed other values", run.info.runtime)
    with replayed(run.session, samples, lambda key, _: values.get(key)) as (made, refused):
        if any(key.op in refused for key in values):
            raise Unsupported("an op that can be run by itself", next(iter(refused.values())))
        return {
            t.key: np.array(dequantized(operand_of(made, t)))
            for t in made.tensors
            if t.key.role is Role.MODEL_OUTPUT and t.kept is Kept.VALUES
        }
