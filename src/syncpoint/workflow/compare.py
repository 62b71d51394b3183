"""The steps of `compare` in order: open, capture, measure, split by a third run, save, diagnose;
open the progress log."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from syncpoint.comparison.events import Stage, Step
from syncpoint.run.events import EventSink
from syncpoint.workflow.diagnose import Models, diagnose_result
from syncpoint.workflow.recorded_model import attach_session
from syncpoint.workflow.resolve_sides import ResolvedSide, open_sides, report_run, resolve_sides
from syncpoint.workflow.second_input import prepare_second_runs
from syncpoint.workflow.third_run import add_third_run

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result
    from syncpoint.comparison.sides import Sides
    from syncpoint.comparison.storage.progress_log import ProgressLog
    from syncpoint.workflow.compare_request import ComparisonRequest, ComparisonSettings


@dataclass(frozen=True)
class ComparisonOutcome:
    """The result of a comparison, and its two sides."""

    result: Result
    target: ResolvedSide
    reference: ResolvedSide


def compare_sides(
    request: ComparisonRequest, settings: ComparisonSettings, events: EventSink
) -> ComparisonOutcome:
    """Run the comparison of a request: open, capture, measure, save, diagnose."""
    opened = open_sides(request, events)
    request = replace(
        request,
        target_options=opened["target"].options,
        reference_options=opened["reference"].options,
    )
    with _open_log(request, settings) as log:
        target, reference = resolve_sides(request, settings, opened, events)
        if request.reference_model is not None:
            events.send(Step(stage=Stage.REFERENCE))
            attach_session(reference.run, request.reference_model, reference.options)
            report_run(events, "reference", reference.run, "opened with its model", opened=True)
        result, sides = _measure(settings, target, reference, log, events)
        if request.through is not None:
            result = add_third_run(result, target, reference, request, settings, opened)
        result = _save_and_diagnose(result, settings, target, reference, sides, events)
    return ComparisonOutcome(result, target, reference)


def _open_log(
    request: ComparisonRequest, settings: ComparisonSettings
) -> AbstractContextManager[ProgressLog | None]:
    """Open the progress log if the comparison is saved; otherwise None."""
    if settings.out is None:
        return nullcontext()
    from syncpoint.comparison.storage.progress_log import ProgressLog

    names = {**request.as_names(), **settings.as_names()}
    return ProgressLog(settings.out, names, resume=settings.resume)


def _measure(
    settings: ComparisonSettings,
    target: ResolvedSide,
    reference: ResolvedSide,
    log: ProgressLog | None,
    events: EventSink,
) -> tuple[Result, Sides]:
    """Run the engine; returns its result, and both runs as the engine read them."""
    from syncpoint.comparison.engine import Options, compare_through
    from syncpoint.comparison.sides import build_sides

    samples = target.samples if settings.introduced == "replay" else None
    options = Options(
        choice=settings.choice,
        map_file=settings.map_file,
        introduced=settings.introduced,
        samples=samples or (),
        threads=settings.threads,
        log=log,
        second_execution=prepare_second_runs(target, reference) if settings.confirm else None,
        events=events,
    )
    sides = build_sides(target.run, reference.run, options.masks)
    result = compare_through(sides, options)
    return replace(result, min_coverage=settings.min_coverage), sides


def _save_and_diagnose(
    result: Result,
    settings: ComparisonSettings,
    target: ResolvedSide,
    reference: ResolvedSide,
    sides: Sides,
    events: EventSink,
) -> Result:
    """Save before the diagnosis, which may fail or be killed. The log is removed after it, so that
    `resume` can see that the diagnosis is missing."""
    from syncpoint.comparison.storage.comparison_folder import is_comparison, save, save_diagnosis

    if settings.out is not None and not is_comparison(settings.out):
        save(result, settings.out)
    if settings.diagnose:
        events.send(Step(stage=Stage.DIAGNOSIS))
        models = Models.of(target, reference)
        result = diagnose_result(result, target.run, reference.run, models, sides=sides)
        if settings.out is not None:
            save_diagnosis(result, settings.out)
        count = len(result.findings)
        text = f"{count} finding{'' if count == 1 else 's'}"
        events.send(Step(stage=Stage.DIAGNOSIS, done=count, total=count, finished=True, text=text))
    return result
