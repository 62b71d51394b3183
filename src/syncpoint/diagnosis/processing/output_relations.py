"""Find what is done to a model output on one side only: softmax, sigmoid, scale, another order of
labels; how well it predicts, whether unmistakable."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.weights.relations import Relation, distance, find_permutation
from syncpoint.run.dtypes import DTYPES, Kind

Values = NDArray[np.float64]

_UNMISTAKABLE = frozenset({"softmax", "log-softmax", "sigmoid", "argmax"})


def is_unmistakable(kind: str) -> bool:
    """Whether no error of a layer looks like this relation."""
    return kind.removesuffix("-missing") in _UNMISTAKABLE


def find_output_relation(reference: Values, target: Values, floor: float) -> Relation | None:
    """Find what turns the reference's output into the target's; None if no known relation does."""
    if not np.isfinite(reference).all() or not np.isfinite(target).all() or reference.size < 2:
        return None
    apart = distance(reference, target)
    for relation in _propose_relations(reference, target):
        residual = distance(relation.predicted, target)
        if residual <= floor and residual <= 0.05 * apart:
            return relation
    for relation in _propose_relations(target, reference):
        residual = distance(relation.predicted, reference)
        if is_unmistakable(relation.kind) and residual <= floor and residual <= 0.05 * apart:
            words = f"lacks the {relation.kind} that the reference applies"
            return Relation(f"{relation.kind}-missing", words, relation.predicted)
    return None


def _propose_relations(one: Values, other: Values) -> Iterator[Relation]:
    if one.shape == other.shape:
        for axis in range(one.ndim):
            if one.shape[axis] < 2:
                continue
            soft = _log_softmax(one, axis)
            yield Relation(
                "softmax",
                "is passed through a softmax; the reference's is not",
                np.exp(soft),
            )
            yield Relation(
                "log-softmax",
                "is passed through a log-softmax; the reference's is not",
                soft,
            )
        with np.errstate(over="ignore"):
            sigmoid = 1 / (1 + np.exp(-one))
        yield Relation("sigmoid", "is passed through a sigmoid; the reference's is not", sigmoid)
        square = float(np.vdot(one, one))
        factor = float(np.vdot(one, other)) / square if square else 0.0
        if factor > 0:
            words = f"is the reference's multiplied by {factor:.5g} (a temperature or scale)"
            yield Relation("scaled", words, factor * one)
        for axis in reversed(range(one.ndim)):
            order = find_permutation(one, other, axis) if one.shape[axis] > 2 else None
            if order is not None and (order != np.arange(len(order))).any():
                moved = np.flatnonzero(order != np.arange(len(order)))
                first = moved[0]
                words = (
                    f"has {len(moved)} of {len(order)} entries of axis {axis} in another order than"
                    f" the reference (index {first} holds the reference's index {order[first]})"
                )
                kind = "label-order" if axis == one.ndim - 1 else "order"
                yield Relation(kind, words, np.take(one, order, axis))
    elif one.ndim and other.shape in (one.shape[:-1], (*one.shape[:-1], 1)):
        best = one.argmax(-1).reshape(other.shape).astype(np.float64)
        yield Relation("argmax", "is the argmax of the reference's", best)
    if one.ndim >= 2:
        for a in range(one.ndim):
            for b in range(a + 1, one.ndim):
                swapped = np.swapaxes(one, a, b)
                words = f"has axes {a} and {b} swapped"
                if swapped.shape == other.shape:
                    yield Relation("layout", words, swapped)
                elif one.shape == other.shape:
                    words += ", in the reference's shape"
                    yield Relation("layout", words, swapped.reshape(other.shape))


def _log_softmax(values: Values, axis: int) -> Values:
    shifted = values - values.max(axis=axis, keepdims=True)
    logarithms: Values = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return logarithms


def output_floor(row: Row) -> float:
    """Return the distance up to which an output counts as predicted: a few hundred roundings."""
    coarse = {"f16": "f16", "bf16": "bf16"}.get(row.preset, row.target.dtype)
    kind = DTYPES[coarse]
    unit = kind.unit if kind.kind is Kind.FLOAT else 0.0
    return min(max(1e-4, 64 * unit), 0.05)


def measure_residual(relation: Relation, target: Values, reference: Values) -> float:
    """Return the distance of a relation's prediction to the output that it predicts."""
    predicted = reference if relation.kind.endswith("-missing") else target
    return distance(relation.predicted, predicted)
