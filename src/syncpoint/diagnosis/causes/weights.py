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
from syncpoint.diagnosis.amounts import of_norm
from syncpoint.diagnosis.budget import real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.hidden_weights import hidden, unpaired
from syncpoint.diagnosis.local import Local
from syncpoint.diagnosis.proof import Proof, proof, region_edges
from syncpoint.diagnosis.relations import Relation, distance, likeness, related
from syncpoint.metrics.limits import coarser
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, OpKey, Role

Values = NDArray[np.float64]

_MOST = 40
"""Parameters that are explained one by one; a run with more of them wrong has other weights."""
_OTHERS = 64


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
            local = case.local(row)
            if local is not None:
                yield from self._hidden(case, local, named)

    # Parameters that both sides show

    def _differing(self, case: Case) -> list[Row]:
        read = {e.op for row in case.guilty for e in region_edges(case, row)}
        found = []
        for row in case.rows:
            if row.target.key.role is not Role.PARAMETER or row.verdict is Verdict.NONE:
                continue
            if row.verdict.severity > 0 or (row.reference.key.op in read and _beyond(case, row)):
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
        touched = [row for row in case.guilty if region_edges(case, row)]
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
        readers = [g for g in case.guilty if _reads(case, g, row)]
        label = row.reference.label
        relation: Relation | None = None
        evidence = [_measured(row)]
        if ours is not None and theirs is not None and ours.shape == theirs.shape:
            floor = _floor(row)
            relation = _of_other(case, row, ours, floor) or related(theirs, ours, floor)
            what = relation.words if relation is not None else likeness(theirs, ours)
        else:
            what = "differs from the reference's"
        if ours is not None and theirs is not None and _overflowed(row, ours, theirs):
            return None
        if _is_scale(row) and (relation is None or relation.kind in ("scaled", "shifted")):
            # Integers with a wrong scale are a matter of quantization.
            return None
        proofs = [(g, p) for g in readers if (p := self._proof(case, g, row, rows)) is not None]
        explained = [g for g, (p, _) in proofs if p.explains]
        if row.verdict.severity == 0 and not explained:
            return None
        evidence += [
            p.words(f"with the target's {said}", g.target.label) for g, (p, said) in proofs[:2]
        ]
        level, confidence = self._weight(case, row, readers, bool(explained), bool(proofs))
        kind = relation.kind if relation is not None else "changed"
        if kind == "rounded" and _declares_rounding(row):
            level, confidence = Level.NOTE, 0.5
        first = readers[0] if readers else None
        explained_rows = explained or (readers if not proofs else [])
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{label} {what}",
            level=level,
            confidence=confidence,
            ops=tuple(g.target.label for g in readers),
            reference_ops=tuple(g.reference.label for g in readers),
            module=(first.target.module or first.reference.module) if first else "",
            source=(first.target.source or first.reference.source) if first else "",
            evidence=tuple(e for e in evidence if e),
            next=_next(kind, label),
            rows=tuple(case.place[r.target.key] for r in [row, *explained_rows]),
        )

    def _proof(
        self, case: Case, guilty: Row, row: Row, rows: list[Row]
    ) -> tuple[Proof, str] | None:
        """What the reference gives with the target's parameter, and if that is not it, with all
        that differ and the op reads: a weight and its bias go astray together."""
        local = case.local(guilty)
        if local is None:
            return None
        given = {}
        for one in [row, *rows]:
            key, ours = one.reference.key, case.values("target", one)
            edge = Edge(key.op, key.index, Role.PARAMETER)
            if edge in local.inputs and ours is not None and local.inputs[edge].shape == ours.shape:
                given[edge] = ours
            elif one is row:
                return None
        alone = proof(local, dict([next(iter(given.items()))]))
        if alone is None or alone.explains or len(given) < 2:
            return (alone, row.reference.label) if alone is not None else None
        together = proof(local, given)
        if together is None or not together.explains:
            return alone, row.reference.label
        return together, " and ".join(str(edge.op) for edge in given)

    def _weight(
        self, case: Case, row: Row, readers: list[Row], explained: bool, tried: bool
    ) -> tuple[Level, float]:
        if explained:
            return Level.CAUSE, 0.97
        if readers:
            return Level.CAUSE, 0.85 if tried else 0.95
        outputs = any(r.verdict is not Verdict.CLOSE for r in case.result.outputs)
        unknown = all(r.introduced is None for r in case.computed)
        if unknown and (outputs or case.guilty):
            return Level.CAUSE, 0.85
        # Nobody guilty reads it, so it changed nothing that was compared.
        return (Level.SUSPECT, 0.5) if outputs else (Level.NOTE, 0.5)

    # Parameters that the target does not show

    def _shown(
        self, case: Case, local: Local, edge: Edge, name: str, mine: Values, proof: Proof
    ) -> Finding:
        """A parameter of the target that is paired with none, since it is like none."""
        row, label = local.row, str(edge.op)
        theirs = np.asarray(local.inputs[edge], np.float64)
        relation = related(theirs, mine, _floor(row)) if mine.shape == theirs.shape else None
        what = relation.words if relation is not None else likeness(theirs, mine)
        kind = relation.kind if relation is not None else "changed"
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{name} in the place of {label} {what}",
            level=Level.CAUSE,
            confidence=0.96,
            ops=(row.target.label,),
            reference_ops=(row.reference.label,),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=(proof.words(f"with {name} for {label}", row.target.label),),
            next=_next(kind, label),
            rows=(case.place[row.target.key],),
        )

    def _hidden(self, case: Case, local: Local, named: set[OpKey]) -> Iterator[Finding]:
        known = _known_right(case, local)
        edges = [
            edge
            for op in local.ops
            for edge in local.parameters(op)
            if edge.op not in named and edge not in known
        ]
        if not edges:
            return
        row = local.row
        shown = unpaired(case, local, edges)
        if shown is not None:
            edge, name, mine, proven = shown
            yield self._shown(case, local, edge, name, mine, proven)
            return
        found = hidden(case, local, edges)
        if found is None:
            return
        label = str(found.edge.op)
        yield Finding(
            cause=self.name,
            kind=found.kind,
            title=f"{row.target.label} uses a {label} that {found.words}",
            level=Level.CAUSE,
            confidence=found.confidence,
            ops=(row.target.label,),
            reference_ops=(row.reference.label,),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=(
                found.proof.words(f"with such a {label}", row.target.label),
                "the target does not show its weights; this one is inferred from its results",
            ),
            next=_next(found.kind, label),
            rows=(case.place[row.target.key],),
        )


def _parameters(case: Case) -> int:
    role = Role.PARAMETER
    return sum(r.target.key.role is role and r.verdict is not Verdict.NONE for r in case.rows)


def _overflowed(row: Row, ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> bool:
    """Whether a weight is the reference's but for what its type cannot hold."""
    kind = DTYPES[row.target.dtype]
    if ours.shape != theirs.shape or kind.kind is not Kind.FLOAT:
        return False
    gone = ~np.isfinite(ours) & np.isfinite(theirs)
    return bool(gone.any()) and bool((np.abs(theirs[gone]) > kind.max).all())


def _floor(row: Row) -> float:
    """How far apart equal parameters may be: both rounded to the target's type."""
    kind = DTYPES[row.target.dtype]
    return max(4 * kind.unit if kind.kind is Kind.FLOAT else 2.0**-7, 1e-6)


def _beyond(case: Case, row: Row) -> bool:
    """Whether a parameter that is close is still further off than its type's rounding."""
    kind = DTYPES[row.target.dtype]
    if kind.kind is not Kind.FLOAT or kind.bits < 16:
        return False
    numbers = row.numbers or {}
    if numbers.get("rel_l2") is not None and numbers["rel_l2"] <= kind.unit:
        return False
    ours, theirs = case.pair(row)
    if ours is None or theirs is None or ours.shape != theirs.shape:
        return False
    with np.errstate(over="ignore"):
        rounded = theirs.astype(kind.numpy).astype(np.float64)
    return distance(rounded, ours) > kind.unit


def _is_scale(row: Row) -> bool:
    """Whether the target's is a tensor of integers."""
    return DTYPES[row.target.dtype].kind is not Kind.FLOAT


def _declares_rounding(row: Row) -> bool:
    """Whether the target's own type is as coarse as what its values were rounded to."""
    kind = DTYPES[row.target.dtype]
    return kind.kind is not Kind.FLOAT or kind.bits <= 16 or coarser(row.preset, "f32")


def _reads(case: Case, guilty: Row, row: Row) -> bool:
    key = row.reference.key
    if any(e.op == key.op and e.index == key.index for e in region_edges(case, guilty)):
        return True
    op = case.op("target", guilty.target.key.op)
    return op is not None and any(
        e.role is Role.PARAMETER and e.op == row.target.key.op for e in op.inputs
    )


def _measured(row: Row) -> str:
    numbers = row.numbers or {}
    rel, most = numbers.get("rel_l2"), numbers.get("max_abs")
    if rel is None or most is None:
        return ""
    return f"it is off by {of_norm(rel)}, at most by {most:.3g}"


def _of_other(case: Case, row: Row, ours: Values, floor: float) -> Relation | None:
    """Another parameter of the reference that the target's is equal to."""
    reference = case.reference
    if reference is None or not ours.any() or ours.size < 2:
        return None
    tried = 0
    for tensor in reference.tensors:
        key = tensor.key
        other = key.role is Role.PARAMETER and key != row.reference.key
        if not other or tensor.shape != ours.shape or tensor.kept is not Kept.VALUES:
            continue
        if DTYPES[tensor.dtype].kind is not Kind.FLOAT or tensor.quantization is not None:
            continue
        tried += 1
        if tried > _OTHERS:
            return None
        values = real_values(reference, tensor)
        if values is None:
            continue
        if distance(values, ours) <= floor and np.ptp(values) > 0:
            return Relation("swapped", f"holds the values of {key.op}", values)
    return None


def _known_right(case: Case, local: Local) -> set[Edge]:
    """Parameters of the region that the target shows and that are the reference's: under the
    same name, or by value, as they stand or transposed."""
    found = set()
    rows = {r.reference.key.op for r in case.rows if r.target.key.role is Role.PARAMETER}
    op = case.op("target", local.row.target.key.op)
    shown = []
    for edge in op.inputs if op is not None and case.target is not None else ():
        if edge.role is Role.PARAMETER and case.target is not None:
            for tensor in (
                t for t in case.target.tensors if t.key.op == edge.op and t.key.role is edge.role
            ):
                plain = tensor.quantization is None
                values = real_values(case.target, tensor) if plain else None
                if values is not None:
                    shown.append(values)
    for one in local.ops:
        for edge in local.parameters(one):
            mine = np.asarray(local.inputs[edge], np.float64)
            turned = [mine] if mine.ndim < 2 else [mine, np.swapaxes(mine, -1, -2)]
            equal = any(distance(t, s) < 1e-6 for t in turned for s in shown)
            # A square weight that looks right may still be read the wrong way round.
            square = mine.ndim >= 2 and mine.shape[-1] == mine.shape[-2]
            if edge.op in rows or (equal and not square):
                found.add(edge)
    return found


def _next(kind: str, label: str) -> str:
    return {
        "rounded": f"keep {label} in float32 when the model is converted or saved",
        "transposed": f"check the layout in which the converter writes {label}",
        "permuted": f"check the order in which {label} is packed or its channels are read",
        "swapped": f"check which tensor of the checkpoint is loaded as {label}",
        "zeroed": f"check that {label} is loaded at all",
        "scaled": f"check what is folded into {label} and how often",
    }.get(kind, f"load {label} from the reference's checkpoint again and convert anew")
