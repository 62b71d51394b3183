"""Who is nearer to float64: every pair of the compiled run and of the eager ops beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from syncpoint.analysis.buffer_differences import differences
from syncpoint.analysis.runs import Runs
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.judge_rows import is_excused
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.judge_numbers import judge
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role, Tensor, TensorKey
from syncpoint.run.reader import Run

NEARER = "compiled is nearer to float64 than eager"
TOLERANCE = 1e-3
"""torch's own for repros, `torch._dynamo.config.repro_tolerance`."""
_SLACK = {"f32": 2.0, "f64": 2.0}
"""How many times the eager error a compiled one may be; three times for 16-bit types."""

_ALIKE = 1.5
"""Two errors that differ by less are the same: each is a sum of many chances."""


@dataclass(frozen=True)
class Truth:
    """The distance of both executions from float64 at one place; n/a where it is None."""

    compiled: float | None
    eager: float | None
    scale: float
    """Root mean square of the float64 values."""
    dtype: str

    @property
    def nearer(self) -> str:
        """`compiled`, `eager`, or `alike` where they hardly differ; "" where it is not known."""
        if self.compiled is None or self.eager is None:
            return ""
        low, high = sorted((self.compiled, self.eager))
        if high <= _ALIKE * low:
            return "alike"
        return "compiled" if self.compiled < self.eager else "eager"

    @property
    def passes(self) -> bool | None:
        """The word of torch's own rule. Its absolute tolerance is taken relative to the scale
        of the values here, since small tensors would pass whatever they hold."""
        if self.compiled is None or self.eager is None:
            return None
        slack = _SLACK.get(self.dtype, 3.0)
        return self.compiled <= slack * self.eager + TOLERANCE / 10 * self.scale


@dataclass(frozen=True)
class OutputTruth:
    """One of the model's outputs."""

    path: str
    truth: Truth
    differences: tuple[str, ...]
    """What of type, shape, strides and device is not as in eager mode."""


def distances(run: Run, truth: Run) -> dict[TensorKey, dict[str, Any]]:
    """The numbers of a run against a float64 run, by the key of the float64 tensor."""
    result = compare(run, truth, Options(introduced="off"))
    return {row.reference.key: dict(row.numbers) for row in result.rows if row.numbers}


def by_place(compiled: Run, graph: Run, graph64: Run) -> dict[TensorKey, Truth]:
    """Both distances at every paired tensor, by the key of the tensor of the graph."""
    mine, theirs = distances(compiled, graph64), distances(graph, graph64)
    dtypes = {t.key: t.dtype for t in graph.tensors}
    return {
        key: Truth(
            _rmse(mine[key]), _rmse(theirs[key]), _scale(theirs[key]), dtypes.get(key, "f32")
        )
        for key in mine.keys() & theirs.keys()
    }


def outputs(compiled: Run, eager: Run | None, truth: Run | None) -> list[OutputTruth]:
    """Every output of the model, by the path the user knows."""
    found = []
    mine = _outputs(compiled)
    theirs = _outputs(eager) if eager is not None else {}
    near = distances(compiled, truth) if truth is not None else {}
    far = distances(eager, truth) if truth is not None and eager is not None else {}
    places = {t.name: t.key for t in _outputs(truth).values()} if truth is not None else {}
    for path, tensor in mine.items():
        key = places.get(path)
        a, b = (near.get(key), far.get(key)) if key is not None else (None, None)
        known = Truth(_rmse(a), _rmse(b), _scale(b), tensor.dtype)
        found.append(OutputTruth(path, known, differences(tensor, theirs.get(path))))
    return found


def is_nearer(row: Row, truths: Mapping[TensorKey, Truth]) -> bool:
    """Whether the compiled value at a row is no further from float64 than the eager one."""
    truth = truths.get(row.reference.key)
    if truth is None or truth.compiled is None or truth.eager is None:
        return False
    return truth.compiled <= truth.eager


def mark_nearer(result: Result, truths: Mapping[TensorKey, Truth]) -> Result:
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


def lowering_difference(runs: Runs) -> str:
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


def _outputs(run: Run) -> dict[str, Tensor]:
    return {t.name: t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}


def _rmse(numbers: dict[str, Any] | None) -> float | None:
    if numbers is None or numbers.get("mismatched"):
        return None
    found = numbers.get("rmse")
    return float(found) if found is not None and isfinite(found) else None


def _scale(numbers: dict[str, Any] | None) -> float:
    """Root mean square of the reference's values."""
    if not numbers or not numbers.get("compared"):
        return 0.0
    norm = numbers.get("reference_l2") or 0.0
    return float(norm / numbers["compared"] ** 0.5)
