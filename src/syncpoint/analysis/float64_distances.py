"""Errors of the compiled and the eager run against float64, by tensor and output; which is nearer;
RMSE and RMS of a row's reference from its norm and count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from syncpoint.analysis.compiled_buffers import differences
from syncpoint.analysis.runs import AnalysisRuns
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.judge_rows import is_excused
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.judge_values import judge
from syncpoint.metrics.limits import PRESETS
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role, Tensor, TensorKey
from syncpoint.run.reader import Run

NEARER = "compiled is nearer to float64 than eager"
TOLERANCE = 1e-3
"""The tolerance of torch for repros, `torch._dynamo.config.repro_tolerance`."""
_ERROR_FACTOR = {"f32": 2.0, "f64": 2.0}
"""How many times the eager error a compiled error may be, by dtype."""
_ERROR_FACTOR_16_BIT = 3.0
_EQUAL_ERROR_FACTOR = 1.5
"""Two errors whose ratio is below this count as equal: both are sums of random roundings."""


@dataclass(frozen=True)
class Float64Errors:
    """The error of both executions against float64 at one tensor; None where it is not known."""

    compiled: float | None
    eager: float | None
    scale: float
    """Root mean square of the float64 values."""
    dtype: str

    @property
    def nearer(self) -> str:
        """`compiled`, `eager`, or `alike` where they hardly differ; "" if an error is not known."""
        if self.compiled is None or self.eager is None:
            return ""
        low, high = sorted((self.compiled, self.eager))
        if high <= _EQUAL_ERROR_FACTOR * low:
            return "alike"
        return "compiled" if self.compiled < self.eager else "eager"

    @property
    def passes(self) -> bool | None:
        """Whether torch's own rule accepts the compiled value.

        The absolute tolerance of that rule is relative to the scale of the values here: with an
        absolute one, tensors of small values would always pass.
        """
        if self.compiled is None or self.eager is None:
            return None
        factor = _ERROR_FACTOR.get(self.dtype, _ERROR_FACTOR_16_BIT)
        return self.compiled <= factor * self.eager + TOLERANCE / 10 * self.scale


@dataclass(frozen=True)
class OutputErrors:
    """The errors of one output of the model."""

    path: str
    truth: Float64Errors
    differences: tuple[str, ...]
    """Differences of dtype, shape, strides and device from eager mode."""


def distances(run: Run, float64: Run) -> dict[TensorKey, dict[str, Any]]:
    """The metrics of a run against a float64 run, by key of the float64 tensor."""
    result = compare(run, float64, Options(introduced="off"))
    return {row.reference.key: dict(row.numbers) for row in result.rows if row.numbers}


def errors_by_tensor(compiled: Run, graph: Run, graph64: Run) -> dict[TensorKey, Float64Errors]:
    """The errors at every paired tensor, by key of the tensor of the graph."""
    compiled_numbers, eager_numbers = distances(compiled, graph64), distances(graph, graph64)
    dtypes = {t.key: t.dtype for t in graph.tensors}
    return {
        key: Float64Errors(
            _rmse(compiled_numbers[key]),
            _rmse(eager_numbers[key]),
            _scale(eager_numbers[key]),
            dtypes.get(key, "f32"),
        )
        for key in compiled_numbers.keys() & eager_numbers.keys()
    }


def output_errors(compiled: Run, eager: Run | None, float64: Run | None) -> list[OutputErrors]:
    """The errors of every output of the model."""
    outputs = []
    eager_outputs = _outputs(eager) if eager is not None else {}
    float64_outputs = _outputs(float64) if float64 is not None else {}
    compiled_numbers = distances(compiled, float64) if float64 is not None else {}
    eager_numbers = {}
    if float64 is not None and eager is not None:
        eager_numbers = distances(eager, float64)
    for path, tensor in _outputs(compiled).items():
        exact = float64_outputs.get(path)
        a, b = (None, None)
        if exact is not None:
            a, b = compiled_numbers.get(exact.key), eager_numbers.get(exact.key)
        errors = Float64Errors(_rmse(a), _rmse(b), _scale(b), tensor.dtype)
        outputs.append(OutputErrors(path, errors, differences(tensor, eager_outputs.get(path))))
    return outputs


def is_nearer(row: Row, errors_by_key: Mapping[TensorKey, Float64Errors]) -> bool:
    """Whether the compiled value at a row is no further from float64 than the eager one."""
    errors = errors_by_key.get(row.reference.key)
    if errors is None or errors.compiled is None or errors.eager is None:
        return False
    return errors.compiled <= errors.eager


def mark_nearer(result: Result, errors_by_key: Mapping[TensorKey, Float64Errors]) -> Result:
    """Mark the rows whose compiled value is nearer to float64, and judge the result again."""
    # The inputs of a graph have no float64 value of their own.
    rows = [
        replace(row, nearer_to_float64=True)
        if row.target.key.role is not Role.INPUT and is_nearer(row, errors_by_key)
        else row
        for row in result.rows
    ]
    result = replace(result, rows=rows).rejudged(result.choice)
    rows = [
        replace(row, notes=(*row.notes, NEARER)) if is_excused(row, result.choice) else row
        for row in result.rows
    ]
    return replace(result, rows=rows)


def lowering_difference(runs: AnalysisRuns) -> str:
    """How the outputs of the graph differ from those of the model, both in float64; "" if they do
    not."""
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
                f"{name}: in float64 the compiled graph differs from the model by a relative L2"
                f" error of {numbers['rel_l2'] or 0:.2g}: decompositions or graph passes changed"
                " the computation"
            )
    return worst


def _outputs(run: Run) -> dict[str, Tensor]:
    return {t.name: t for t in run.tensors if t.key.role is Role.MODEL_OUTPUT}


def _rmse(numbers: dict[str, Any] | None) -> float | None:
    if numbers is None or numbers.get("mismatched"):
        return None
    rmse = numbers.get("rmse")
    return float(rmse) if rmse is not None and isfinite(rmse) else None


def _scale(numbers: dict[str, Any] | None) -> float:
    """Root mean square of the reference's values."""
    if not numbers or not numbers.get("compared"):
        return 0.0
    norm = numbers.get("reference_l2") or 0.0
    return float(norm / numbers["compared"] ** 0.5)
