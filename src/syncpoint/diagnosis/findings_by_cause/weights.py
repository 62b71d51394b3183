"""Findings about weights that differ (recorded, unpaired or inferred): changed, permuted,
transposed, rounded, of another layer or checkpoint; how sure.

Recorded parameters are compared first. If the target recorded none, the weight that it used is
inferred from the op's results, and proven by running the reference's op with it.
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
from syncpoint.diagnosis.finding_text import (
    describe_change,
    finding_at,
    name_target_op,
    of_norm,
)
from syncpoint.diagnosis.weights.effect_on_readers import Effect, measure_effect
from syncpoint.diagnosis.weights.hidden_weights import infer_hidden_weight
from syncpoint.diagnosis.weights.recorded_parameters import (
    compare_parameters,
    equality_floor,
    find_equal_parameters,
    find_reference_parameters_behind,
    find_unpaired_weight,
    holds_integers,
    is_beyond_rounding,
    is_overflowed,
)
from syncpoint.diagnosis.weights.relations import (
    Relation,
    describe_difference,
    find_relation,
    measure_fit,
)
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.limits import is_coarser
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, OpKey, Role

Values = NDArray[np.float64]

_MAX_PARAMETERS = 40
"""Parameters to explain one by one. If more differ, the two runs have different checkpoints."""
_UNPAIRED_CONFIDENCE = 0.98
"""Confidence that a recorded parameter is wrong with which the reference's op gives the target's
numbers: more than that of a fault of the op with the same effect, such as an ignored bias."""


class Weights:
    """Weights that differ between the runs."""

    name = "weights"
    title = "the weights are not the same"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings about recorded parameters, then about those inferred from results."""
        if not case.is_off and not case.guilty:
            return
        rows = self._find_differing(case)
        yield from self._report_recorded(case, rows)
        reported = {row.reference.key.op for row in rows}
        for row in case.guilty[:8]:
            experiment = case.experiment(row)
            if experiment is not None:
                yield from self._report_inferred(case, experiment, reported)

    # Parameters that both sides recorded

    def _find_differing(self, case: Case) -> list[Row]:
        read = {e.op for row in case.guilty for e in find_reference_parameters_behind(case, row)}
        differing = []
        for row in case.rows:
            if row.target.key.role is not Role.PARAMETER or row.verdict is Verdict.NONE:
                continue
            if row.verdict.severity > 0 or (
                row.reference.key.op in read and is_beyond_rounding(case, row)
            ):
                differing.append(row)
        return differing

    def _report_recorded(self, case: Case, rows: list[Row]) -> Iterator[Finding]:
        if len(rows) > _MAX_PARAMETERS and len(rows) > 0.8 * _count_parameters(case):
            yield self._report_other_checkpoint(case, rows)
            return
        for row in rows[:_MAX_PARAMETERS]:
            finding = self._report_parameter(case, row, rows)
            if finding is not None:
                yield finding

    def _report_other_checkpoint(self, case: Case, rows: list[Row]) -> Finding:
        affected = [row for row in case.guilty if find_reference_parameters_behind(case, row)]
        return Finding(
            cause=self.name,
            kind="other-checkpoint",
            title=f"{len(rows)} of {_count_parameters(case)} parameters of the target differ from"
            " the reference's: the two runs use different checkpoints",
            level=Level.CAUSE,
            confidence=0.97,
            ops=tuple(row.target.label for row in affected[:8]),
            reference_ops=tuple(row.reference.label for row in affected[:8]),
            evidence=(
                f"{len(rows)} of {_count_parameters(case)} compared parameters are not close",
            ),
            next="load the same checkpoint on both sides and compare again",
            rows=tuple(case.place[row.target.key] for row in [*rows, *affected]),
        )

    def _report_parameter(self, case: Case, row: Row, rows: list[Row]) -> Finding | None:
        target, reference = case.pair(row)
        if target is not None and reference is not None and is_overflowed(row, target, reference):
            return None
        relation, words = compare_parameters(case, row, target, reference)
        if holds_integers(row) and (relation is None or relation.kind in ("scaled", "shifted")):
            # Integers with a wrong scale are reported as quantization.
            return None
        effect = measure_effect(case, row, rows)
        if row.verdict.severity == 0 and not effect.explained:
            return None
        level, confidence = self._rate(case, effect)
        kind = relation.kind if relation is not None else "changed"
        if kind == "rounded" and _declares_rounding(row):
            level, confidence = Level.NOTE, 0.5
        label, readers = row.reference.label, effect.readers
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"the target's {label} {words}",
            level=level,
            confidence=confidence,
            ops=tuple(g.target.label for g in readers),
            reference_ops=tuple(g.reference.label for g in readers),
            module=next((g.target.module or g.reference.module for g in readers), ""),
            source=next((g.target.source or g.reference.source for g in readers), ""),
            evidence=(
                *_describe_error(row, words),
                *_describe_fit(label, relation, target, reference),
                *effect.evidence,
            ),
            next=_advise(kind, label, words, readers),
            rows=tuple(case.place[r.target.key] for r in [row, *effect.rows]),
        )

    def _rate(self, case: Case, effect: Effect) -> tuple[Level, float]:
        if effect.explained:
            return Level.CAUSE, 0.97
        if effect.readers:
            return Level.CAUSE, 0.85 if effect.proofs else 0.95
        outputs = any(r.verdict is not Verdict.CLOSE for r in case.result.outputs)
        unknown = all(r.introduced is None for r in case.computed)
        if unknown and (outputs or case.guilty):
            return Level.CAUSE, 0.85
        # No guilty op reads it, so it changed nothing that was compared.
        return (Level.SUSPECT, 0.5) if outputs else (Level.NOTE, 0.5)

    # Parameters that the target did not record, or that have no partner

    def _report_unpaired(
        self,
        case: Case,
        experiment: RegionExperiment,
        edge: Edge,
        name: str,
        values: Values,
        proof: Proof,
    ) -> Finding:
        """Make the finding about a parameter of the target that has no partner in the reference."""
        row, label = experiment.row, str(edge.op)
        reference = np.asarray(experiment.inputs[edge], np.float64)
        relation = (
            find_relation(reference, values, equality_floor(row))
            if values.shape == reference.shape
            else None
        )
        what = relation.words if relation is not None else describe_difference(reference, values)
        kind = relation.kind if relation is not None else "changed"
        return finding_at(
            case,
            row,
            self.name,
            kind,
            f"{name_target_op(row)} reads {name} as {label}; {name} {what}",
            _UNPAIRED_CONFIDENCE,
            (proof.words(f"with {name} in place of {label} in the reference", row.target.label),),
            _advise(kind, label, what),
        )

    def _report_inferred(
        self, case: Case, experiment: RegionExperiment, reported: set[OpKey]
    ) -> Iterator[Finding]:
        equal = find_equal_parameters(case, experiment)
        edges = [
            edge
            for op in experiment.ops
            for edge in experiment.parameters(op)
            if edge.op not in reported and edge not in equal
        ]
        if not edges:
            return
        row = experiment.row
        lone = find_unpaired_weight(case, experiment, edges)
        if lone is not None:
            yield self._report_unpaired(case, experiment, *lone)
            return
        inferred = infer_hidden_weight(case, experiment, edges)
        if inferred is None:
            return
        label = str(inferred.edge.op)
        yield finding_at(
            case,
            row,
            self.name,
            inferred.kind,
            _describe_use(name_target_op(row), label, inferred.words),
            inferred.confidence,
            (
                inferred.proof.words("with this weight in the reference", row.target.label),
                "the target recorded no weights; this one is inferred from its results",
            ),
            _advise(inferred.kind, label, inferred.words),
        )


def _describe_use(subject: str, label: str, words: str) -> str:
    """Return the title about a weight that was inferred from the results of the op that uses it."""
    factor = words.removeprefix("is the reference's multiplied by ")
    if factor != words:
        return f"{subject} uses {label} multiplied by {factor}; the reference uses it unscaled"
    return f"{subject} uses a version of {label} that {words}"


def _count_parameters(case: Case) -> int:
    role = Role.PARAMETER
    return sum(r.target.key.role is role and r.verdict is not Verdict.NONE for r in case.rows)


def _describe_error(row: Row, words: str) -> list[str]:
    """Describe the size of the difference, as far as the title does not."""
    numbers = row.numbers or {}
    rel, most = numbers.get("rel_l2"), numbers.get("max_abs")
    if rel is None or most is None:
        return []
    if words.startswith("differs from the reference's by"):
        return [f"its max absolute error is {most:.3g}"]
    return [f"it differs from the reference's by {of_norm(rel)}; max absolute error {most:.3g}"]


def _describe_fit(
    label: str, relation: Relation | None, target: Values | None, reference: Values | None
) -> list[str]:
    """Describe how well a relation predicts the parameter."""
    if relation is None or not relation.exact or target is None or reference is None:
        return []
    if relation.predicted is target:
        return []
    change = f"with this change to the reference's {label}"
    if relation.kind == "swapped":
        other = relation.words.removeprefix("holds the values of ")
        change = f"with the reference's {other} in place of its {label}"
    before, after = measure_fit(relation, reference, target)
    return [describe_change(change, before, after, "relative", results="the two parameters")]


def _is_table(readers: Iterable[Row]) -> bool:
    """Whether a parameter is the table of an embedding: its rows are token ids, not channels."""
    kinds = {op_class(row.reference.type) for row in readers}
    return kinds == {"embedding"}


def _advise(kind: str, label: str, words: str, readers: Iterable[Row] = ()) -> str:
    part, is_zeroed, _ = words.removeprefix("has ").partition(" set to zero;")
    if is_zeroed:
        return f"check where the conversion sets {part} of {label} to zero"
    order = "rows (token ids)" if _is_table(readers) else "channels"
    return {
        "rounded": f"keep {label} in float32 when the target is converted or saved",
        "transposed": f"check the layout in which the conversion writes {label}: its axes must not"
        " be swapped",
        "permuted": f"check the order of {order} in which the conversion packs {label}",
        "swapped": f"check which tensor of the checkpoint the target loads as {label}",
        "zeroed": f"check that the target loads {label}",
        "scaled": f"check that the conversion folds the right scale into {label}, and only once",
    }.get(kind, f"load {label} from the reference's checkpoint and convert the model again")


def _declares_rounding(row: Row) -> bool:
    """Whether the target's declared type or precision is a coarse one (16 bits or less)."""
    kind = DTYPES[row.target.dtype]
    return kind.kind is not Kind.FLOAT or kind.bits <= 16 or is_coarser(row.preset, "f32")
