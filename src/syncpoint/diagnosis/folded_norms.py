"""Norms that a target folded into the product before them: who is to be looked at with whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.errors import SyncpointError
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Kept, Op, OpKey, TensorKey
from syncpoint.runtimes.protocol import Region

if TYPE_CHECKING:
    from syncpoint.diagnosis.case import Case
    from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment

_FLOATS = ("f64", "f32", "tf32", "f16", "bf16")
_ROUNDINGS = 32
"""A norm that was folded into weights costs no more."""


def drop_folded_norms(case: Case, rows: list[Row]) -> tuple[list[Row], dict[TensorKey, OpKey]]:
    """The rows without those that only look guilty: a product that took in the norm behind
    it is held against the product alone where values could not tell, and what reads it then
    lacks the norm. The tool's doing, not the model's. Beside it the products that are to be looked
    at together with their norm."""
    innocent: set[TensorKey] = set()
    taken_in: dict[TensorKey, OpKey] = {}
    for row in rows:
        norm = _norm_behind(case, row)
        if norm is None:
            continue
        folded, exact = _is_folded(case, row, norm)
        lacking = [r.target.key for r in rows if r is not row and _lacks(case, r, norm)]
        if folded and exact:
            innocent.add(row.target.key)
        elif folded or lacking:
            taken_in[row.target.key] = norm.key
        innocent.update(lacking)
    return [row for row in rows if row.target.key not in innocent], taken_in


def _norm_behind(case: Case, row: Row) -> Op | None:
    """The batch norm that alone reads what a product of the reference gives."""
    if op_class(row.reference.type) not in ("conv", "conv_transpose", "matmul"):
        return None
    edge = Edge(row.reference.key.op, row.reference.key.index)
    readers = case.readers.get(edge, [])
    if len(readers) != 1 or op_class(readers[0].type) != "batch_norm":
        return None
    return readers[0]


def _is_folded(case: Case, row: Row, norm: Op) -> tuple[bool, bool]:
    """Whether the target's tensor is about what the norm gives, and whether it is that to what
    its precision allows."""
    experiment = case.experiment(row)
    if experiment is None or case.evaluator is None or case.reference is None:
        return False, False
    fed: dict[Edge, NDArray[Any]] = {norm.inputs[0]: experiment.truth}
    for edge in norm.inputs[1:]:
        tensor = case.reference.tensor(TensorKey(edge.op, edge.role, edge.index))
        if tensor is not None and tensor.kept is Kept.VALUES:
            fed[edge] = case.reference.values(tensor)
    region = Region((norm.key,), tuple(fed), (Edge(norm.key),), row.reference.key.part)
    try:
        (made,) = case.evaluator.evaluate(region, fed, "f64")
    except (SyncpointError, ValueError):
        return False, False
    if made is None or made.shape != experiment.target.shape:
        return False, False
    error, own = (_distance(experiment, v) for v in (made, experiment.truth))
    unit = (
        DTYPES[{"tf32": "f16"}.get(row.preset, row.preset)].unit if row.preset in _FLOATS else 0.02
    )
    size = float(np.sqrt(np.mean(np.square(experiment.counted(made)))))
    return bool(error <= 0.02 * own), bool(error <= _ROUNDINGS * unit * size)


def _distance(experiment: RegionExperiment, value: NDArray[Any]) -> float:
    """Root mean square of what the target is off from a result."""
    return float(np.sqrt(np.mean(np.square(experiment.counted(experiment.target - value)))))


def _lacks(case: Case, row: Row, norm: Op) -> bool:
    """Whether a row is off for want of a norm that was applied before it."""
    experiment = case.experiment(row)
    if (
        experiment is None
        or len(experiment.ops) < 2
        or norm.key not in {op.key for op in experiment.ops}
    ):
        return False
    given = experiment.values.get(norm.inputs[0])
    made = experiment.replaced(norm, given) if given is not None else None
    if made is None or made.shape != experiment.target.shape:
        return False
    error, own = (_distance(experiment, v) for v in (made, experiment.truth))
    return bool(error <= 0.02 * own)
