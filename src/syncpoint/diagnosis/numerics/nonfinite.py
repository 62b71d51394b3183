"""Find what makes NaN or inf: overflow of a result or inside an op, underflow before a division or
log, rows that are masked out, constants; type limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case, Values, same_shape
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import number
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import WHOLE, Edge, Op, Role, TensorKey

Places = NDArray[np.bool_]
_NORM_KINDS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "norm", "linalg_vector_norm")
_SUM_KINDS = ("matmul", "conv", "conv_transpose", "sum", "cumsum")
MAX_MASK_VALUE = -1e4
"""Values at or below this are masks."""
_MAX_OPS_UPSTREAM = 12
"""Maximum number of tensors to visit upstream of an op that gives NaN or inf."""


@dataclass(frozen=True)
class InternalOverflow:
    """An intermediate value of an op that its type cannot hold."""

    description: str
    """Description with the largest value."""
    kind: str
    places: Places
    """Elements of the op's output that it affects."""
    op: Op
    certain: bool = True
    """Whether every implementation without a guard against it has it."""


@dataclass(frozen=True)
class Underflow:
    """A tensor upstream with values that underflowed to zero."""

    row: Row
    count: int
    value: float
    """Largest magnitude in the reference where the target has zero."""
    min_positive: float
    """Smallest positive value of its type."""


def ceiling(dtype: str) -> float:
    """Return the largest value that does not round to inf in a float type."""
    kind = DTYPES[dtype]
    return kind.max * (1 + kind.unit / 2)


def is_float(dtype: str) -> bool:
    """Whether a type is a float type."""
    return dtype in DTYPES and DTYPES[dtype].kind is Kind.FLOAT


def min_positive(dtype: str) -> float:
    """Return the smallest positive value of a float type."""
    kind = DTYPES[dtype]
    return float(2.0 ** (kind.min_exponent - kind.mantissa))


def find_internal_overflows(experiment: RegionExperiment, dtype: str) -> Iterator[InternalOverflow]:
    """Yield what overflows inside the ops of a region if they compute in this type unguarded."""
    max_value = ceiling(dtype)
    shape = experiment.truth.shape
    with np.errstate(all="ignore"):
        for op in experiment.ops[:-1]:
            value = experiment.output(op)
            if value is None or value.dtype.kind != "f":
                continue
            # An infinite value of the reference is intended: a mask.
            over = (np.abs(value) > max_value) & np.isfinite(value)
            # A mask that becomes -inf still masks.
            if over.any() and not _is_mask(value[over]):
                description = (
                    f"{op.key} inside it reaches {number(float(np.abs(value[over]).max()))}"
                )
                yield InternalOverflow(description, "between", _project_to_output(over, shape), op)
        for op in experiment.ops:
            yield from _find_overflows_in_op(experiment, op, max_value, shape)


def _find_overflows_in_op(
    experiment: RegionExperiment, op: Op, max_value: float, shape: tuple[int, ...]
) -> Iterator[InternalOverflow]:
    """Yield what overflows inside one op, by its class."""
    kind = op_class(op.type)
    arguments = [a for a in experiment.arguments(op) if a is not None and a.dtype.kind == "f"]
    if not arguments or not arguments[0].size:
        return
    x = np.asarray(arguments[0], np.float64)
    if kind in ("softmax", "log_softmax", "logsumexp"):
        total = np.exp(x).sum(-1, keepdims=True)
        description = f"the scores that {op.key} reads reach {number(float(x.max()))}"
        if x.max() <= np.log(max_value):
            description = f"the sum of exp over the scores overflows; {description}"
        yield from _report_overflow(op, x, total > max_value, shape, description, "softmax")
    elif kind in _NORM_KINDS:
        total = np.square(x).sum(-1, keepdims=True)
        description = f"its sum of squares reaches {number(float(total.max()))}"
        yield from _report_overflow(op, x, total > max_value, shape, description, "squares")
    elif kind == "gelu":
        description = "the cube of its input is beyond it"
        yield from _report_overflow(op, x, np.abs(x) ** 3 > max_value, shape, description, "cube")
    elif kind in ("sigmoid", "silu"):
        description = "exp of its negated input is beyond it"
        yield from _report_overflow(op, x, np.exp(-x) > max_value, shape, description, "exp")
    elif kind == "attention" and len(arguments) > 1:
        yield from _find_score_overflow(
            op, x, np.asarray(arguments[1], np.float64), max_value, shape
        )
    elif kind in _SUM_KINDS and len(experiment.ops) == 1:
        yield from _find_partial_sum_overflow(experiment, op, max_value, shape)


def _report_overflow(
    op: Op, x: Values, over: Places, shape: tuple[int, ...], description: str, kind: str
) -> Iterator[InternalOverflow]:
    """Yield the overflow of elements or rows of an op's input, if there are any."""
    if over.any():
        yield InternalOverflow(
            description, kind, _project_to_output(np.broadcast_to(over, x.shape), shape), op
        )


def _find_score_overflow(
    op: Op, queries: Values, keys: Values, max_value: float, shape: tuple[int, ...]
) -> Iterator[InternalOverflow]:
    """Yield the overflow of attention scores that are scaled only after the product."""
    scores = queries @ np.swapaxes(keys, -1, -2)
    over = np.asarray((np.abs(scores) > max_value).any(-1, keepdims=True))
    if over.any():
        description = f"its scores before scaling reach {number(float(np.abs(scores).max()))}"
        yield InternalOverflow(
            description, "scores", _project_to_output(over, shape), op, certain=False
        )


def _find_partial_sum_overflow(
    experiment: RegionExperiment, op: Op, max_value: float, shape: tuple[int, ...]
) -> Iterator[InternalOverflow]:
    """Yield the overflow of partial sums whose terms cancel later."""
    total = experiment.run_with(
        {e: np.abs(v) for e, v in experiment.inputs.items() if v.dtype.kind == "f"}
    )
    if total is not None and total.shape == shape and (total > max_value).any():
        description = (
            f"its partial sums may reach {number(float(total.max()))} before they cancel out"
        )
        yield InternalOverflow(description, "partial-sums", total > max_value, op, certain=False)


def _is_mask(values: NDArray[Any]) -> bool:
    return bool(values.max() == values.min() <= MAX_MASK_VALUE)


def _project_to_output(over: Places, shape: tuple[int, ...]) -> Places:
    """Return which elements of the output an overflow affects: the same elements if the shapes
    agree, else all."""
    if over.shape == shape:
        return over
    try:
        return np.broadcast_to(over, shape)
    except ValueError:
        return np.full(shape, bool(over.any()))


def agreement(broken_places: Places, predicted_places: Places) -> tuple[float, float]:
    """Return the share of broken rows that were predicted, and the share of predicted rows that
    are broken. Rows are along the last axis: one NaN spreads to every sum over its row."""
    if broken_places.ndim:
        broken_places, predicted_places = (
            np.asarray(broken_places.any(-1)),
            np.asarray(predicted_places.any(-1)),
        )
    agreeing = float(np.count_nonzero(broken_places & predicted_places))
    return (
        agreeing / max(1, int(np.count_nonzero(broken_places))),
        agreeing / max(1, int(np.count_nonzero(predicted_places))),
    )


def find_underflow_upstream(case: Case, experiment: RegionExperiment) -> Underflow | None:
    """Find the tensor upstream that underflowed to zero before this op divided by it or took its
    logarithm."""
    waiting = list(experiment.region.inputs)
    visited: set[TensorKey] = set()
    best: Underflow | None = None
    while waiting and len(visited) < _MAX_OPS_UPSTREAM:
        edge = waiting.pop(0)
        key = TensorKey(edge.op, edge.role, edge.index, experiment.region.part)
        row = case.by_reference.get(key)
        if key in visited or row is None:
            continue
        visited.add(key)
        underflow = _find_underflow(case, row)
        if underflow is not None:
            best = underflow
            if edge.role is not Role.OUTPUT:
                break
            before = case.experiment(row)
            truth = before.truth if before is not None else None
            if truth is None or _has_underflow(truth, row):
                return underflow
            # It was already zero before this op.
            waiting = list(before.region.inputs) if before is not None else []
    return best


def _find_underflow(case: Case, row: Row) -> Underflow | None:
    if not is_float(row.target.dtype):
        return None
    both = same_shape(case.values("target", row), case.values("reference", row))
    if both is None:
        return None
    target_values, reference_values = both
    underflowed = (
        (target_values == 0)
        & (reference_values != 0)
        & (np.abs(reference_values) < min_positive(row.target.dtype))
    )
    if not underflowed.any():
        return None
    size = float(np.abs(reference_values[underflowed]).max())
    return Underflow(row, int(np.count_nonzero(underflowed)), size, min_positive(row.target.dtype))


def count_masked_rows(case: Case, row: Row, places: Places) -> int:
    """Count the fully masked rows if they are the rows that break; else return 0.

    With -inf as the mask, softmax gives 0 / 0 in such rows; with a large negative number it
    gives equal weights."""
    experiment = case.experiment(row)
    for op in experiment.ops if experiment is not None else ():
        if experiment is None or op_class(op.type) not in ("softmax", "log_softmax", "attention"):
            continue
        for argument in experiment.arguments(op):
            if argument is None or argument.dtype.kind != "f" or not argument.ndim:
                continue
            masked_rows = np.asarray((argument <= MAX_MASK_VALUE).all(-1))
            if masked_rows.any() and places.shape[:-1] == masked_rows.shape:
                bad_rows = np.asarray(places.any(-1))
                return int(np.count_nonzero(masked_rows)) if (bad_rows <= masked_rows).all() else 0
            if np.isneginf(argument).all(-1).any():
                return int(np.count_nonzero(masked_rows))
    return 0


def find_unrepresentable_literal(op: Op | None, dtype: str) -> float | None:
    """Find a constant among the attributes of an op that a type cannot hold."""
    numbers = [v for v in op.attributes.values() if isinstance(v, float)] if op else []
    return next((v for v in numbers if np.isfinite(v) and abs(v) > ceiling(dtype)), None)


def _has_underflow(truth: NDArray[Any], row: Row) -> bool:
    return bool(((truth != 0) & (np.abs(truth) < min_positive(row.target.dtype))).any())


@dataclass(frozen=True, kw_only=True)
class BreakingOp:
    """An unmatched op of the target that gives NaN or inf for finite inputs."""

    op: Op
    dtype: str
    count: int
    greatest: float | None = None
    """Largest magnitude of its result in float64, if every broken element overflows the type."""
    constant: bool = False
    """Whether it depends on parameters only, not on the model's inputs."""


def find_breaking_op(case: Case, key: TensorKey) -> BreakingOp | None:
    """Find the op, at or upstream of a target tensor, where NaN or inf first appears."""
    run = case.target
    waiting, visited = [key.op], {key.op}
    while waiting and run is not None:
        op = run.op(waiting.pop())
        if op is None:
            continue
        bad_inputs = [e for e in op.inputs if _holds_nonfinite(case, e, key)]
        broken = _explain_break(case, op, key, bad_inputs)
        if broken is not None:
            return broken
        for edge in bad_inputs:
            if edge.role is Role.OUTPUT and edge.op not in visited and len(visited) < 64:
                visited.add(edge.op)
                waiting.append(edge.op)
    return None


def _explain_break(case: Case, op: Op, key: TensorKey, bad_inputs: list[Edge]) -> BreakingOp | None:
    """Explain how an op breaks; None if it is fine or only passes on NaN or inf of its inputs."""
    tensor = TensorKey(op.key, Role.OUTPUT, 0, key.part)
    own = case.target.tensor(tensor) if case.target is not None else None
    value = _read_values(case, Edge(op.key), key)
    if value is None or own is None:
        return None
    if any(edge.role is Role.PARAMETER for edge in bad_inputs):
        count = int(np.count_nonzero(~np.isfinite(value)))
        return BreakingOp(op=op, dtype=own.dtype, count=count, constant=True)
    if bad_inputs or not _is_bad(case, Edge(op.key), key, value):
        return None
    inputs = (_read_values(case, e, key) for e in op.inputs)
    broken = _measure_break(op, own.dtype, value, [v for v in inputs if v is not None])
    is_constant = all(e.role is Role.PARAMETER for e in op.inputs)
    return replace(broken, constant=bool(op.inputs) and is_constant)


def _holds_nonfinite(case: Case, edge: Edge, key: TensorKey) -> bool:
    value = _read_values(case, edge, key)
    return value is not None and _is_bad(case, edge, key, value)


def _is_bad(case: Case, edge: Edge, key: TensorKey, value: Values) -> bool:
    """Whether a tensor of the target has NaN or inf where the reference is finite. A mask with
    -inf on both sides does not count."""
    nonfinite = ~np.isfinite(value)
    place = case.place.get(TensorKey(edge.op, edge.role, edge.index, key.part))
    if place is None or not nonfinite.any():
        return bool(nonfinite.any())
    row = case.rows[place]
    both = same_shape(case.values("target", row), case.values("reference", row))
    if both is None:
        return True
    target_values, reference_values = both
    return bool((~np.isfinite(target_values) & np.isfinite(reference_values)).any())


def _measure_break(op: Op, dtype: str, value: Values, inputs: list[Values]) -> BreakingOp:
    places = ~np.isfinite(value)
    count = int(np.count_nonzero(places))
    exact = _in_float64(op_class(op.type), inputs)
    if exact is None or exact.shape != value.shape or not is_float(dtype):
        return BreakingOp(op=op, dtype=dtype, count=count)
    size = np.abs(exact[places])
    if not (size > ceiling(dtype)).all():
        return BreakingOp(op=op, dtype=dtype, count=count)
    with np.errstate(all="ignore"):
        return BreakingOp(op=op, dtype=dtype, count=count, greatest=float(size.max()))


def _in_float64(kind: str, inputs: list[Values]) -> Values | None:
    with np.errstate(all="ignore"):
        output: Values | None = None
        if kind == "exp" and len(inputs) == 1:
            output = np.exp(inputs[0])
        elif kind in ("mul", "add", "sub") and len(inputs) == 2:
            operation = {"mul": np.multiply, "add": np.add, "sub": np.subtract}[kind]
            output = operation(inputs[0], inputs[1])
        elif kind == "pow" and inputs:
            output = np.square(inputs[0])
    return output


def _read_values(case: Case, edge: Edge, key: TensorKey) -> Values | None:
    run = case.target
    if run is None:
        return None
    part = WHOLE if edge.role is Role.PARAMETER else key.part
    tensor = run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
    if tensor is None or DTYPES[tensor.dtype].kind is Kind.BOOL:
        return None
    return read_real_values(run, tensor)


def is_non_finite(row: Row) -> bool:
    """Whether the target has NaN or inf that the reference does not have."""
    if row.first_non_finite:
        return True
    return row.has_more_non_finite and row.verdict is Verdict.LARGE


def is_caused_upstream(case: Case, row: Row, reference_values: Values) -> bool:
    """Whether an earlier op is to blame: one is guilty, and the reference's values fit the type."""
    has_earlier_guilty = any(
        other.target.order < row.target.order and not is_non_finite(other) for other in case.guilty
    )
    if not has_earlier_guilty or not is_float(row.target.dtype):
        return False
    return bool(np.mean(np.abs(reference_values) <= ceiling(row.target.dtype)) > 0.9)


def find_best_overflow(
    experiment: RegionExperiment, dtype: str, places: Places
) -> tuple[InternalOverflow, float, float] | None:
    """Find the internal overflow that predicts the broken elements best.

    Returns it with the share of broken rows that it predicts and the share of its predicted rows
    that are broken."""
    if not is_float(dtype):
        return None
    candidates: Iterator[tuple[InternalOverflow, float, float]] = (
        (overflow, *agreement(places, overflow.places))
        for overflow in find_internal_overflows(experiment, dtype)
    )
    accurate = [candidate for candidate in candidates if candidate[1] >= 0.9]
    return max(accurate, key=lambda candidate: (candidate[0].certain, candidate[2]), default=None)
