"""`syncpoint analyze`: a compiled model against itself in eager mode and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncpoint.analysis.buffer_differences import metadata
from syncpoint.analysis.contribution import contributions
from syncpoint.analysis.nearer_to_float64 import (
    Truth,
    by_place,
    distances,
    is_nearer,
    outputs,
)
from syncpoint.analysis.result import NEARER, AnalysisResult
from syncpoint.analysis.runs import Maker, Runs
from syncpoint.comparison.engine import compare
from syncpoint.comparison.judging import is_excused
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_CLOSE
from syncpoint.files.write_errors import write_errors
from syncpoint.metrics.limits import PRESETS, judge
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role, TensorKey
from syncpoint.run.reader import Run
from syncpoint.runtimes.inputs.generate import Shape
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
    result = _with_truths(result, truths)
    made = AnalysisResult(
        result=result,
        runs=runs,
        outputs=tuple(outputs(runs.compiled, runs.eager, runs.float64 or runs.graph64)),
        truths=truths,
        metadata=metadata(result, runs.compiled, runs.graph),
        lowering=_lowering(runs),
        notes=tuple(f"no {name} run: {why}" for name, why in runs.missing.items()),
    )
    worst = [row for row in _suspects(made) if row.target.key.role is Role.OUTPUT][:contribution]
    if worst and maker.can_replace_values:
        found = contributions(maker.session, maker.inputs, runs.graph, worst)
        made = replace(made, contributions=tuple(found))
    if emulate_precision_casts:
        made = replace(made, emulated=_emulated(model, inputs, options, shapes or {}, made))
    return made


def _suspects(made: AnalysisResult) -> list[Row]:
    """Guilty ops; where outputs are off and nobody is guilty, those that add the most."""
    if made.guilty:
        return made.guilty
    if made.exit_code == EXIT_CLOSE:
        return []
    rows = [row for row in made.result.rows if row.introduced and row.introduced.ratio]
    return sorted(rows, key=lambda row: -(row.introduced.ratio or 0) if row.introduced else 0)


def _with_truths(result: Result, truths: Mapping[TensorKey, Truth]) -> Result:
    """The result with what is known of the distance to float64, judged by it."""
    # What a graph is given has no float64 value of its own.
    rows = [
        replace(row, nearer_to_float64=True)
        if row.target.key.role is not Role.INPUT and is_nearer(row, truths)
        else row
        for row in result.rows
    ]
    result = replace(result, rows=rows).rejudged(result.choice)
    noted = [
        replace(row, notes=(*row.notes, NEARER)) if is_excused(row, result.choice) else row
        for row in result.rows
    ]
    return replace(result, rows=noted)


def _lowering(runs: Runs) -> str:
    """The outputs of the graph against those of the model, both in float64."""
    if runs.float64 is None or runs.graph64 is None:
        return ""
    limits = PRESETS["f32"]
    worst = ""
    for key, numbers in distances(runs.graph64, runs.float64).items():
        if key.role is not Role.MODEL_OUTPUT:
            continue
        verdict, _ = judge(numbers, limits)
        if verdict is Verdict.LARGE:
            name = next(t.name for t in runs.float64.tensors if t.key == key)
            worst = (
                f"{name}: the graph that was compiled, in float64, is"
                f" {numbers['rel_l2'] or 0:.2g} away from the model in float64: decompositions or"
                " graph passes changed the computation"
            )
    return worst


def _emulated(
    model: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, Shape | tuple[int, ...]],
    made: AnalysisResult,
) -> str:
    """Compile once more with eager's roundings kept: is the difference gone?"""
    config = ",".join(filter(None, (options.get("config", ""), "emulate_precision_casts=true")))
    eager = made.runs.eager or made.runs.graph
    with scratch_folder() as folder:
        maker = Maker(model, inputs, {**options, "config": config}, Path(folder), shapes)
        twin = maker.compiled()
        before, after = (_worst_output(run, eager) for run in (made.runs.compiled, twin))
    if before == 0:
        return "the outputs are eager's, bit by bit; there is nothing to explain"
    if after <= before / 10:
        left = "gone" if after == 0 else f"{after:.2g}"
        return (
            f"elided rounding explains the difference: with emulate_precision_casts it is {left}"
            f" (relative L2, {before:.2g} without)"
        )
    return (
        "elided rounding does not explain the difference: with emulate_precision_casts it is"
        f" {after:.2g} (relative L2, {before:.2g} without)"
    )


def _worst_output(run: Run, eager: Run) -> float:
    found = distances(run, eager)
    return max(
        (float(n["rel_l2"] or 0.0) for k, n in found.items() if k.role is Role.MODEL_OUTPUT),
        default=0.0,
    )
