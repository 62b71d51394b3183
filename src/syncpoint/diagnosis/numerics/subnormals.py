"""Numbers below the least normal one of their type that the target takes for zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncpoint.diagnosis.experiments.proof import Proof, prove_change, prove_result
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.run.dtypes import DTYPES, Kind


@dataclass(frozen=True, kw_only=True)
class Flushed:
    """Numbers that are zero in the target, and the proof that this is its error."""

    count: int
    where: str
    """`results` or `inputs` of the op."""
    least: float
    """The least normal number of the type."""
    proof: Proof


def flushed(experiment: RegionExperiment) -> Flushed | None:
    """The subnormal numbers whose loss explains the target; None where none do."""
    kind = DTYPES[experiment.row.target.dtype]
    if kind.kind is not Kind.FLOAT or kind.bits not in (16, 32):
        return None
    least = 2.0**-14 if kind.name == "f16" else 2.0**-126
    small = (np.abs(experiment.truth) < least) & (experiment.truth != 0)
    lost = int(experiment.counted(small & (experiment.target == 0)).sum())
    shown = prove_result(experiment, np.where(small, 0.0, experiment.truth)) if lost else None
    where = "results"
    if shown is None or not shown.exact:
        fed = {
            e: np.where(np.abs(v) < least, 0.0, v)
            for e, v in experiment.inputs.items()
            if v.dtype.kind == "f" and ((np.abs(v) < least) & (v != 0)).any()
        }
        shown, where = (prove_change(experiment, fed) if fed else None), "inputs"
        lost = sum(int(((v == 0) & (experiment.inputs[e] != 0)).sum()) for e, v in fed.items())
    if shown is None or not shown.exact:
        return None
    return Flushed(count=lost, where=where, least=least, proof=shown)
