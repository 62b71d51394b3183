"""Find products that only look wrong because the target folded the following batch norm into them;
the rows to examine together with that norm."""

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
_MAX_ERROR_ROUNDINGS = 32
"""Maximum error of a folded norm, in roundings."""


def drop_folded_norms(case: Case, rows: list[Row]) -> tuple[list[Row], dict[TensorKey, OpKey]]:
    """Return the rows without those that only look guilty, and the products to examine together
    with their norm.

    If values could not tell, a product that contains the norm after it was compared with the
    product alone, and its readers seem to lack the norm. The pairing causes this error, not the
    model."""
    innocent: set[TensorKey] = set()
    folded_into: dict[TensorKey, OpKey] = {}
    for row in rows:
        norm = _find_norm_after(case, row)
        if norm is None:
            continue
        folded, exact = _is_folded(case, row, norm)
        lacking = [r.target.key for r in rows if r is not row and _lacks(case, r, norm)]
        if folded and exact:
            innocent.add(row.target.key)
        elif folded or lacking:
            folded_into[row.target.key] = norm.key
        innocent.update(lacking)
    return [row for row in rows if row.target.key not in innocent], folded_into


def _find_norm_after(case: Case, row: Row) -> Op | None:
    """Find the batch norm that is the only reader of a product of the reference."""
    if op_class(row.reference.type) not in ("conv", "conv_transpose", "matmul"):
        return None
    edge = Edge(row.reference.key.op, row.reference.key.index)
    readers = case.readers.get(edge, [])
    if len(readers) != 1 or op_class(readers[0].type) != "batch_norm":
        return None
    return readers[0]


def _is_folded(case: Case, row: Row, norm: Op) -> tuple[bool, bool]:
    """Whether the target's tensor is about the norm's result, and whether it is so within its
    precision."""
    experiment = case.experiment(row)
    if experiment is None or case.evaluator is None or case.reference is None:
        return False, False
    inputs: dict[Edge, NDArray[Any]] = {norm.inputs[0]: experiment.truth}
    for edge in norm.inputs[1:]:
        tensor = case.reference.tensor(TensorKey(edge.op, edge.role, edge.index))
        if tensor is not None and tensor.kept is Kept.VALUES:
            inputs[edge] = case.reference.values(tensor)
    region = Region((norm.key,), tuple(inputs), (Edge(norm.key),), row.reference.key.part)
    try:
        (normalized,) = case.evaluator.evaluate(region, inputs, "f64")
    except (SyncpointError, ValueError):
        return False, False
    if normalized is None or normalized.shape != experiment.target.shape:
        return False, False
    error, own = (_distance(experiment, v) for v in (normalized, experiment.truth))
    unit = (
        DTYPES[{"tf32": "f16"}.get(row.preset, row.preset)].unit if row.preset in _FLOATS else 0.02
    )
    size = float(np.sqrt(np.mean(np.square(experiment.counted(normalized)))))
    return bool(error <= 0.02 * own), bool(error <= _MAX_ERROR_ROUNDINGS * unit * size)


def _distance(experiment: RegionExperiment, value: NDArray[Any]) -> float:
    """Return the RMS of the difference between the target and a result."""
    return float(np.sqrt(np.mean(np.square(experiment.counted(experiment.target - value)))))


def _lacks(case: Case, row: Row, norm: Op) -> bool:
    """Whether a row is off because a norm is missing that was applied before it."""
    experiment = case.experiment(row)
    if (
        experiment is None
        or len(experiment.ops) < 2
        or norm.key not in {op.key for op in experiment.ops}
    ):
        return False
    product = experiment.values.get(norm.inputs[0])
    without_norm = experiment.replaced(norm, product) if product is not None else None
    if without_norm is None or without_norm.shape != experiment.target.shape:
        return False
    error, own = (_distance(experiment, v) for v in (without_norm, experiment.truth))
    return bool(error <= 0.02 * own)
