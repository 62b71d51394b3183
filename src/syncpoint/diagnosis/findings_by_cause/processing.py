"""Findings about differences before and after the model: inputs prepared differently, outputs
processed differently, with how certain; pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.finding_text import describe_change, finding_at, number
from syncpoint.diagnosis.large_tensor_samples import read_comparable
from syncpoint.diagnosis.processing.input_relations import explain_input
from syncpoint.diagnosis.processing.output_relations import (
    find_output_relation,
    is_unmistakable,
    measure_residual,
    output_floor,
)
from syncpoint.diagnosis.weights.relations import Relation, distance, measure_fit
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role

Values = NDArray[np.float64]


class Processing:
    """Inputs and outputs that are processed differently."""

    name = "processing"
    title = "inputs or outputs are processed differently"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings about named pipelines, compared inputs, then outputs."""
        if "prepared" in case.extras:
            yield from self._report_pipelines(case)
        inputs = list(self._report_inputs(case))
        yield from inputs
        if not inputs:
            yield from self._report_outputs(case)

    # Inputs of the models

    def _report_inputs(self, case: Case) -> Iterator[Finding]:
        off = [r for r in case.rows if r.target.key.role is Role.MODEL_INPUT and _differs(r)]
        affected = [case.place[r.target.key] for r in case.rows if _is_affected(r)]
        has_wrong_output = any(row.verdict is not Verdict.CLOSE for row in case.result.outputs)
        for row in off:
            relation, apart = explain_input(*case.pair(row))
            label = row.target.label
            words = relation.words if relation is not None else apart
            evidence = [
                f"the model input '{label}' differs between the runs{_describe_distance(row)}",
                *_describe_input_fit(case, row, relation),
            ]
            readers = [
                r.target.label for r in case.computed if _reads(case, r, row) and r.verdict.severity
            ]
            yield Finding(
                cause=self.name,
                kind=relation.kind if relation is not None else "input",
                title=f"the target's input '{label}' {words}",
                level=Level.CAUSE if has_wrong_output or case.is_off else Level.SUSPECT,
                confidence=0.99 if relation is not None else 0.985,
                ops=(label, *readers[:2]),
                reference_ops=(row.reference.label,),
                evidence=tuple(evidence),
                next=_advise(relation, f"'{label}'"),
                rows=tuple(dict.fromkeys([case.place[row.target.key], *affected])),
            )

    # Outputs of the models

    def _report_outputs(self, case: Case) -> Iterator[Finding]:
        guilty = [row for row in case.guilty if row.target.key.role is Role.OUTPUT]
        for row in case.result.outputs:
            if row.verdict is Verdict.CLOSE or (row.verdict is Verdict.NONE and not _differs(row)):
                continue
            target, reference = case.pair(row)
            if target is None or reference is None:
                continue
            relation = find_output_relation(reference, target, output_floor(row))
            if relation is None or _belongs_to_op(case, row, relation, guilty):
                continue
            label = row.target.label
            same = [r for r in guilty if r.target.key.op == row.target.key.op]
            yield finding_at(
                case,
                row,
                self.name,
                relation.kind,
                f"the target's output '{label}' {relation.words}",
                _confidence(case, row, relation, bool(guilty)),
                (_describe_fit(relation, target, reference),),
                _advise_on_output(relation, label),
                ops=(label, *(r.target.label for r in same)),
                rows=[row, *(same if is_unmistakable(relation.kind) else [])],
            )

    # Two pipelines on one raw sample

    def _report_pipelines(self, case: Case) -> Iterator[Finding]:
        targets, references = case.extras["prepared"]
        if len(targets) == len(references) and set(targets) != set(references):
            references = dict(zip(targets, references.values(), strict=True))
        one_sided = sorted(set(targets) ^ set(references))
        same = []
        for name in (n for n in targets if n in references):
            target, reference = targets[name], references[name]
            one, other = read_comparable(target, reference)
            if distance(one, other) <= 1e-6:
                same.append(name)
                if target.dtype != reference.dtype:
                    words = (
                        f"has the same values in another type: {target.dtype} in the target,"
                        f" {reference.dtype} in the reference"
                    )
                    yield self._report_prepared_input(name, "type", words, Level.NOTE, 0.5)
                continue
            relation, apart = explain_input(one, other)
            words = relation.words if relation is not None else apart
            kind = relation.kind if relation is not None else "input"
            yield self._report_prepared_input(name, kind, words, Level.CAUSE, 0.95, relation)
        for name in one_sided:
            pipeline, other_one = (
                ("target's", "reference's") if name in targets else ("reference's", "target's")
            )
            words = f"is made by the {pipeline} pipeline, not by the {other_one}"
            yield self._report_prepared_input(name, "missing", words, Level.CAUSE, 0.9)
        if len(same) == len(targets) and not one_sided:
            words = "is equal in both pipelines on this sample"
            yield self._report_prepared_input(", ".join(same), "same", words, Level.NOTE, 0.9)

    def _report_prepared_input(
        self,
        name: str,
        kind: str,
        words: str,
        level: Level,
        confidence: float,
        relation: Relation | None = None,
    ) -> Finding:
        owner = "" if kind in ("missing", "same", "type") else "the target's "
        quoted = ", ".join(part if part.isdigit() else f"'{part}'" for part in name.split(", "))
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{owner}prepared input {quoted} {words}",
            level=level,
            confidence=confidence,
            evidence=("both pipelines were run on the same raw sample",),
            next=""
            if level is Level.NOTE
            else _advise(relation, f"input {name}" if name.isdigit() else f"'{name}'"),
        )


def _differs(row: Row) -> bool:
    shape = row.verdict is Verdict.NONE and row.unmeasured.code is ReasonCode.SHAPE
    return row.verdict.severity > 0 or shape


def _is_affected(row: Row) -> bool:
    """Whether a row is off and its own op is not to blame."""
    if row.target.key.role not in (Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT, Role.STATE):
        return False
    return not row.guilty and row.verdict not in (Verdict.CLOSE, Verdict.NONE)


def _belongs_to_op(case: Case, row: Row, relation: Relation, guilty: list[Row]) -> bool:
    """Whether an op inside the model explains the relation of the outputs."""
    if relation.kind == "scaled" and _is_reduced(case, row):
        return True
    # With guilty ops inside, an error of the last layer may look like this.
    is_guilty = any(r.target.key.op == row.target.key.op for r in guilty)
    return bool(guilty) and not is_guilty and not is_unmistakable(relation.kind)


def _confidence(case: Case, row: Row, relation: Relation, has_guilty: bool) -> float:
    """Return the confidence that an output is processed differently after the model."""
    maker = case.maker(row)
    last = case.by_reference.get(maker) if maker is not None else None
    if last is not None and last is not row and last.verdict is Verdict.CLOSE:
        return 0.98  # the model is right up to its last op
    return 0.93 if is_unmistakable(relation.kind) or not has_guilty else 0.6


def _is_reduced(case: Case, row: Row) -> bool:
    """Whether the last op is a sum on one side and a mean on the other: that is a scale too, but
    one of an op, not of postprocessing."""
    maker = case.maker(row)
    reference_op = case.op("reference", maker.op) if maker is not None else None
    target_op = case.op("target", row.target.key.op)
    if target_op is None or reference_op is None:
        return False
    return {op_class(target_op.type), op_class(reference_op.type)} == {"sum", "mean"}


def _reads(case: Case, computed: Row, row: Row) -> bool:
    op = case.op("target", computed.target.key.op)
    return op is not None and any(
        e.role is Role.MODEL_INPUT and e.op == row.target.key.op for e in op.inputs
    )


def _describe_distance(row: Row) -> str:
    rel = (row.numbers or {}).get("rel_l2")
    return f": relative difference {number(rel)}" if rel is not None else ""


def _describe_fit(relation: Relation, target: Values, reference: Values) -> str:
    """Describe how well a relation predicts the output."""
    before, after = distance(reference, target), measure_residual(relation, target, reference)
    if before == inf:
        return f"with this change the two outputs differ by {number(after)} (relative)"
    changed = "target" if relation.kind.endswith("-missing") else "reference"
    return describe_change(
        f"with this change to the {changed}'s output",
        before,
        after,
        "relative",
        results="the two outputs",
    )


def _describe_input_fit(case: Case, row: Row, relation: Relation | None) -> list[str]:
    """Describe how well a relation predicts the input."""
    target, reference = case.pair(row)
    if relation is None or target is None or reference is None:
        return []
    if relation.kind == "mask-missing":
        return [_count_ones(row.target.label, target, reference)]
    if relation.predicted is target or relation.predicted.shape != target.shape:
        return []
    before, after = measure_fit(relation, reference, target)
    change = f"with this change to the reference's '{row.target.label}'"
    if before == inf:
        return [f"{change} the two inputs differ by {number(after)} (relative)"]
    return [describe_change(change, before, after, "relative", results="the two inputs")]


def _count_ones(label: str, target: Values, reference: Values) -> str:
    """Describe two masks by their number of ones."""
    kept = [f"{np.count_nonzero(values):,} of {values.size:,}" for values in (target, reference)]
    return f"'{label}' is not 0 in {kept[0]} positions of the target, in {kept[1]} of the reference"


def _advise_on_output(relation: Relation, label: str) -> str:
    """Return the next step for an output that is processed differently."""
    what = relation.kind.removesuffix("-missing")
    if relation.kind.endswith("-missing"):
        return f"apply the {what} to '{label}' in the target too, or compare it before the {what}"
    if is_unmistakable(relation.kind):
        return f"remove the {what} from the target's '{label}', or apply it in the reference too"
    return {
        "label-order": f"compare the order of the entries of the last axis (the classes) of"
        f" '{label}' on both sides",
        "order": f"compare the order of the entries (tokens, boxes) of '{label}' on both sides",
        "layout": f"transpose '{label}' on one side, or return it in the same layout on both",
        "scaled": f"remove this factor from the target's '{label}', or apply it in the reference"
        " too",
    }.get(
        relation.kind,
        f"apply the same postprocessing on both sides, or compare '{label}' before it",
    )


def _advise(relation: Relation | None, label: str) -> str:
    kind = relation.kind.split("+")[0] if relation is not None else ""
    return {
        "scale": f"scale {label} in the same way in both pipelines",
        "normalisation": f"use the same mean and standard deviation for {label} in both pipelines",
        "channel-order": f"give {label} the channel order that the model was trained with, on both"
        " sides",
        "layout": f"transpose {label} to the layout that the target expects",
        "transposed": f"remove the transpose of {label} from one side's preprocessing",
        "flipped": f"remove the flip of {label} from one side's preprocessing",
        "reversed": f"remove the reversal of {label} from one side's preprocessing",
        "rounded": f"keep {label} in float32 until the target reads it",
        "shift": f"begin the crop or the padding of {label} at the same pixel in both pipelines",
        "resize": f"resize {label} with the same interpolation, align_corners and antialiasing in"
        " both pipelines",
        "padding-side": f"pad {label} on the same side in both pipelines",
        "sequence-shift": f"check the special tokens at the start of {label}",
        "length": f"check the special tokens and the truncation of {label}",
        "off-by-one": f"count {label} from the same start on both sides",
        "mask-inverted": f"invert the target's {label}, so that 1 means the same on both sides",
        "mask-missing": f"pass the same {label} to both sides, not a constant",
    }.get(kind, f"give both sides the same {label}, for example from one .npz file")
