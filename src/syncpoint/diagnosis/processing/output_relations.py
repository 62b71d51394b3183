"""What is done to an output on one side alone: softmax, sigmoid, another order of the labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.weights.relations import Relation, distance, permutation
from syncpoint.run.dtypes import DTYPES, Kind

Values = NDArray[np.float64]

_FIRM = frozenset({"softmax", "log-softmax", "sigmoid", "argmax"})


def is_firm(kind: str) -> bool:
    """Whether no fault of a layer looks like it."""
    return kind.removesuffix("-missing") in _FIRM


def output_relation(reference: Values, target: Values, floor: float) -> Relation | None:
    """What turns the reference's output into the target's; None where nothing known does."""
    if not np.isfinite(reference).all() or not np.isfinite(target).all() or reference.size < 2:
        return None
    apart = distance(reference, target)
    for relation in _applied(reference, target):
        left = distance(relation.made, target)
        if left <= floor and left <= 0.05 * apart:
            return relation
    for relation in _applied(target, reference):
        left = distance(relation.made, reference)
        if is_firm(relation.kind) and left <= floor and left <= 0.05 * apart:
            words = f"lacks the {relation.kind} that the reference applies"
            return Relation(f"{relation.kind}-missing", words, relation.made)
    return None


def _applied(one: Values, other: Values) -> Iterator[Relation]:
    if one.shape == other.shape:
        for axis in range(one.ndim):
            if one.shape[axis] < 2:
                continue
            soft = _log_softmax(one, axis)
            yield Relation(
                "softmax",
                "is the softmax of the reference's; the reference applies none",
                np.exp(soft),
            )
            yield Relation(
                "log-softmax",
                "is the log-softmax of the reference's; the reference applies none",
                soft,
            )
        with np.errstate(over="ignore"):
            sigmoid = 1 / (1 + np.exp(-one))
        yield Relation(
            "sigmoid", "is the sigmoid of the reference's; the reference applies none", sigmoid
        )
        square = float(np.vdot(one, one))
        factor = float(np.vdot(one, other)) / square if square else 0.0
        if factor > 0:
            words = f"is the reference's multiplied by {factor:.5g} (a temperature or scale)"
            yield Relation("scaled", words, factor * one)
        for axis in reversed(range(one.ndim)):
            order = permutation(one, other, axis) if one.shape[axis] > 2 else None
            if order is not None and (order != np.arange(len(order))).any():
                moved = int((order != np.arange(len(order))).sum())
                words = (
                    f"has {moved} of {len(order)} entries of axis {axis} in another order than"
                    " the reference"
                )
                kind = "label-order" if axis == one.ndim - 1 else "order"
                yield Relation(kind, words, np.take(one, order, axis))
    elif one.ndim and other.shape in (one.shape[:-1], (*one.shape[:-1], 1)):
        best = one.argmax(-1).reshape(other.shape).astype(np.float64)
        yield Relation("argmax", "is the argmax of the reference's", best)
    if one.ndim >= 2:
        for a in range(one.ndim):
            for b in range(a + 1, one.ndim):
                made = np.swapaxes(one, a, b)
                words = f"has axes {a} and {b} swapped"
                if made.shape == other.shape:
                    yield Relation("layout", words, made)
                elif one.shape == other.shape:
                    words += ", in the reference's shape"
                    yield Relation("layout", words, made.reshape(other.shape))


def _log_softmax(values: Values, axis: int) -> Values:
    moved = values - values.max(axis=axis, keepdims=True)
    found: Values = moved - np.log(np.exp(moved).sum(axis=axis, keepdims=True))
    return found


def output_floor(row: Row) -> float:
    """How near a predicted output must come: a few hundred roundings of its precision."""
    coarse = {"f16": "f16", "bf16": "bf16"}.get(row.preset, row.target.dtype)
    kind = DTYPES[coarse]
    unit = kind.unit if kind.kind is Kind.FLOAT else 0.0
    return min(max(1e-4, 64 * unit), 0.05)


def left_over(relation: Relation, ours: Values, theirs: Values) -> float:
    """What a relation leaves of the difference, relative to the output that it predicts."""
    wanted = theirs if relation.kind.endswith("-missing") else ours
    return distance(relation.made, wanted)
