"""Guess the weight or bias that a target without recorded weights must have used, and prove it by
running the reference's op with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, prove_change
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.weights.relations import (
    Relation,
    describe_difference,
    distance,
    find_relation,
    group_by_channel,
    propose_integer_rounding,
)
from syncpoint.diagnosis.weights.solve_from_outputs import SolvedWeight, solve_weights
from syncpoint.matching.op_kinds import op_kind
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, Role

Values = NDArray[np.float64]

_MAX_OTHER_WEIGHTS = 16
"""Maximum number of other weights of the same shape to try."""

_MAX_PERMUTED_CHANNELS = 512
"""Maximum number of channels to search for a permutation."""

_MAX_WEIGHT_ELEMENTS = 1 << 24
"""Maximum number of elements of a weight to guess."""


@dataclass(frozen=True)
class HiddenWeight:
    """A weight that is not recorded and that explains the target's numbers."""

    edge: Edge
    kind: str
    words: str
    proof: Proof
    confidence: float


def infer_hidden_weight(
    case: Case, experiment: RegionExperiment, edges: list[Edge]
) -> HiddenWeight | None:
    """Return the first guess that gives the target's numbers; None if none does."""
    # A dropout that scales the op's input gives the same numbers as a scaled weight.
    has_dropout = any(op_kind(op.type).endswith("dropout") for op in experiment.ops)
    for edge in edges:
        weight = experiment.inputs[edge]
        if weight.dtype.kind != "f" or not 1 < weight.size <= _MAX_WEIGHT_ELEMENTS:
            continue
        for guess in _propose_weights(case, experiment, edge, np.asarray(weight, np.float64)):
            if not case.has_time:
                return None
            if guess.kind == "scaled" and has_dropout:
                continue
            proof = prove_change(experiment, {edge: guess.predicted})
            if proof is not None and proof.exact:
                # Scaling the weight and scaling the result give the same numbers.
                doubtful = guess.kind == "scaled"
                return HiddenWeight(edge, guess.kind, guess.words, proof, 0.8 if doubtful else 0.93)
    solved = _solve_weight(experiment, edges)
    if solved is not None and solved.kind == "scaled" and has_dropout:
        return None
    return solved


def _propose_weights(
    case: Case, experiment: RegionExperiment, edge: Edge, weight: Values
) -> Iterator[Relation]:
    if weight.ndim >= 2:
        for a in range(weight.ndim):
            for b in range(a + 1, weight.ndim):
                swapped = np.swapaxes(weight, a, b)
                if weight.shape[a] == 1 or weight.shape[b] == 1:
                    continue
                words = f"has axes {a} and {b} swapped"
                yield Relation("transposed", words, swapped.reshape(weight.shape))
                back = np.swapaxes(weight.reshape(swapped.shape), a, b)
                if swapped.shape != weight.shape:
                    yield Relation("transposed", words, back)
    for axis in range(weight.ndim):
        if weight.shape[axis] > 1:
            words = f"is reversed along axis {axis}"
            yield Relation("permuted", words, np.flip(weight, axis))
    if weight.ndim >= 2:
        for dtype in (DTYPES["f16"], DTYPES["bf16"]):
            with np.errstate(over="ignore"):
                rounded = weight.astype(dtype.numpy).astype(np.float64)
            if np.isfinite(rounded).all() and (rounded != weight).any():
                yield Relation(
                    "rounded", f"is the reference's rounded to {dtype.long_name}", rounded
                )
        yield from propose_integer_rounding(weight)
    yield from _propose_reordered_rows(experiment, edge, weight)
    factor = _fit_factor(experiment, edge, weight)
    if factor is not None:
        if abs(factor) < 1e-3:
            if weight.ndim >= 2:
                yield Relation("zeroed", "is zero everywhere", np.zeros_like(weight))
        else:
            words = f"is the reference's multiplied by {factor:.5g}"
            yield Relation("scaled", words, factor * weight)
    yield from _propose_other_weights(case, edge, weight)


def _propose_reordered_rows(
    experiment: RegionExperiment, edge: Edge, weight: Values
) -> Iterator[Relation]:
    """Propose the rows of the weight in the order of the target's channels. The ops that follow in
    the region may only scale and shift each channel and apply a ReLU."""
    op = next((op for op in experiment.ops if edge in op.inputs), None)
    before = experiment.output(op) if op is not None else None
    if before is None or before.shape != experiment.truth.shape or before.ndim < 2:
        return
    for axis in sorted({1, before.ndim - 1}):
        if before.shape[axis] != weight.shape[0]:
            continue
        order = _match_channels(
            *(group_by_channel(v, axis) for v in (before, experiment.truth, experiment.target))
        )
        if order is None or (order == np.arange(len(order))).all():
            continue
        moved = int((order != np.arange(len(order))).sum())
        words = f"has {moved} of {len(order)} rows in another order"
        yield Relation("permuted", words, weight[order])


def _match_channels(before: Values, truth: Values, target: Values) -> NDArray[np.int64] | None:
    """Return the channel of the op that each channel of the target comes from; None if unclear."""
    if len(before) > _MAX_PERMUTED_CHANNELS:
        return None
    order = np.full(len(before), -1)
    for channel, (target_channel, truth_channel, op_channel) in enumerate(
        zip(target, truth, before, strict=True)
    ):
        nonzero = (truth_channel != 0) & np.isfinite(truth_channel) & np.isfinite(op_channel)
        if nonzero.sum() < 3 or not np.ptp(op_channel[nonzero]):
            continue
        gain, shift = np.polyfit(op_channel[nonzero], truth_channel[nonzero], 1)
        predicted = gain * before + shift
        if (~nonzero).any():
            predicted = np.maximum(predicted, 0)
        order[channel] = int(np.square(predicted - target_channel).sum(1).argmin())
    # A channel that is zero everywhere matches none: it gets an unused channel.
    unused = [index for index in range(len(before)) if index not in set(order.tolist())]
    silent_channels = np.flatnonzero(order < 0)
    if len(unused) != len(silent_channels):
        return None
    order[silent_channels] = unused
    return np.asarray(order, np.int64)


def _fit_factor(experiment: RegionExperiment, edge: Edge, weight: Values) -> float | None:
    """Fit the factor of the weight. The result is linear in it, except where a ReLU gives zero."""
    output_of_zeros = experiment.run_with({edge: np.zeros_like(weight)})
    if output_of_zeros is None or output_of_zeros.shape != experiment.target.shape:
        return None
    nonzero = experiment.without_masked((experiment.target != 0) & (experiment.truth != 0))
    direction, change = (
        (experiment.truth - output_of_zeros)[nonzero],
        (experiment.target - output_of_zeros)[nonzero],
    )
    square = float(np.vdot(direction, direction)) if direction.size else 0.0
    if not square or not np.isfinite(square):
        return None
    factor = float(np.vdot(direction, change)) / square
    return factor if np.isfinite(factor) else None


def _propose_other_weights(case: Case, edge: Edge, weight: Values) -> Iterator[Relation]:
    """Propose other weights of the reference with the same shape."""
    reference = case.reference
    if reference is None:
        return
    tried = 0
    for tensor in reference.tensors:
        key = tensor.key
        if key.role is not Role.PARAMETER or key.op == edge.op or tensor.shape != weight.shape:
            continue
        if tensor.kept is not Kept.VALUES or DTYPES[tensor.dtype].kind is not Kind.FLOAT:
            continue
        tried += 1
        if tried > _MAX_OTHER_WEIGHTS:
            return
        values = read_real_values(reference, tensor)
        if values is None:
            continue
        yield Relation("swapped", f"holds the values of {key.op}", values)


def _solve_weight(experiment: RegionExperiment, edges: list[Edge]) -> HiddenWeight | None:
    for solved in solve_weights(experiment):
        weight = np.asarray(experiment.inputs[solved.edge], np.float64)
        if distance(weight, solved.weight) <= solved.floor:
            return _solve_bias(experiment, solved, edges)
        if solved.edge not in edges:
            continue
        relation = find_relation(weight, solved.weight, solved.floor)
        relation = relation or find_relation(weight, solved.weight, max(1e-3, solved.floor))
        proof = prove_change(experiment, {solved.edge: solved.weight})
        if proof is None or not proof.explains:
            continue
        # Any linear change can be written as another weight: without a relation that a person
        # can check, the cause stays open.
        has_relation = relation is not None
        kind = relation.kind if relation is not None else "changed"
        words = (
            relation.words if relation is not None else describe_difference(weight, solved.weight)
        )
        return HiddenWeight(solved.edge, kind, words, proof, 0.85 if has_relation else 0.7)
    return None


def _solve_bias(
    experiment: RegionExperiment, solved: SolvedWeight, edges: list[Edge]
) -> HiddenWeight | None:
    """Solve for the bias if the weight is correct. None if the solved bias is zero: the op then
    ignores its bias, which is not a wrong weight."""
    for edge in edges:
        if edge not in solved.op.inputs or experiment.inputs[edge].shape != solved.added.shape:
            continue
        bias = np.asarray(experiment.inputs[edge], np.float64)
        solved_bias = bias + solved.added
        if not np.abs(solved_bias).max() > 1e-3 * np.abs(bias).max():
            return None
        proof = prove_change(experiment, {edge: solved_bias})
        if proof is not None and proof.explains:
            relation = find_relation(bias, solved_bias, 1e-3)
            kind = relation.kind if relation is not None else "changed"
            words = (
                relation.words if relation is not None else describe_difference(bias, solved_bias)
            )
            return HiddenWeight(edge, kind, words, proof, 0.75)
    return None
