"""Compile again with the roundings of eager mode, to see whether roundings that the compiler omits
explain the difference; worst error of an output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncpoint.analysis.float64_distances import distances
from syncpoint.analysis.runs import AnalysisRecorder, AnalysisRuns
from syncpoint.run.model import Role
from syncpoint.run.reader import Run
from syncpoint.runtimes.inputs.shapes import InputShape
from syncpoint.supervision.scratch_folder import scratch_folder


def explain_by_rounding(
    model: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, InputShape | tuple[int, ...]],
    runs: AnalysisRuns,
) -> str:
    """Compile again with the roundings of eager mode; say whether the difference is gone."""
    config = ",".join(filter(None, (options.get("config", ""), "emulate_precision_casts=true")))
    eager = runs.eager or runs.graph
    with scratch_folder() as folder:
        recorder = AnalysisRecorder(
            model, inputs, {**options, "config": config}, Path(folder), shapes
        )
        emulated = recorder.record_compiled()
        before, after = (_worst_output(run, eager) for run in (runs.compiled, emulated))
    if before == 0:
        return "the outputs are bit-identical to eager mode: there is no difference to explain"
    if after <= before / 10:
        remaining = "gone" if after == 0 else f"{after:.2g}"
        return (
            "elided rounding explains the difference: with emulate_precision_casts it is"
            f" {remaining} (relative L2, {before:.2g} without)"
        )
    return (
        "elided rounding does not explain the difference: with emulate_precision_casts it is"
        f" {after:.2g} (relative L2, {before:.2g} without)"
    )


def _worst_output(run: Run, eager: Run) -> float:
    """The largest relative L2 error of an output."""
    numbers_by_key = distances(run, eager)
    return max(
        (
            float(n["rel_l2"] or 0.0)
            for k, n in numbers_by_key.items()
            if k.role is Role.MODEL_OUTPUT
        ),
        default=0.0,
    )
