"""Why two runs differ: a comparison and whatever of its runs and models is at hand -> a diagnosis.

A run is data and never makes code run. Models are run again only where the caller named them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError, SyncpointError, Unsupported, describe_error
from syncpoint.supervision.child_channel import activity
from syncpoint.workflow.capture import capture, describe_model, inputs_of, open_run
from syncpoint.workflow.recorded_model import attach_session, check_target_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from syncpoint.comparison.findings import Diagnosis
    from syncpoint.comparison.result import Result
    from syncpoint.comparison.sides import Sides
    from syncpoint.diagnosis.case import Subject
    from syncpoint.run.model import TensorKey
    from syncpoint.run.reader import Run
    from syncpoint.runtimes.protocol import Inputs
    from syncpoint.workflow.resolve_sides import ResolvedSide

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
    def of(cls, target: ResolvedSide, reference: ResolvedSide) -> Models:
        """Those of a comparison that has just been made."""
        return cls(target.model, reference.model, target.options, reference.options)


@activity("looking for the causes")
def diagnose_result(
    result: Result,
    target: Run | None,
    reference: Run | None,
    models: Models,
    seconds: float = SECONDS,
    absent: Mapping[str, str] | None = None,
    sides: Sides | None = None,
    **asked: Any,
) -> Result:
    """The result with its diagnosis. A diagnosis that fails, for want of memory or by a fault of
    ours, costs the comparison nothing: it says so in `diagnosis.troubles`. `sides` are those that
    the comparison was made with, where it was made in this process."""
    try:
        made = _diagnosis(result, target, reference, models, seconds, absent or {}, asked, sides)
    except Exception as error:
        made = _failed(result, error)
    return replace(result, diagnosis=made)


def _failed(result: Result, error: Exception) -> Diagnosis:
    from syncpoint.comparison.findings import Diagnosis, Symptom, failure_line
    from syncpoint.diagnosis.symptom import describe_symptom

    try:
        what, summary = describe_symptom(result)
    except Exception:
        what, summary = Symptom.UNKNOWN, "the diagnosis did not come to its end"
    line = failure_line(error)
    return Diagnosis(symptom=what, summary=summary, troubles=(line,), failures=(line,))


def _diagnosis(
    result: Result,
    target: Run | None,
    reference: Run | None,
    models: Models,
    seconds: float,
    absent: Mapping[str, str],
    asked: Mapping[str, Any],
    sides: Sides | None,
) -> Diagnosis:
    from syncpoint.diagnosis.case import Case
    from syncpoint.diagnosis.diagnose import diagnose

    runs = {"target": target, "reference": reference}
    subjects: dict[str, Subject] = {}
    for side, run in runs.items():
        model = getattr(models, side)
        if model is not None and run is not None:
            subjects[side] = _subject(run, model, getattr(models, f"{side}_options"))
    return diagnose(
        Case(
            result,
            target,
            reference,
            absent=absent,
            subjects=subjects,
            extras=asked,
            seconds=seconds,
            compared_sides=sides,
        )
    )


@dataclass(frozen=True)
class CollectedRuns:
    """The runs of a comparison, as far as they can be read."""

    runs: Mapping[str, Run]
    """By side."""
    absent: Mapping[str, str]
    """Side -> why its run cannot be read."""


def collect_runs(result: Result, runs_at_hand: Mapping[str, Run]) -> CollectedRuns:
    """The runs of a comparison: those at hand, and by their paths those that are not."""
    runs, absent = dict(runs_at_hand), {}
    for side, about in (("target", result.target), ("reference", result.reference)):
        if side in runs:
            continue
        run, why = _opened(about)
        if run is None:
            absent[side] = why
        else:
            runs[side] = run
    return CollectedRuns(runs, absent)


def diagnose_again(
    result: Result, sides: CollectedRuns, models: Models, seconds: float = SECONDS, **asked: Any
) -> Result:
    """The same for a comparison that was made earlier, such as a saved one."""
    target, reference = sides.runs.get("target"), sides.runs.get("reference")
    if reference is not None and models.reference is not None:
        attach_session(reference, models.reference, models.reference_options)
    if target is not None and models.target is not None:
        check_target_model(target, models.target, models.target_options)
    if "preprocess" in asked:
        asked = _prepared(**asked)
    return diagnose_result(result, target, reference, models, seconds, sides.absent, **asked)


def _prepared(preprocess: object, raw: object) -> dict[str, Any]:
    """What both pipelines make of the raw sample. Asked for by name, so what goes wrong in them
    ends the work."""
    from syncpoint.diagnosis.processing.pipelines import load_raw_sample, run_pipeline

    pipelines = tuple(preprocess) if isinstance(preprocess, Iterable) else ()
    if len(pipelines) != 2 or raw is None:
        raise InputError(
            "two pipelines and a raw sample",
            f"{len(pipelines)} and {'none' if raw is None else 'one'}",
            "give --preprocess twice, the target's first, and --raw FILE",
        )
    return {"prepared": tuple(run_pipeline(one, load_raw_sample(raw)) for one in pipelines)}


def _opened(about: Mapping[str, Any]) -> tuple[Run | None, str]:
    path = about["path"]
    if not path:
        return None, "it was not kept"
    if not Path(path).exists():
        return None, f"{path} is not there"
    try:
        run = open_run(path)
    except SyncpointError as error:
        return None, describe_error(error)
    known = about.get("digest")
    if known and all(t.digest for t in run.tensors) and run.digest() != known:
        return None, f"{path} is not the run that was compared"
    return run, ""


def _subject(run: Run, model: object, options: Mapping[str, Any]) -> Subject:
    from syncpoint.diagnosis.case import Subject

    label = str(model) if isinstance(model, str | Path) else describe_model(model)
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

    from syncpoint.comparison.introduced_error.replay_calculation import replay_with_values
    from syncpoint.comparison.operands import dequantize, operand_of
    from syncpoint.run.model import Kept, Role
    from syncpoint.runtimes.protocol import Replays

    if run.session is None:
        attach_session(run, model, options)
    samples = inputs_of(run)
    if not isinstance(run.session, Replays) or samples is None:
        raise Unsupported("a model whose ops can be fed other values", run.info.runtime)
    with replay_with_values(run.session, samples, lambda key, _: values.get(key)) as (
        made,
        refused,
    ):
        if any(key.op in refused for key in values):
            raise Unsupported("an op that can be run by itself", next(iter(refused.values())))
        return {
            t.key: np.array(dequantize(operand_of(made, t)))
            for t in made.tensors
            if t.key.role is Role.MODEL_OUTPUT and t.kept is Kept.VALUES
        }
