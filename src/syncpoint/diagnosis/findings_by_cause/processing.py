"""What is done before and after the model: inputs that are prepared differently, outputs that are
read differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.finding_text import finding_at, of_norm
from syncpoint.diagnosis.large_tensor_samples import comparable
from syncpoint.diagnosis.processing.input_relations import explain_input
from syncpoint.diagnosis.processing.output_relations import (
    is_firm,
    left_over,
    output_floor,
    output_relation,
)
from syncpoint.diagnosis.weights.relations import Relation, distance
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role


class Processing:
    """Pre- and post-processing differences."""

    name = "processing"
    title = "inputs or outputs are processed differently"

    def look(self, case: Case) -> Iterable[Finding]:
        """Pipelines that the caller named, the inputs that were compared, then the outputs."""
        if "prepared" in case.asked:
            yield from self._pipelines(case)
        inputs = list(self._inputs(case))
        yield from inputs
        if not inputs:
            yield from self._outputs(case)

    # What the models were given

    def _inputs(self, case: Case) -> Iterator[Finding]:
        off = [r for r in case.rows if r.target.key.role is Role.MODEL_INPUT and _differs(r)]
        damaged = [case.place[r.target.key] for r in case.rows if _is_damaged(r)]
        hurt = any(row.verdict is not Verdict.CLOSE for row in case.result.outputs)
        for row in off:
            relation, apart = explain_input(*case.pair(row))
            label = row.target.label
            words = relation.words if relation is not None else apart
            evidence = [f"the model input {label} was not the same on both sides", _size(row)]
            readers = [
                r.target.label for r in case.computed if _reads(case, r, row) and r.verdict.severity
            ]
            yield Finding(
                cause=self.name,
                kind=relation.kind if relation is not None else "input",
                title=f"input {label} {words}",
                level=Level.CAUSE if hurt or case.is_off else Level.SUSPECT,
                confidence=0.99 if relation is not None else 0.985,
                ops=(label, *readers[:2]),
                reference_ops=(row.reference.label,),
                evidence=tuple(e for e in evidence if e),
                next=_next(relation, label),
                rows=tuple(dict.fromkeys([case.place[row.target.key], *damaged])),
            )

    # What is made of their outputs

    def _outputs(self, case: Case) -> Iterator[Finding]:
        guilty = [row for row in case.guilty if row.target.key.role is Role.OUTPUT]
        for row in case.result.outputs:
            if row.verdict is Verdict.CLOSE or (row.verdict is Verdict.NONE and not _differs(row)):
                continue
            ours, theirs = case.pair(row)
            if ours is None or theirs is None:
                continue
            relation = output_relation(theirs, ours, output_floor(row))
            if relation is None or _belongs_to_op(case, row, relation, guilty):
                continue
            label = row.target.label
            same = [r for r in guilty if r.target.key.op == row.target.key.op]
            yield finding_at(
                case,
                row,
                self.name,
                relation.kind,
                f"output {label} {relation.words}",
                _confidence(case, row, relation, bool(guilty)),
                (
                    f"so made, the reference's output meets the target's to"
                    f" {left_over(relation, ours, theirs):.1e} of its size",
                ),
                f"do the same after the model on both sides, or take {label} before it",
                ops=(label, *(r.target.label for r in same)),
                rows=[row, *(same if is_firm(relation.kind) else [])],
            )

    # What two pipelines make of one raw sample

    def _pipelines(self, case: Case) -> Iterator[Finding]:
        ours, theirs = case.asked["prepared"]
        if len(ours) == len(theirs) and set(ours) != set(theirs):
            theirs = dict(zip(ours, theirs.values(), strict=True))
        lonely = sorted(set(ours) ^ set(theirs))
        same = []
        for name in (n for n in ours if n in theirs):
            made, wanted = ours[name], theirs[name]
            one, other = comparable(made, wanted)
            if distance(one, other) <= 1e-6:
                same.append(name)
                if made.dtype != wanted.dtype:
                    words = f"{made.dtype} against {wanted.dtype}, with the same values"
                    yield self._pipeline(name, "type", words, Level.NOTE, 0.5)
                continue
            relation, apart = explain_input(one, other)
            words = relation.words if relation is not None else apart
            kind = relation.kind if relation is not None else "input"
            yield self._pipeline(name, kind, words, Level.CAUSE, 0.95, relation)
        for name in lonely:
            words = "is made by one pipeline alone"
            yield self._pipeline(name, "missing", words, Level.CAUSE, 0.9)
        if len(same) == len(ours) and not lonely:
            words = "is the same from both pipelines on this sample"
            yield self._pipeline(", ".join(same), "same", words, Level.NOTE, 0.9)

    def _pipeline(
        self,
        name: str,
        kind: str,
        words: str,
        level: Level,
        confidence: float,
        relation: Relation | None = None,
    ) -> Finding:
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"prepared input {name} {words}",
            level=level,
            confidence=confidence,
            evidence=("both pipelines were run on the same raw sample",),
            next=""
            if level is Level.NOTE
            else _next(relation, f"input {name}" if name.isdigit() else name),
        )


def _differs(row: Row) -> bool:
    shape = row.verdict is Verdict.NONE and row.unmeasured.code is ReasonCode.SHAPE
    return row.verdict.severity > 0 or shape


def _is_damaged(row: Row) -> bool:
    """Whether a row is off through no fault of its own op."""
    if row.target.key.role not in (Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT, Role.STATE):
        return False
    return not row.guilty and row.verdict not in (Verdict.CLOSE, Verdict.NONE)


def _belongs_to_op(case: Case, row: Row, relation: Relation, guilty: list[Row]) -> bool:
    """Whether an output is related to the reference's by what an op inside does."""
    if relation.kind == "scaled" and _is_reduced(case, row):
        return True
    # With ops inside that make error, the last layer may be what looks like this.
    is_guilty = any(r.target.key.op == row.target.key.op for r in guilty)
    return bool(guilty) and not is_guilty and not is_firm(relation.kind)


def _confidence(case: Case, row: Row, relation: Relation, has_guilty: bool) -> float:
    """How sure it is that an output is processed differently after the model."""
    maker = case.maker(row)
    last = case.by_reference.get(maker) if maker is not None else None
    if last is not None and last is not row and last.verdict is Verdict.CLOSE:
        return 0.98  # the model itself is right to its last op
    return 0.93 if is_firm(relation.kind) or not has_guilty else 0.6


def _is_reduced(case: Case, row: Row) -> bool:
    """Whether the target's output is summed up or averaged by its last op, and the reference's is
    the other: a scale too, but that of an op and not of what follows the model."""
    maker = case.maker(row)
    theirs = case.op("reference", maker.op) if maker is not None else None
    ours = case.op("target", row.target.key.op)
    if ours is None or theirs is None:
        return False
    return {op_class(ours.type), op_class(theirs.type)} == {"sum", "mean"}


def _reads(case: Case, computed: Row, row: Row) -> bool:
    op = case.op("target", computed.target.key.op)
    return op is not None and any(
        e.role is Role.MODEL_INPUT and e.op == row.target.key.op for e in op.inputs
    )


def _size(row: Row) -> str:
    rel = (row.numbers or {}).get("rel_l2")
    apart = of_norm(rel, "the reference's") if rel is not None else ""
    return f"the two are {apart} apart" if apart else ""


def _next(relation: Relation | None, label: str) -> str:
    kind = relation.kind.split("+")[0] if relation is not None else ""
    return {
        "scale": f"scale {label} alike in both pipelines",
        "normalisation": f"use the same mean and deviation for {label} in both pipelines",
        "channel-order": f"feed {label} as RGB, or as BGR, on both sides",
        "layout": f"transpose {label} to the layout that the target expects",
        "rounded": f"keep {label} in float32 until the model reads it",
        "shift": f"crop and pad {label} alike",
        "resize": f"resize {label} with the same interpolation, corners and antialiasing",
        "padding-side": f"pad {label} at the same side",
        "sequence-shift": f"check the special tokens that are put before {label}",
        "length": f"check the special tokens and the truncation of {label}",
        "off-by-one": f"count {label} from the same number",
        "mask-inverted": f"invert {label}: 1 must mean the same on both sides",
        "mask-missing": f"hand {label} on to the target",
    }.get(kind, f"give both sides the very same {label}, such as from one .npz file")
