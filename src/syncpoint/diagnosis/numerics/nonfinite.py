"""How NaN and inf come to be: what an op would have given with room enough, what overflows inside
it, and which op upstream lost the value that it then divides by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case, Values
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import number
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import WHOLE, Edge, Op, Role, TensorKey

Places = NDArray[np.bool_]
_NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "norm", "linalg_vector_norm")
_SUMS = ("matmul", "conv", "conv_transpose", "sum", "cumsum")
MASK = -1e4
"""What is filled in at or below this is meant to mask."""
_FAR = 12
"""Ops that are looked at upstream of one that broke."""


@dataclass(frozen=True)
class Inside:
    """Something that an op computes on the way and that does not fit its type."""

    what: str
    """In words, with its greatest value."""
    kind: str
    places: Places
    """Which elements of the op's output it reaches."""
    op: Op
    certain: bool = True
    """Every implementation that does not guard against it has it."""


@dataclass(frozen=True)
class Lost:
    """A value that became zero upstream."""

    row: Row
    count: int
    value: float
    """The greatest size that it had in the reference where the target has zero."""
    least: float
    """The least that its type can hold."""


def ceiling(dtype: str) -> float:
    """The greatest value that a float type holds, what still rounds to it included."""
    kind = DTYPES[dtype]
    return kind.max * (1 + kind.unit / 2)


def is_float(dtype: str) -> bool:
    """Whether a type has an end beyond which there is infinity."""
    return dtype in DTYPES and DTYPES[dtype].kind is Kind.FLOAT


def least(dtype: str) -> float:
    """The least positive value of a float type."""
    kind = DTYPES[dtype]
    return float(2.0 ** (kind.min_exponent - kind.mantissa))


def inside(experiment: RegionExperiment, dtype: str) -> Iterator[Inside]:
    """What overflows inside the ops of a region, if they compute in this type unguarded."""
    top = ceiling(dtype)
    shape = experiment.truth.shape
    with np.errstate(all="ignore"):
        for op in experiment.ops[:-1]:
            value = experiment.output(op)
            if value is None or value.dtype.kind != "f":
                continue
            # What is infinite in the reference is meant so: a mask.
            over = (np.abs(value) > top) & np.isfinite(value)
            # A mask that becomes -inf masks all the same.
            if over.any() and not _is_mask(value[over]):
                words = f"{op.key} inside it reaches {number(float(np.abs(value[over]).max()))}"
                yield Inside(words, "between", _reaching(over, shape), op)
        for op in experiment.ops:
            yield from _within(experiment, op, top, shape)


def _within(
    experiment: RegionExperiment, op: Op, top: float, shape: tuple[int, ...]
) -> Iterator[Inside]:
    """What overflows inside one op, by its class."""
    kind = op_class(op.type)
    arguments = [a for a in experiment.arguments(op) if a is not None and a.dtype.kind == "f"]
    if not arguments or not arguments[0].size:
        return
    x = np.asarray(arguments[0], np.float64)
    if kind in ("softmax", "log_softmax", "logsumexp"):
        total = np.exp(x).sum(-1, keepdims=True)
        words = f"its scores reach {number(float(x.max()))}, too large for exp"
        yield from _spoilt_rows(op, x, total > top, shape, words, "softmax")
    elif kind in _NORMS:
        total = np.square(x).sum(-1, keepdims=True)
        words = f"its sum of squares reaches {number(float(total.max()))}"
        yield from _spoilt_rows(op, x, total > top, shape, words, "squares")
    elif kind == "gelu":
        words = "the cube of its input is beyond it"
        yield from _spoilt_rows(op, x, np.abs(x) ** 3 > top, shape, words, "cube")
    elif kind in ("sigmoid", "silu"):
        words = "exp of its negated input is beyond it"
        yield from _spoilt_rows(op, x, np.exp(-x) > top, shape, words, "exp")
    elif kind == "attention" and len(arguments) > 1:
        yield from _scores(op, x, np.asarray(arguments[1], np.float64), top, shape)
    elif kind in _SUMS and len(experiment.ops) == 1:
        yield from _partial_sums(experiment, op, top, shape)


def _spoilt_rows(
    op: Op, x: Values, over: Places, shape: tuple[int, ...], words: str, kind: str
) -> Iterator[Inside]:
    """An overflow of single elements, or of whole rows of what an op reads."""
    if over.any():
        yield Inside(words, kind, _reaching(np.broadcast_to(over, x.shape), shape), op)


def _scores(
    op: Op, queries: Values, keys: Values, top: float, shape: tuple[int, ...]
) -> Iterator[Inside]:
    """Scores of an attention that are scaled only after the product."""
    scores = queries @ np.swapaxes(keys, -1, -2)
    over = np.asarray((np.abs(scores) > top).any(-1, keepdims=True))
    if over.any():
        words = f"its scores before scaling reach {number(float(np.abs(scores).max()))}"
        yield Inside(words, "scores", _reaching(over, shape), op, certain=False)


def _partial_sums(
    experiment: RegionExperiment, op: Op, top: float, shape: tuple[int, ...]
) -> Iterator[Inside]:
    """Terms of a sum that are beyond the type before they cancel."""
    total = experiment.run_with(
        {e: np.abs(v) for e, v in experiment.inputs.items() if v.dtype.kind == "f"}
    )
    if total is not None and total.shape == shape and (total > top).any():
        words = f"its partial sums may reach {number(float(total.max()))} before they cancel out"
        yield Inside(words, "partial-sums", total > top, op, certain=False)


def _is_mask(values: NDArray[Any]) -> bool:
    return bool(values.max() == values.min() <= MASK)


def _reaching(over: Places, shape: tuple[int, ...]) -> Places:
    """Where in the output what overflowed arrives: at its own place, else anywhere in it."""
    if over.shape == shape:
        return over
    try:
        return np.broadcast_to(over, shape)
    except ValueError:
        return np.full(shape, bool(over.any()))


def agreement(found: Places, predicted: Places) -> tuple[float, float]:
    """Which share of the bad rows was foretold, and which share of the foretold are bad. By
    rows along the last axis: one NaN spoils all that is added up with it."""
    if found.ndim:
        found, predicted = np.asarray(found.any(-1)), np.asarray(predicted.any(-1))
    both = float(np.count_nonzero(found & predicted))
    return (
        both / max(1, int(np.count_nonzero(found))),
        both / max(1, int(np.count_nonzero(predicted))),
    )


def lost_upstream(case: Case, experiment: RegionExperiment) -> Lost | None:
    """The op whose value underflowed to zero before this one took its logarithm or divided."""
    waiting = list(experiment.region.inputs)
    seen: set[TensorKey] = set()
    best: Lost | None = None
    while waiting and len(seen) < _FAR:
        edge = waiting.pop(0)
        key = TensorKey(edge.op, edge.role, edge.index, experiment.region.part)
        row = case.by_reference.get(key)
        if key in seen or row is None:
            continue
        seen.add(key)
        found = _lost(case, row)
        if found is not None:
            best = found
            if edge.role is not Role.OUTPUT:
                break
            before = case.experiment(row)
            truth = before.truth if before is not None else None
            if truth is None or _vanishes(truth, row):
                return found
            # It was zero before this op already.
            waiting = list(before.region.inputs) if before is not None else []
    return best


def _lost(case: Case, row: Row) -> Lost | None:
    if not is_float(row.target.dtype):
        return None
    mine, theirs = case.values("target", row), case.values("reference", row)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return None
    gone = (mine == 0) & (theirs != 0) & (np.abs(theirs) < least(row.target.dtype))
    if not gone.any():
        return None
    size = float(np.abs(theirs[gone]).max())
    return Lost(row, int(np.count_nonzero(gone)), size, least(row.target.dtype))


def wholly_masked(case: Case, row: Row, places: Places) -> int:
    """Rows that are masked as a whole, if those are the rows that break: with -inf for a mask
    softmax gives 0 / 0 there, with a large negative number all the same."""
    experiment = case.experiment(row)
    for op in experiment.ops if experiment is not None else ():
        if experiment is None or op_class(op.type) not in ("softmax", "log_softmax", "attention"):
            continue
        for argument in experiment.arguments(op):
            if argument is None or argument.dtype.kind != "f" or not argument.ndim:
                continue
            dead = np.asarray((argument <= MASK).all(-1))
            if dead.any() and places.shape[:-1] == dead.shape:
                bad = np.asarray(places.any(-1))
                return int(np.count_nonzero(dead)) if (bad <= dead).all() else 0
            if np.isneginf(argument).all(-1).any():
                return int(np.count_nonzero(dead))
    return 0


def literal(op: Op | None, dtype: str) -> float | None:
    """A number that is written into an op and that a type cannot hold."""
    numbers = [v for v in op.attributes.values() if isinstance(v, float)] if op else []
    return next((v for v in numbers if np.isfinite(v) and abs(v) > ceiling(dtype)), None)


def _vanishes(truth: NDArray[Any], row: Row) -> bool:
    return bool(((truth != 0) & (np.abs(truth) < least(row.target.dtype))).any())


@dataclass(frozen=True, kw_only=True)
class Broken:
    """An op of the target without a partner that makes NaN or inf out of finite inputs."""

    op: Op
    dtype: str
    count: int
    greatest: float | None = None
    """Size of its greatest result in float64 where all that broke is beyond the type."""
    constant: bool = False
    """It depends on nothing that the model was given."""


def broken_before(case: Case, key: TensorKey) -> Broken | None:
    """The first op upstream of a target tensor, itself included, that breaks."""
    run = case.target
    waiting, seen = [key.op], {key.op}
    while waiting and run is not None:
        op = run.op(waiting.pop())
        if op is None:
            continue
        bad = [e for e in op.inputs if _holds_nonfinite(case, e, key)]
        broken = _breaking(case, op, key, bad)
        if broken is not None:
            return broken
        for edge in bad:
            if edge.role is Role.OUTPUT and edge.op not in seen and len(seen) < 64:
                seen.add(edge.op)
                waiting.append(edge.op)
    return None


def _breaking(case: Case, op: Op, key: TensorKey, bad: list[Edge]) -> Broken | None:
    """How an op breaks; None where it is fine, or only passes on what is bad in its inputs."""
    tensor = TensorKey(op.key, Role.OUTPUT, 0, key.part)
    own = case.target.tensor(tensor) if case.target is not None else None
    value = _read(case, Edge(op.key), key)
    if value is None or own is None:
        return None
    if any(edge.role is Role.PARAMETER for edge in bad):
        count = int(np.count_nonzero(~np.isfinite(value)))
        return Broken(op=op, dtype=own.dtype, count=count, constant=True)
    if bad or not _is_bad(case, Edge(op.key), key, value):
        return None
    inputs = (_read(case, e, key) for e in op.inputs)
    broken = _broken(op, own.dtype, value, [v for v in inputs if v is not None])
    is_constant = all(e.role is Role.PARAMETER for e in op.inputs)
    return replace(broken, constant=bool(op.inputs) and is_constant)


def _holds_nonfinite(case: Case, edge: Edge, key: TensorKey) -> bool:
    value = _read(case, edge, key)
    return value is not None and _is_bad(case, edge, key, value)


def _is_bad(case: Case, edge: Edge, key: TensorKey, value: Values) -> bool:
    """Whether a tensor of the target holds NaN or inf; not where the reference has them too, as
    where a mask fills in -inf."""
    odd = ~np.isfinite(value)
    place = case.place.get(TensorKey(edge.op, edge.role, edge.index, key.part))
    if place is None or not odd.any():
        return bool(odd.any())
    row = case.rows[place]
    mine, theirs = case.values("target", row), case.values("reference", row)
    if mine is None or theirs is None or mine.shape != theirs.shape:
        return True
    return bool((~np.isfinite(mine) & np.isfinite(theirs)).any())


def _broken(op: Op, dtype: str, value: Values, inputs: list[Values]) -> Broken:
    places = ~np.isfinite(value)
    count = int(np.count_nonzero(places))
    wide = _in_float64(op_class(op.type), inputs)
    if wide is None or wide.shape != value.shape or not is_float(dtype):
        return Broken(op=op, dtype=dtype, count=count)
    size = np.abs(wide[places])
    if not (size > ceiling(dtype)).all():
        return Broken(op=op, dtype=dtype, count=count)
    with np.errstate(all="ignore"):
        return Broken(op=op, dtype=dtype, count=count, greatest=float(size.max()))


def _in_float64(kind: str, inputs: list[Values]) -> Values | None:
    with np.errstate(all="ignore"):
        found: Values | None = None
        if kind == "exp" and len(inputs) == 1:
            found = np.exp(inputs[0])
        elif kind in ("mul", "add", "sub") and len(inputs) == 2:
            made = {"mul": np.multiply, "add": np.add, "sub": np.subtract}[kind]
            found = made(inputs[0], inputs[1])
        elif kind == "pow" and inputs:
            found = np.square(inputs[0])
    return found


def _read(case: Case, edge: Edge, key: TensorKey) -> Values | None:
    run = case.target
    if run is None:
        return None
    part = WHOLE if edge.role is Role.PARAMETER else key.part
    tensor = run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
    if tensor is None or DTYPES[tensor.dtype].kind is Kind.BOOL:
        return None
    return read_real_values(run, tensor)


def is_non_finite(row: Row) -> bool:
    """Whether the target has NaN or inf here that the reference has not."""
    if row.first_non_finite:
        return True
    return row.has_more_non_finite and row.verdict is Verdict.LARGE


def follows_broken(case: Case, row: Row, theirs: Values) -> bool:
    """Whether the reference's values would have fitted, so that an op before is to blame."""
    before = any(
        other.target.order < row.target.order and not is_non_finite(other) for other in case.guilty
    )
    if not before or not is_float(row.target.dtype):
        return False
    return bool(np.mean(np.abs(theirs) <= ceiling(row.target.dtype)) > 0.9)


def best_inside(
    experiment: RegionExperiment, dtype: str, places: Places
) -> tuple[Inside, float, float] | None:
    """What overflowed inside the op, by which of it the places are predicted best: with the share
    of them that it predicts, and of its predictions that are among them."""
    if not is_float(dtype):
        return None
    found: Iterator[tuple[Inside, float, float]] = (
        (one, *agreement(places, one.places)) for one in inside(experiment, dtype)
    )
    good = [one for one in found if one[1] >= 0.9]
    return max(good, key=lambda one: (one[0].certain, one[2]), default=None)
