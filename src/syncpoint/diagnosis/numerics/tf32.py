"""Find matrix products and convolutions whose inputs are rounded to 10 bits of fraction, as TF32
does; round values so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, prove_change
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.matching.op_kinds import op_class, op_kind
from syncpoint.run.model import Role
from syncpoint.run.statistics import rms

Array = NDArray[Any]

_PRODUCT_KINDS = frozenset(
    {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "gemm", "conv"}
    | {"conv1d", "conv2d", "conv3d", "convolution"}
)
_MAX_ERROR_RATIO = 3.0
"""Maximum ratio of two errors of the same size."""


def is_product(row: Row) -> bool:
    """Whether an op is a matrix product or a convolution."""
    return op_kind(row.reference.type) in _PRODUCT_KINDS


def prove_tf32_rounding(experiment: RegionExperiment) -> Proof | None:
    """Prove that rounding the op's inputs to 10 bits gives the target's numbers; None if not."""
    for truncate in (False, True):
        rounded_inputs = {
            e: round_to_tf32(v, truncate)
            for e, v in experiment.inputs.items()
            if _is_factor(experiment, e, v)
        }
        proof = prove_change(experiment, rounded_inputs)
        if proof is not None and proof.explains:
            return proof
    return None


def has_rounded_products(case: Case, row: Row) -> bool:
    """Whether the error of an attention op is that of inputs with 10 bits. Its products are not
    recorded."""
    experiment = case.experiment(row) if op_class(row.reference.type) == "attention" else None
    if experiment is None or row.target.dtype != "f32":
        return False
    rounded_output = experiment.run_with(
        {e: round_to_tf32(v, False) for e, v in experiment.inputs.items() if v.dtype.kind == "f"}
    )
    if rounded_output is None or rounded_output.shape != experiment.truth.shape:
        return False
    error, simulated = (
        rms(experiment.counted(v)) for v in (experiment.error, rounded_output - experiment.truth)
    )
    return error <= _MAX_ERROR_RATIO * simulated


def _is_factor(experiment: RegionExperiment, edge: Any, values: Array) -> bool:
    """Whether a value is a factor of the product. Biases are added in full precision."""
    return values.dtype.kind == "f" and (edge.role is not Role.PARAMETER or values.ndim > 1)


def round_to_tf32(values: Array, truncate: bool) -> Array:
    """Round float32 to 10 bits of fraction, to nearest or by truncation, as TF32 does."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if not truncate:
        bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return (bits & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
