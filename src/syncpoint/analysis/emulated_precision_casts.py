"""Whether rounding that the compiler left out explains the difference to eager mode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncpoint.analysis.float64_distances import distances
from syncpoint.analysis.runs import Maker, Runs
from syncpoint.run.model import Role
from syncpoint.run.reader import Run
from syncpoint.runtimes.inputs.shapes import Shape
from syncpoint.supervision.scratch_folder import scratch_folder


def explain_by_rounding(
    model: object,
    inputs: object,
    options: Mapping[str, Any],
    shapes: Mapping[str, Shape | tuple[int, ...]],
    runs: Runs,
) -> str:
    """Compile once more with eager's roundings kept: is the difference gone?"""
    config = ",".join(filter(None, (options.get("config", ""), "emulate_precision_casts=true")))
    eager = runs.eager or runs.graph
    with scratch_folder() as folder:
        maker = Maker(model, inputs, {**options, "config": config}, Path(folder), shapes)
        twin = maker.compiled()
        before, after = (_worst_output(run, eager) for run in (runs.compiled, twin))
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
