"""Find subnormal numbers that the target flushes to zero, and prove that this explains its
error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.diagnosis.experiments.proof import Proof, prove_change, prove_result
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.run.dtypes import DTYPES, Kind


@dataclass(frozen=True, kw_only=True)
class FlushedSubnormals:
    """Subnormals that are zero in the target, and the proof that this explains its error."""

    count: int
    where: str
    """`results` or `inputs` of the op."""
    min_normal: float
    """The smallest normal number of the type."""
    proof: Proof


def find_flushed_subnormals(experiment: RegionExperiment) -> FlushedSubnormals | None:
    """Find the flushed subnormals that explain the target's error; None if there are none."""
    kind = DTYPES[experiment.row.target.dtype]
    if kind.kind is not Kind.FLOAT or kind.bits not in (16, 32):
        return None
    min_normal = 2.0**-14 if kind.name == "f16" else 2.0**-126
    small = (np.abs(experiment.truth) < min_normal) & (experiment.truth != 0)
    lost_count = int(experiment.counted(small & (experiment.target == 0)).sum())
    proof = prove_result(experiment, np.where(small, 0.0, experiment.truth)) if lost_count else None
    where = "results"
    if proof is None or not proof.exact:
        flushed_inputs = {
            e: np.where(np.abs(v) < min_normal, 0.0, v)
            for e, v in experiment.inputs.items()
            if v.dtype.kind == "f" and ((np.abs(v) < min_normal) & (v != 0)).any()
        }
        proof, where = (
            (prove_change(experiment, flushed_inputs) if flushed_inputs else None),
            "inputs",
        )
        lost_count = sum(
            int(((v == 0) & (experiment.inputs[e] != 0)).sum()) for e, v in flushed_inputs.items()
        )
    if proof is None or not proof.exact:
        return None
    return FlushedSubnormals(count=lost_count, where=where, min_normal=min_normal, proof=proof)
