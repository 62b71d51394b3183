"""Weights that are not the reference's: changed, permuted, transposed, rounded, of another layer.

Recorded parameters are compared first. Where the target shows none, the weight that it must have
used is guessed, or solved for, and proven by what the reference's op gives with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.finding_text import finding_at, of_norm
from syncpoint.diagnosis.weights.effect_on_readers import Effect, effect_of
from syncpoint.diagnosis.weights.guess_and_prove import hidden, unpaired
from syncpoint.diagnosis.weights.recorded_parameters import (
    compare_parameters,
    declares_rounding,
    equal_parameters,
    equality_floor,
    holds_integers,
    is_beyond_rounding,
    overflowed,
    reference_parameters_behind,
)
from syncpoint.diagnosis.weights.relations import likeness, related
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Edge, OpKey, Role

Values = NDArray[np.float64]

_MOST = 40
"""Parameters that are explained one by one; a run with more of them wrong has other weights."""


class Weights:
    """Weight differences."""

    name = "weights"
    title = "the weights are not the same"

    def look(self, case: Case) -> Iterable[Finding]:
        """Recorded parameters that differ, then those that only their op's results betray."""
        if not case.is_off and not case.guilty:
            return
        rows = self._differing(case)
        yield from self._recorded(case, rows)
        named = {row.reference.key.op for row in rows}
        for row in case.guilty[:8]:
            experiment = case.experiment(row)
            if experiment is not None:
                yield from self._hidden(case, experiment, named)

    # Parameters that both sides show

    def _differing(self, case: Case) -> list[Row]:
        read = {e.op for row in case.guilty for e in reference_parameters_behind(case, row)}
        found = []
        for row in case.rows:
            if row.target.key.role is not Role.PARAMETER or row.verdict is Verdict.NONE:
                continue
            if row.verdict.severity > 0 or (
                row.reference.key.op in read and is_beyond_rounding(case, row)
            ):
                found.append(row)
        return found

    def _recorded(self, case: Case, rows: list[Row]) -> Iterator[Finding]:
        if len(rows) > _MOST and len(rows) > 0.8 * _parameters(case):
            yield self._other_model(case, rows)
            return
        for row in rows[:_MOST]:
            found = self._one(case, row, rows)
            if found is not None:
                yield found

    def _other_model(self, case: Case, rows: list[Row]) -> Finding:
        touched = [row for row in case.guilty if reference_parameters_behind(case, row)]
        return Finding(
            cause=self.name,
            kind="other-checkpoint",
            title=f"{len(rows)} parameters differ: the two are not the same checkpoint",
            level=Level.CAUSE,
            confidence=0.97,
            ops=tuple(row.target.label for row in touched[:8]),
            reference_ops=tuple(row.reference.label for row in touched[:8]),
            evidence=(f"{len(rows)} of {_parameters(case)} compared parameters are not close",),
            next="load the same checkpoint on both sides and compare again",
            rows=tuple(case.place[row.target.key] for row in [*rows, *touched]),
        )

    def _one(self, case: Case, row: Row, rows: list[Row]) -> Finding | None:
        ours, theirs = case.pair(row)
        if ours is not None and theirs is not None and overflowed(row, ours, theirs):
            return None
        relation, words = compare_parameters(case, row, ours, theirs)
        if holds_integers(row) and (relation is None or relation.kind in ("scaled", "shifted")):
            # Integers with a wrong scale are a matter of quantization.
            return None
        effect = effect_of(case, row, rows)
        if row.verdict.severity == 0 and not effect.explained:
            return None
        level, confidence = self._weight(case, effect)
        kind = relation.kind if relation is not None else "changed"
        if kind == "rounded" and declares_rounding(row):
            level, confidence = Level.NOTE, 0.5
        label, readers = row.reference.label, effect.readers
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{label} {words}",
            level=level,
            confidence=confidence,
            ops=tuple(g.target.label for g in readers),
            reference_ops=tuple(g.reference.label for g in readers),
            module=next((g.target.module or g.reference.module for g in readers), ""),
            source=next((g.target.source or g.reference.source for g in readers), ""),
            evidence=(*_measured(row), *effect.evidence),
            next=_next(kind, label),
            rows=tuple(case.place[r.target.key] for r in [row, *effect.rows]),
        )

    def _weight(self, case: Case, effect: Effect) -> tuple[Level, float]:
        if effect.explained:
            return Level.CAUSE, 0.97
        if effect.readers:
            return Level.CAUSE, 0.85 if effect.proofs else 0.95
        outputs = any(r.verdict is not Verdict.CLOSE for r in case.result.outputs)
        unknown = all(r.introduced is None for r in case.computed)
        if unknown and (outputs or case.guilty):
            return Level.CAUSE, 0.85
        # Nobody guilty reads it, so it changed nothing that was compared.
        return (Level.SUSPECT, 0.5) if outputs else (Level.NOTE, 0.5)

    # Parameters that the target does not show

    def _shown(
        self,
        case: Case,
        experiment: RegionExperiment,
        edge: Edge,
        name: str,
        mine: Values,
        proof: Proof,
    ) -> Finding:
        """A parameter of the target that is paired with none, since it is like none."""
        row, label = experiment.row, str(edge.op)
        theirs = np.asarray(experiment.inputs[edge], np.float64)
        relation = (
            related(theirs, mine, equality_floor(row)) if mine.shape == theirs.shape else None
        )
        what = relation.words if relation is not None else likeness(theirs, mine)
        kind = relation.kind if relation is not None else "changed"
        return finding_at(
            case,
            row,
            self.name,
            kind,
            f"{name} in the place of {label} {what}",
            0.96,
            (proof.words(f"with {name} for {label}", row.target.label),),
            _next(kind, label),
        )

    def _hidden(
        self, case: Case, experiment: RegionExperiment, named: set[OpKey]
    ) -> Iterator[Finding]:
        known = equal_parameters(case, experiment)
        edges = [
            edge
            for op in experiment.ops
            for edge in experiment.parameters(op)
            if edge.op not in named and edge not in known
        ]
        if not edges:
            return
        row = experiment.row
        shown = unpaired(case, experiment, edges)
        if shown is not None:
            edge, name, mine, proven = shown
            yield self._shown(case, experiment, edge, name, mine, proven)
            return
        found = hidden(case, experiment, edges)
        if found is None:
            return
        label = str(found.edge.op)
        yield finding_at(
            case,
            row,
            self.name,
            found.kind,
            f"{row.target.label} uses a {label} that {found.words}",
            found.confidence,
            (
                found.proof.words(f"with such a {label}", row.target.label),
                "the target does not show its weights; this one is inferred from its results",
            ),
            _next(found.kind, label),
        )


def _parameters(case: Case) -> int:
    role = Role.PARAMETER
    return sum(r.target.key.role is role and r.verdict is not Verdict.NONE for r in case.rows)


def _measured(row: Row) -> list[str]:
    numbers = row.numbers or {}
    rel, most = numbers.get("rel_l2"), numbers.get("max_abs")
    if rel is None or most is None:
        return []
    return [f"it is off by {of_norm(rel)}, at most by {most:.3g}"]


def _next(kind: str, label: str) -> str:
    return {
        "rounded": f"keep {label} in float32 when the model is converted or saved",
        "transposed": f"check the layout in which the converter writes {label}",
        "permuted": f"check the order in which {label} is packed or its channels are read",
        "swapped": f"check which tensor of the checkpoint is loaded as {label}",
        "zeroed": f"check that {label} is loaded at all",
        "scaled": f"check what is folded into {label} and how often",
    }.get(kind, f"load {label} from the reference's checkpoint again and convert anew")
