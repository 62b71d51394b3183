"""Recorded parameters of both sides: those behind a row, their relation, equal up to rounding; an
unpaired target weight tried in the reference's op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.regions import NoRegion
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case, same_shape
from syncpoint.diagnosis.experiments.proof import Proof, prove_result
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.weights.relations import (
    Relation,
    describe_difference,
    distance,
    find_relation,
    group_by_channel,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, OpKey, Role, TensorKey

_MAX_OPS_BEHIND = 3
"""Maximum number of consecutive ops behind one compared tensor."""

Values = NDArray[np.float64]

_MAX_OTHER_PARAMETERS = 64
"""Maximum number of other parameters of the reference to compare with one of the target."""


def compare_parameters(
    case: Case, row: Row, target_values: Values | None, reference_values: Values | None
) -> tuple[Relation | None, str]:
    """Return the relation of the target's parameter to the reference's, if known, and its text."""
    both = same_shape(target_values, reference_values)
    if both is None:
        return None, "differs from the reference's"
    target_values, reference_values = both
    floor = equality_floor(row)
    relation = _find_equal_parameter(case, row, target_values, floor) or find_relation(
        reference_values, target_values, floor
    )
    return relation, relation.words if relation is not None else describe_difference(
        reference_values, target_values
    )


def is_overflowed(
    row: Row, target_values: NDArray[np.float64], reference_values: NDArray[np.float64]
) -> bool:
    """Whether a weight is not finite exactly where the reference's value overflows its type."""
    kind = DTYPES[row.target.dtype]
    if target_values.shape != reference_values.shape or kind.kind is not Kind.FLOAT:
        return False
    nonfinite = ~np.isfinite(target_values) & np.isfinite(reference_values)
    return bool(nonfinite.any()) and bool((np.abs(reference_values[nonfinite]) > kind.max).all())


def equality_floor(row: Row) -> float:
    """Return the maximum relative distance of equal parameters rounded to the target's type."""
    kind = DTYPES[row.target.dtype]
    return max(4 * kind.unit if kind.kind is Kind.FLOAT else 2.0**-7, 1e-6)


def is_beyond_rounding(case: Case, row: Row) -> bool:
    """Whether a parameter differs by more than the rounding of its type."""
    kind = DTYPES[row.target.dtype]
    if kind.kind is not Kind.FLOAT or kind.bits < 16:
        return False
    numbers = row.numbers or {}
    if numbers.get("rel_l2") is not None and numbers["rel_l2"] <= kind.unit:
        return False
    both = same_shape(*case.pair(row))
    if both is None:
        return False
    target_values, reference_values = both
    with np.errstate(over="ignore"):
        rounded = reference_values.astype(kind.numpy).astype(np.float64)
    return distance(rounded, target_values) > kind.unit


def holds_integers(row: Row) -> bool:
    """Whether the target's tensor holds integers."""
    return DTYPES[row.target.dtype].kind is not Kind.FLOAT


def _find_equal_parameter(
    case: Case, row: Row, target_values: Values, floor: float
) -> Relation | None:
    """Find another parameter of the reference that the target's is equal to."""
    reference = case.reference
    if reference is None or not target_values.any() or target_values.size < 2:
        return None
    tried = 0
    for tensor in reference.tensors:
        key = tensor.key
        other = key.role is Role.PARAMETER and key != row.reference.key
        if not other or tensor.shape != target_values.shape or tensor.kept is not Kept.VALUES:
            continue
        if DTYPES[tensor.dtype].kind is not Kind.FLOAT or tensor.quantization is not None:
            continue
        tried += 1
        if tried > _MAX_OTHER_PARAMETERS:
            return None
        values = read_real_values(reference, tensor)
        if values is None:
            continue
        if distance(values, target_values) <= floor and np.ptp(values) > 0:
            return Relation("swapped", f"holds the values of {key.op}", values)
    return None


def find_equal_parameters(case: Case, experiment: RegionExperiment) -> set[Edge]:
    """Find the parameters of the region that the target recorded and that are equal: matched by
    name, or by value, as stored or transposed."""
    rows = {r.reference.key.op for r in case.rows if r.target.key.role is Role.PARAMETER}
    target_parameters = _read_target_parameters(case, experiment.row.target.key.op)
    edges = {edge for op in experiment.ops for edge in experiment.parameters(op)}
    return {e for e in edges if e.op in rows or _is_among(experiment.inputs[e], target_parameters)}


def _read_target_parameters(case: Case, key: OpKey) -> list[Values]:
    """Read the parameters of an op of the target that are not quantized."""
    run, op = case.target, case.op("target", key)
    if run is None or op is None:
        return []
    read = [edge.op for edge in op.inputs if edge.role is Role.PARAMETER]
    tensors = [
        tensor
        for name in read
        for tensor in run.tensors
        if tensor.key.op == name and tensor.key.role is Role.PARAMETER
    ]
    plain = (read_real_values(run, tensor) for tensor in tensors if tensor.quantization is None)
    return [values for values in plain if values is not None]


def _is_among(parameter: NDArray[Any], candidates: list[Values]) -> bool:
    """Whether a parameter of the reference equals a candidate, as stored or transposed."""
    values = np.asarray(parameter, np.float64)
    if values.ndim < 2:
        return any(distance(values, other) < 1e-6 for other in candidates)
    if values.shape[-1] == values.shape[-2]:
        return False  # an equal square weight may still be read transposed
    forms = (values, np.swapaxes(values, -1, -2))
    return any(distance(form, other) < 1e-6 for form in forms for other in candidates)


def find_target_parameters_behind(case: Case, key: TensorKey) -> list[TensorKey]:
    """Find the parameters of a target op and of the ops before it that are not compared."""
    parameters: dict[TensorKey, None] = {}
    waiting = [key.op]
    for _ in range(_MAX_OPS_BEHIND):
        following = []
        for name in waiting:
            op = case.op("target", name)
            for edge in op.inputs if op is not None else ():
                if edge.role is Role.PARAMETER:
                    parameters[TensorKey(edge.op, edge.role, edge.index)] = None
                elif TensorKey(edge.op, edge.role, edge.index, key.part) not in case.place:
                    following.append(edge.op)
        waiting = following
    return list(parameters)


def find_reference_parameters_behind(case: Case, row: Row) -> list[Edge]:
    """Find the reference's parameters that the ops behind a row read."""
    tensor_key = row.reference.key
    introducer = case.introducer
    ops = [tensor_key.op]
    if introducer is not None and tensor_key.role is Role.OUTPUT:
        try:
            ops = list(
                introducer.regions.find_behind(
                    tensor_key.op, [tensor_key.index], tensor_key.part
                ).ops
            )
        except NoRegion:
            ops = [tensor_key.op]
    parameters = []
    for key in ops:
        op = case.op("reference", key)
        if op is not None:
            parameters += [e for e in op.inputs if e.role is Role.PARAMETER]
    return parameters


def find_unpaired_weight(
    case: Case, experiment: RegionExperiment, edges: Sequence[Edge]
) -> tuple[Edge, str, Values, Proof] | None:
    """Find an unmatched parameter of the target with which the reference's op gives the target's
    numbers, as stored or transposed."""
    for key in find_target_parameters_behind(case, experiment.row.target.key):
        tensor = case.target.tensor(key) if case.target is not None else None
        if case.target is None or tensor is None or tensor.kept is not Kept.VALUES:
            continue
        if tensor.quantization is not None:
            continue  # quantized weights are checked for wrong scales first
        target_weight = read_real_values(case.target, tensor)
        if target_weight is None:
            continue
        for edge in edges:
            for form in _list_forms(experiment, edge, target_weight):
                proof = prove_result(experiment, experiment.run_with({edge: form}))
                if proof is not None and proof.explains:
                    return edge, str(key.op), np.asarray(form, np.float64), proof
    return None


def _list_forms(
    experiment: RegionExperiment, edge: Edge, target_weight: Values
) -> Iterator[Values]:
    """Yield the forms in which a parameter of the target can replace the reference's: as stored,
    transposed, without axes of length one, and without the scale of a folded norm."""
    shape = experiment.inputs[edge].shape
    if [n for n in target_weight.shape if n > 1] == [n for n in shape if n > 1]:
        target_weight = target_weight.reshape(shape)
    plain = [form for form in (target_weight, target_weight.T) if form.ndim and form.shape == shape]
    yield from plain
    gain = _find_gain_behind(experiment, edge) if plain and len(shape) > 1 else None
    if gain is not None and len(gain) == shape[0]:
        yield from (form / gain.reshape(-1, *[1] * (form.ndim - 1)) for form in plain)


def _find_gain_behind(experiment: RegionExperiment, edge: Edge) -> Values | None:
    """Return the factor per channel of the batch norm right behind the op that reads a parameter;
    None if there is no such norm."""
    op = next((op for op in experiment.ops if edge in op.inputs), None)
    norms = [n for n in experiment.ops if op is not None and Edge(op.key) in n.inputs[:1]]
    if op is None or len(norms) != 1 or op_class(norms[0].type) != "batch_norm":
        return None
    before, after = experiment.output(op), experiment.output(norms[0])
    if before is None or after is None or before.ndim < 2 or before.shape != after.shape:
        return None
    own, exact = (group_by_channel(v, 1) for v in (before, after))
    own, exact = (v - v.mean(1, keepdims=True) for v in (own, exact))
    spread = np.square(own).sum(1)
    if not np.isfinite(own + exact).all() or not spread.all():
        return None
    gain: Values = (own * exact).sum(1) / spread
    return gain if gain.all() else None
