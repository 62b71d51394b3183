"""Which weight a target that does not show its own must have used: guesses, each of them proven by
what the reference's op gives with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, prove_change, prove_result
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.weights.recorded_parameters import target_parameters_behind
from syncpoint.diagnosis.weights.relations import Relation, distance, integers, likeness, related
from syncpoint.diagnosis.weights.solve_from_outputs import Effective, effective
from syncpoint.matching.op_kinds import op_class, op_kind
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, Role

Values = NDArray[np.float64]

_OTHERS = 16
_CHANNELS = 512
"""Channels among which a permutation is looked for."""
_LARGEST = 1 << 24
"""Elements of a weight that guesses are made of."""


@dataclass(frozen=True)
class Hidden:
    """A weight that explains the target."""

    edge: Edge
    kind: str
    words: str
    proof: Proof
    confidence: float


def hidden(case: Case, experiment: RegionExperiment, edges: list[Edge]) -> Hidden | None:
    """The first guess that gives the target's numbers; None where none does."""
    # A dropout that still scales what the op reads gives the same numbers as a scaled weight.
    drops = any(op_kind(op.type).endswith("dropout") for op in experiment.ops)
    for edge in edges:
        weight = experiment.inputs[edge]
        if weight.dtype.kind != "f" or not 1 < weight.size <= _LARGEST:
            continue
        for guess in _guesses(case, experiment, edge, np.asarray(weight, np.float64)):
            if not case.has_time:
                return None
            if guess.kind == "scaled" and drops:
                continue
            found = prove_change(experiment, {edge: guess.made})
            if found is not None and found.exact:
                # Scaling a weight and scaling the result are one and the same to the numbers.
                doubtful = guess.kind == "scaled"
                return Hidden(edge, guess.kind, guess.words, found, 0.8 if doubtful else 0.93)
    found_by_solving = _solved(experiment, edges)
    if found_by_solving is not None and found_by_solving.kind == "scaled" and drops:
        return None
    return found_by_solving


def _guesses(
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
        yield from integers(weight)
    yield from _reordered(experiment, edge, weight)
    factor = _factor(experiment, edge, weight)
    if factor is not None:
        if abs(factor) < 1e-3:
            if weight.ndim >= 2:
                yield Relation("zeroed", "is zero everywhere", np.zeros_like(weight))
        else:
            words = f"is the reference's multiplied by {factor:.5g}"
            yield Relation("scaled", words, factor * weight)
    yield from _others(case, edge, weight)


def _reordered(experiment: RegionExperiment, edge: Edge, weight: Values) -> Iterator[Relation]:
    """Rows in the order in which the target's channels stand, as far as whatever follows in the
    region only scales, shifts and cuts off each channel."""
    op = next((op for op in experiment.ops if edge in op.inputs), None)
    before = experiment.output(op) if op is not None else None
    if before is None or before.shape != experiment.truth.shape or before.ndim < 2:
        return
    for axis in sorted({1, before.ndim - 1}):
        if before.shape[axis] != weight.shape[0]:
            continue
        order = _order(
            *(_by_channel(v, axis) for v in (before, experiment.truth, experiment.target))
        )
        if order is None or (order == np.arange(len(order))).all():
            continue
        moved = int((order != np.arange(len(order))).sum())
        words = f"has {moved} of {len(order)} rows in another order"
        yield Relation("permuted", words, weight[order])


def _by_channel(values: NDArray[Any], axis: int) -> Values:
    found: Values = np.moveaxis(np.asarray(values, np.float64), axis, 0)
    return found.reshape(len(found), -1)


def _order(before: Values, truth: Values, target: Values) -> NDArray[np.int64] | None:
    """Which channel of the op each channel of the target is made of."""
    if len(before) > _CHANNELS:
        return None
    found = np.full(len(before), -1)
    for channel, (mine, exact, own) in enumerate(zip(target, truth, before, strict=True)):
        kept = (exact != 0) & np.isfinite(exact) & np.isfinite(own)
        if kept.sum() < 3 or not np.ptp(own[kept]):
            continue
        gain, shift = np.polyfit(own[kept], exact[kept], 1)
        made = gain * before + shift
        if (~kept).any():
            made = np.maximum(made, 0)
        found[channel] = int(np.square(made - mine).sum(1).argmin())
    # A channel that is cut off everywhere tells nothing: it gets what the others leave.
    left = [at for at in range(len(before)) if at not in set(found.tolist())]
    silent = np.flatnonzero(found < 0)
    if len(left) != len(silent):
        return None
    found[silent] = left
    return np.asarray(found, np.int64)


def _factor(experiment: RegionExperiment, edge: Edge, weight: Values) -> float | None:
    """By what the weight must be multiplied: the result is a line in it, where nothing is cut
    off at zero on the way."""
    none = experiment.run_with({edge: np.zeros_like(weight)})
    if none is None or none.shape != experiment.target.shape:
        return None
    seen = experiment.without_masked((experiment.target != 0) & (experiment.truth != 0))
    along, moved = (experiment.truth - none)[seen], (experiment.target - none)[seen]
    square = float(np.vdot(along, along)) if along.size else 0.0
    if not square or not np.isfinite(square):
        return None
    factor = float(np.vdot(along, moved)) / square
    return factor if np.isfinite(factor) else None


def _others(case: Case, edge: Edge, weight: Values) -> Iterator[Relation]:
    """Weights of the same shape that belong elsewhere."""
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
        if tried > _OTHERS:
            return
        values = read_real_values(reference, tensor)
        if values is None:
            continue
        yield Relation("swapped", f"holds the values of {key.op}", values)


def _solved(experiment: RegionExperiment, edges: list[Edge]) -> Hidden | None:
    for found in effective(experiment):
        weight = np.asarray(experiment.inputs[found.edge], np.float64)
        if distance(weight, found.weight) <= found.floor:
            return _bias(experiment, found, edges)
        if found.edge not in edges:
            continue
        relation = related(weight, found.weight, found.floor)
        relation = relation or related(weight, found.weight, max(1e-3, found.floor))
        shown = prove_change(experiment, {found.edge: found.weight})
        if shown is None or not shown.explains:
            continue
        # Any linear op can be written as another weight: without a relation that a person can
        # check, what it is stays open.
        named = relation is not None
        kind = relation.kind if relation is not None else "changed"
        words = relation.words if relation is not None else likeness(weight, found.weight)
        return Hidden(found.edge, kind, words, shown, 0.85 if named else 0.7)
    return None


def _bias(experiment: RegionExperiment, found: Effective, edges: list[Edge]) -> Hidden | None:
    """The weight is right and something else is added. None where it is nothing at all: that op
    leaves its bias out, which is no matter of weights."""
    for edge in edges:
        if edge not in found.op.inputs or experiment.inputs[edge].shape != found.added.shape:
            continue
        bias = np.asarray(experiment.inputs[edge], np.float64)
        made = bias + found.added
        if not np.abs(made).max() > 1e-3 * np.abs(bias).max():
            return None
        shown = prove_change(experiment, {edge: made})
        if shown is not None and shown.explains:
            relation = related(bias, made, 1e-3)
            kind = relation.kind if relation is not None else "changed"
            words = relation.words if relation is not None else likeness(bias, made)
            return Hidden(edge, kind, words, shown, 0.75)
    return None


def unpaired(
    case: Case, experiment: RegionExperiment, edges: Sequence[Edge]
) -> tuple[Edge, str, Values, Proof] | None:
    """A parameter that the target reads here and that is like none of the reference's: with it, as
    it lies or with its axes exchanged, the reference's op gives the target's numbers."""
    for key in target_parameters_behind(case, experiment.row.target.key):
        tensor = case.target.tensor(key) if case.target is not None else None
        if case.target is None or tensor is None or tensor.kept is not Kept.VALUES:
            continue
        if tensor.quantization is not None:
            continue  # a matter of scales first
        mine = read_real_values(case.target, tensor)
        if mine is None:
            continue
        for edge in edges:
            for form in _forms(experiment, edge, mine):
                proven = prove_result(experiment, experiment.run_with({edge: form}))
                if proven is not None and proven.explains:
                    return edge, str(key.op), np.asarray(form, np.float64), proven
    return None


def _forms(experiment: RegionExperiment, edge: Edge, mine: Values) -> Iterator[Values]:
    """A parameter of the target as it may stand for the reference's: as it lies, with its axes
    exchanged, and without the scale of a norm that was folded into it."""
    shape = experiment.inputs[edge].shape
    plain = [form for form in (mine, mine.T) if form.ndim and form.shape == shape]
    yield from plain
    gain = _gain_behind(experiment, edge) if plain and len(shape) > 1 else None
    if gain is not None and len(gain) == shape[0]:
        yield from (form / gain.reshape(-1, *[1] * (form.ndim - 1)) for form in plain)


def _gain_behind(experiment: RegionExperiment, edge: Edge) -> Values | None:
    """By what the norm right behind the op that reads a parameter multiplies each channel; None
    where there is none."""
    op = next((op for op in experiment.ops if edge in op.inputs), None)
    norms = [n for n in experiment.ops if op is not None and Edge(op.key) in n.inputs[:1]]
    if op is None or len(norms) != 1 or op_class(norms[0].type) != "batch_norm":
        return None
    before, after = experiment.output(op), experiment.output(norms[0])
    if before is None or after is None or before.ndim < 2 or before.shape != after.shape:
        return None
    own, exact = (_by_channel(v, 1) for v in (before, after))
    own, exact = (v - v.mean(1, keepdims=True) for v in (own, exact))
    spread = np.square(own).sum(1)
    if not np.isfinite(own + exact).all() or not spread.all():
        return None
    gain: Values = (own * exact).sum(1) / spread
    return gain if gain.all() else None
