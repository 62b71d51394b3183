"""`syncpoint analyze`: a compiled model against itself in eager mode and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncpoint.analysis.buffer_differences import metadata
from syncpoint.analysis.contribution import contributions
from syncpoint.analysis.emulated_precision_casts import explain_by_rounding
from syncpoint.analysis.float64_distances import (
    by_place,
    lowering_difference,
    mark_nearer,
    outputs,
)
from syncpoint.analysis.result import AnalysisResult
from syncpoint.analysis.runs import Maker
from syncpoint.comparison.engine import compare
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_CLOSE
from syncpoint.files.write_errors import write_errors
from syncpoint.run.model import Role
from syncpoint.runtimes.inputs.shapes import Shape
from syncpoint.supervision.scratch_folder import scratch_folder

_MOST_CONTRIBUTIONS = 5


def analyze(
    model: object,
    inputs: object,
    *,
    options: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Shape | tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    save_intermediates: bool = True,
    emulate_precision_casts: bool = False,
    contribution: int = _MOST_CONTRIBUTIONS,
) -> AnalysisResult:
    """Run the model compiled, eager and in float64 on the same inputs, and compare them all.

    With `out` and `save_intermediates` the runs and the comparison stay in that folder.
    """
    options = dict(options or {})
    # Both executions must draw the same random numbers, so compiled code takes eager's.
    options["config"] = ",".join(filter(None, ("fallback_random=true", options.get("config"))))
    keep = None
    if out is not None and save_intermediates:
        folder = Path(out)
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
    else:
        keep = scratch_folder()
        folder = Path(keep.name)
    maker = Maker(model, inputs, options, folder, shapes or {})
    runs = maker.make()
    for run in (runs.compiled, runs.graph, runs.graph64, runs.eager, runs.float64):
        if run is not None:
            run.keep = keep
    result = compare(runs.compiled, runs.graph)
    truths = by_place(runs.compiled, runs.graph, runs.graph64) if runs.graph64 else {}
    result = mark_nearer(result, truths)
    made = AnalysisResult(
        result=result,
        runs=runs,
        outputs=tuple(outputs(runs.compiled, runs.eager, runs.float64 or runs.graph64)),
        truths=truths,
        metadata=metadata(result, runs.compiled, runs.graph),
        lowering=lowering_difference(runs),
        notes=tuple(f"no {name} run: {why}" for name, why in runs.missing.items()),
    )
    worst = [row for row in _suspects(made) if row.target.key.role is Role.OUTPUT][:contribution]
    if worst and maker.can_replace_values:
        found = contributions(maker.session, maker.inputs, runs.graph, worst)
        made = replace(made, contributions=tuple(found))
    if emulate_precision_casts:
        made = replace(
            made, emulated=explain_by_rounding(model, inputs, options, shapes or {}, runs)
        )
    return made


def _suspects(made: AnalysisResult) -> list[Row]:
    """Guilty ops; where outputs are off and nobody is guilty, those that add the most."""
    if made.guilty:
        return made.guilty
    if made.exit_code == EXIT_CLOSE:
        return []
    rows = [row for row in made.result.rows if row.introduced and row.introduced.ratio]
    return sorted(rows, key=lambda row: -(row.introduced.ratio or 0) if row.introduced else 0)
