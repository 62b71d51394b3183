"""Start a diagnosis, of a new or saved comparison: collect its runs (which cannot be read, and why)
and models, run pipelines, capture or replay again.

A run is data and never causes code to run. Models are run again only if the caller named them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError, SyncpointError, Unsupported, describe_error
from syncpoint.runtimes.inputs.read_inputs import read_recorded_inputs
from syncpoint.supervision.report_to_supervisor import activity
from syncpoint.workflow.capture import capture, describe_model, open_run
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
"""Default time limit after which no new experiment starts. Values may be read for
`diagnosis.budget.EXTRA_SECONDS` more."""


@dataclass(frozen=True)
class Models:
    """The models of a comparison, as far as the caller named them."""

    target: object = None
    reference: object = None
    target_options: Mapping[str, Any] = field(default_factory=dict)
    reference_options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, target: ResolvedSide, reference: ResolvedSide) -> Models:
        """The models of a comparison that was just made."""
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
    **requests: Any,
) -> Result:
    """Return the result with its diagnosis. A failure of the diagnosis (out of memory, a bug) does
    not change the comparison; it is listed in `diagnosis.troubles`. `sides` are those of the
    comparison, if it was made in this process."""
    try:
        diagnosis = _diagnose_case(
            result, target, reference, models, seconds, absent or {}, requests, sides
        )
    except Exception as error:
        diagnosis = _failed_diagnosis(result, error)
    return replace(result, diagnosis=diagnosis)


def _failed_diagnosis(result: Result, error: Exception) -> Diagnosis:
    from syncpoint.comparison.findings import Diagnosis, Symptom, failure_line
    from syncpoint.diagnosis.symptom import describe_symptom

    try:
        kind, summary = describe_symptom(result)
    except Exception:
        kind, summary = Symptom.UNKNOWN, "the diagnosis failed"
    line = failure_line(error)
    return Diagnosis(symptom=kind, summary=summary, troubles=(line,), failures=(line,))


def _diagnose_case(
    result: Result,
    target: Run | None,
    reference: Run | None,
    models: Models,
    seconds: float,
    absent: Mapping[str, str],
    requests: Mapping[str, Any],
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
            extras=requests,
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
    """Side -> the reason why its run cannot be read."""


def collect_runs(result: Result, live_runs: Mapping[str, Run]) -> CollectedRuns:
    """Collect the runs of a comparison: `live_runs`, and the others by their paths."""
    runs, absent = dict(live_runs), {}
    for side, about in (("target", result.target), ("reference", result.reference)):
        if side in runs:
            continue
        run, reason = _open_compared_run(about)
        if run is None:
            absent[side] = reason
        else:
            runs[side] = run
    return CollectedRuns(runs, absent)


def diagnose_again(
    result: Result, sides: CollectedRuns, models: Models, seconds: float = SECONDS, **requests: Any
) -> Result:
    """Diagnose a comparison that was made earlier, such as a saved one."""
    target, reference = sides.runs.get("target"), sides.runs.get("reference")
    if reference is not None and models.reference is not None:
        attach_session(reference, models.reference, models.reference_options)
    if target is not None and models.target is not None:
        check_target_model(target, models.target, models.target_options)
    if "preprocess" in requests:
        requests = _run_pipelines(**requests)
    return diagnose_result(result, target, reference, models, seconds, sides.absent, **requests)


def _run_pipelines(preprocess: object, raw: object) -> dict[str, Any]:
    """Run both preprocessing pipelines on the raw sample. The user named them, so their errors end
    the command."""
    from syncpoint.diagnosis.processing.pipelines import load_raw_sample, run_pipeline

    pipelines = tuple(preprocess) if isinstance(preprocess, Iterable) else ()
    if len(pipelines) != 2 or raw is None:
        raise InputError(
            "comparing the preprocessing needs two pipelines and a raw sample; there are "
            f"{len(pipelines)} pipelines and {'no' if raw is None else 'one'} sample",
            cure="use --preprocess twice, the target's first, and --raw FILE",
        )
    sample_inputs = tuple(run_pipeline(pipeline, load_raw_sample(raw)) for pipeline in pipelines)
    return {"prepared": sample_inputs}


def _open_compared_run(about: Mapping[str, Any]) -> tuple[Run | None, str]:
    path = about["path"]
    if not path:
        return None, "it was not saved"
    if not Path(path).exists():
        return None, f"{path} does not exist"
    try:
        run = open_run(path)
    except SyncpointError as error:
        return None, describe_error(error)
    digest = about.get("digest")
    if digest and all(t.digest for t in run.tensors) and run.digest() != digest:
        return None, f"{path} is not the run that was compared"
    return run, ""


def _subject(run: Run, model: object, options: Mapping[str, Any]) -> Subject:
    from syncpoint.diagnosis.case import Subject

    label = str(model) if isinstance(model, str | Path) else describe_model(model)
    return Subject(
        label,
        partial(_capture_again, run, model, options),
        run.info.runtime,
        partial(_replay_outputs, run, model, options),
    )


def _capture_again(
    run: Run,
    model: object,
    options: Mapping[str, Any],
    inputs: list[Inputs] | None = None,
    **more_options: Any,
) -> Run:
    samples = inputs if inputs is not None else read_recorded_inputs(run)
    new_run: Run = capture(model, samples, **{**options, **more_options})
    return new_run


def _replay_outputs(
    run: Run,
    model: object,
    options: Mapping[str, Any],
    values: Mapping[TensorKey, NDArray[Any]],
) -> Mapping[TensorKey, NDArray[Any]]:
    """Compute the outputs of the model on the recorded inputs with some tensors replaced."""
    import numpy as np

    from syncpoint.comparison.introduced_error.replay_calculation import replay_with_values
    from syncpoint.comparison.operands import dequantize, operand_of
    from syncpoint.run.model import Kept, Role
    from syncpoint.runtimes.protocol import Replays

    if run.session is None:
        attach_session(run, model, options)
    samples = read_recorded_inputs(run)
    if not isinstance(run.session, Replays) or samples is None:
        raise Unsupported(f"the runtime {run.info.runtime} cannot run a model with replaced values")
    with replay_with_values(run.session, samples, lambda key, _: values.get(key)) as (
        replay,
        refused,
    ):
        if any(key.op in refused for key in values):
            op, reason = next(iter(refused.items()))
            raise Unsupported(f"{op} cannot be run on its own: {reason}")
        return {
            t.key: np.array(dequantize(operand_of(replay, t)))
            for t in replay.tensors
            if t.key.role is Role.MODEL_OUTPUT and t.kept is Kept.VALUES
        }
