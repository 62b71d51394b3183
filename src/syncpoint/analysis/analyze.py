"""The steps of `syncpoint analyze`: run a model compiled, eager and in float64, compare the runs,
choose the suspect ops, measure what each contributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncpoint.analysis.compiled_buffers import metadata_differences
from syncpoint.analysis.contribution import measure_contributions
from syncpoint.analysis.emulated_precision_casts import explain_by_rounding
from syncpoint.analysis.float64_distances import (
    errors_by_tensor,
    lowering_difference,
    mark_nearer,
    output_errors,
)
from syncpoint.analysis.result import AnalysisResult
from syncpoint.analysis.runs import AnalysisRecorder
from syncpoint.analysis.uncompiled_code import find_uncompiled_code
from syncpoint.comparison.engine import compare
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_CLOSE
from syncpoint.files.write_errors import write_errors
from syncpoint.run.model import Role
from syncpoint.runtimes.inputs.shapes import InputShape
from syncpoint.supervision.scratch_folder import scratch_folder

_MAX_CONTRIBUTIONS = 5
"""Default number of ops whose contribution to the final error is measured."""


def analyze(
    model: object,
    inputs: object,
    *,
    options: Mapping[str, Any] | None = None,
    shapes: Mapping[str, InputShape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    save_intermediates: bool = True,
    emulate_precision_casts: bool = False,
    contribution: int = _MAX_CONTRIBUTIONS,
) -> AnalysisResult:
    """Run the model compiled, eager and in float64 on the same inputs, and compare the runs.

    With `out` and `save_intermediates` the runs and the comparison are kept in that folder.
    """
    options = dict(options or {})
    # Compiled code uses the random numbers of eager mode, so that both executions have the same.
    options["config"] = ",".join(filter(None, ("fallback_random=true", options.get("config"))))
    scratch = None
    if out is not None and save_intermediates:
        folder = Path(out)
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    else:
        scratch = scratch_folder()
        folder = Path(scratch.name)
    recorder = AnalysisRecorder(model, inputs, options, folder, shapes or {})
    runs = recorder.record_all()
    for run in (runs.compiled, runs.graph, runs.graph64, runs.eager, runs.float64):
        if run is not None:
            run.keep = scratch
    result = compare(runs.compiled, runs.graph)
    float64_errors = (
        errors_by_tensor(runs.compiled, runs.graph, runs.graph64) if runs.graph64 else {}
    )
    result = mark_nearer(result, float64_errors)
    analysis = AnalysisResult(
        result=result,
        runs=runs,
        outputs=tuple(output_errors(runs.compiled, runs.eager, runs.float64 or runs.graph64)),
        truths=float64_errors,
        metadata=metadata_differences(result, runs.compiled, runs.graph),
        lowering=lowering_difference(runs),
        uncompiled=find_uncompiled_code(runs.graph, runs.eager) if runs.eager else (),
        notes=tuple(f"no {name} run: {why}" for name, why in runs.missing.items()),
    )
    suspects = [row for row in _suspects(analysis) if row.target.key.role is Role.OUTPUT]
    if suspects[:contribution] and recorder.can_replace_values:
        contributions = measure_contributions(
            recorder.session, recorder.inputs, runs.graph, suspects[:contribution]
        )
        analysis = replace(analysis, contributions=tuple(contributions))
    if emulate_precision_casts:
        emulated = explain_by_rounding(model, inputs, options, shapes or {}, runs)
        analysis = replace(analysis, emulated=emulated)
    return analysis


def _suspects(analysis: AnalysisResult) -> list[Row]:
    """The guilty ops; where outputs are wrong and no op is guilty, the ops that add most error."""
    if analysis.guilty:
        return analysis.guilty
    if analysis.exit_code == EXIT_CLOSE:
        return []
    rows = [row for row in analysis.result.rows if row.introduced and row.introduced.ratio]
    return sorted(rows, key=lambda row: -(row.introduced.ratio or 0) if row.introduced else 0)
