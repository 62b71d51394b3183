"""Capture or open the run in between, and measure both sides against it; the errors are split in
comparison/error_split.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncpoint.errors import InputError
from syncpoint.runtimes.inputs.shared_inputs import SharedInputs
from syncpoint.workflow.capture import GIVE_INPUTS, capture_model
from syncpoint.workflow.resolve_sides import (
    can_record_steps,
    find_named_inputs,
    find_recording,
    has_steps,
)

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result
    from syncpoint.run.reader import Run
    from syncpoint.workflow.compare_request import ComparisonRequest, ComparisonSettings
    from syncpoint.workflow.resolve_sides import OpenedSide, ResolvedSide


def add_third_run(
    result: Result,
    target: ResolvedSide,
    reference: ResolvedSide,
    request: ComparisonRequest,
    settings: ComparisonSettings,
    opened: Mapping[str, OpenedSide],
) -> Result:
    """Return the result with every error split at the run in between."""
    from syncpoint.comparison.engine import Options
    from syncpoint.comparison.engine import compare as compare_runs
    from syncpoint.comparison.error_split import split_errors

    middle = find_recording(request.through, opened)
    if middle is None:
        middle = _capture_middle(target, reference, request, find_named_inputs(request, opened))
    options = Options(choice=settings.choice, map_file=settings.map_file, introduced="off")
    by_path = isinstance(request.through, str | Path) and middle.path
    label = middle.path.name if by_path and middle.path else ""
    parts = split_errors(
        label or middle.info.model,
        result,
        compare_runs(target.run, middle, options),
        compare_runs(middle, reference.run, options),
    )
    return replace(result, through=parts)


def _capture_middle(
    target: ResolvedSide,
    reference: ResolvedSide,
    request: ComparisonRequest,
    user_inputs: object,
) -> Run:
    inputs = user_inputs if user_inputs is not None else target.samples
    if inputs is None:
        raise InputError("there are no inputs for the model of --through", cure=GIVE_INPUTS)
    steps = has_steps(target.run) and can_record_steps(request.through, {})
    extra: dict[str, Any] = {"steps": True} if steps else {}
    samples = [sample for side in (target, reference) for sample in side.samples or ()]
    run: Run = capture_model(
        request.through,
        inputs,
        shapes=request.shapes,
        options=extra,
        shared=SharedInputs({name for sample in samples for name in sample.kwargs}),
    )
    return run
