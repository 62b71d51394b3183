"""Prove whether a paired parameter that differs explains the error of the ops that read it, by
running them with the target's parameter."""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, prove_change
from syncpoint.diagnosis.finding_text import join_names
from syncpoint.diagnosis.weights.recorded_parameters import find_reference_parameters_behind
from syncpoint.run.model import Edge, Role


@dataclass(frozen=True)
class Effect:
    """The effect of a parameter that differs on the guilty ops that read it."""

    readers: list[Row]
    proofs: list[tuple[Row, Proof, str]]
    """Readers that could be run with the target's parameters: row, proof, and what changes."""

    @property
    def explained(self) -> list[Row]:
        """The readers whose error the parameter explains."""
        return [reader for reader, proof, _ in self.proofs if proof.explains]

    @property
    def rows(self) -> list[Row]:
        """The readers that a finding about the parameter names."""
        return self.explained or ([] if self.proofs else self.readers)

    @property
    def evidence(self) -> list[str]:
        """Evidence from running the readers with the target's parameters."""
        return [
            proof.words(f"with the target's {change}", reader.target.label)
            for reader, proof, change in self.proofs[:2]
            if proof.after < proof.before
        ]


def measure_effect(case: Case, row: Row, rows: list[Row]) -> Effect:
    """Measure the effect of the parameter at `row`; `rows` are all parameters that differ."""
    readers = [g for g in case.guilty if _reads(case, g, row)]
    proofs = [(g, p) for g in readers if (p := _prove_effect(case, g, row, rows)) is not None]
    return Effect(readers, [(g, *p) for g, p in proofs])


def _prove_effect(case: Case, guilty: Row, row: Row, rows: list[Row]) -> tuple[Proof, str] | None:
    """Run the reference with the target's parameter; if that does not explain the error, with all
    parameters of the op that differ. A weight and its bias are often wrong together."""
    experiment = case.experiment(guilty)
    if experiment is None:
        return None
    changed = {}
    for parameter_row in [row, *rows]:
        key, target_values = parameter_row.reference.key, case.values("target", parameter_row)
        edge = Edge(key.op, key.index, Role.PARAMETER)
        if (
            edge in experiment.inputs
            and target_values is not None
            and experiment.inputs[edge].shape == target_values.shape
        ):
            changed[edge] = target_values
        elif parameter_row is row:
            return None
    alone = prove_change(experiment, dict([next(iter(changed.items()))]))
    change_alone = f"{row.reference.label} in the reference"
    if alone is None or alone.explains or len(changed) < 2:
        return (alone, change_alone) if alone is not None else None
    together = prove_change(experiment, changed)
    if together is None or not together.explains:
        return alone, change_alone
    names = join_names([str(edge.op) for edge in changed])
    return together, f"{names} in the reference ({row.reference.label} alone is not enough)"


def _reads(case: Case, guilty: Row, row: Row) -> bool:
    key = row.reference.key
    if any(
        e.op == key.op and e.index == key.index
        for e in find_reference_parameters_behind(case, guilty)
    ):
        return True
    op = case.op("target", guilty.target.key.op)
    return op is not None and any(
        e.role is Role.PARAMETER and e.op == row.target.key.op for e in op.inputs
    )
