"""Values that change after they were produced: buffers that are used again too early, or shared by
tensors that live at the same time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.amounts import of_norm
from syncpoint.diagnosis.budget import real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.proof import Proof, proof
from syncpoint.diagnosis.relations import distance
from syncpoint.run.model import OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

Values = NDArray[np.float64]

_FAR = 256
"""Ops that are looked at between one sync point and those before it."""
_CANDIDATES = 24
"""Tensors that are tried in place of one that an op read."""
_MOST = 20_000
"""Tensors with addresses that are looked at."""


class Memory:
    """Memory and aliasing faults."""

    name = "memory"
    title = "a value changed between its making and its reading"

    def look(self, case: Case) -> Iterable[Finding]:
        """At ops that make error and that nothing explains for certain."""
        run = case.target
        if run is None or not case.is_off:
            return
        explained = {p for f in case.found if f.confidence >= 0.9 for p in f.rows}
        rows = [r for r in case.guilty[:16] if case.place[r.target.key] not in explained]
        if not rows:
            return
        overlaps = _overlaps(run)
        for row in rows:
            found = (
                self._recorded(case, run, row)
                or self._shared(case, run, row, overlaps)
                or self._later(case, run, row)
            )
            if found is not None:
                yield found

    def _recorded(self, case: Case, run: Run, row: Row) -> Finding | None:
        """What the op was given was recorded, and is not what its maker gave."""
        op = run.op(row.target.key.op)
        part = row.target.key.part
        for index, edge in enumerate(op.inputs if op is not None else ()):
            if edge.role is not Role.OUTPUT:
                continue
            given = _values(run, run.tensor(TensorKey(row.target.key.op, Role.INPUT, index, part)))
            made = _values(run, run.tensor(TensorKey(edge.op, edge.role, edge.index, part)))
            if given is None or made is None or given.shape != made.shape:
                continue
            gap = distance(given, made)
            if gap <= 1e-6:
                continue
            evidence = f"{row.target.label} read it {of_norm(gap)} off from what was produced"
            return self._finding(case, row, edge.op, "overwritten", 0.96, (evidence,))
        return None

    def _shared(
        self, case: Case, run: Run, row: Row, overlaps: dict[OpKey, tuple[OpKey, str]]
    ) -> Finding | None:
        """Two tensors that live at the same time share bytes, and the op reads one of them."""
        op = run.op(row.target.key.op)
        for edge in op.inputs if op is not None else ():
            if edge.op in overlaps:
                other, words = overlaps[edge.op]
                evidence = (words, f"{other} was written before {row.target.label} read {edge.op}")
                return self._finding(case, row, edge.op, "overlap", 0.95, evidence)
        return None

    def _later(self, case: Case, run: Run, row: Row) -> Finding | None:
        """The op's result is that of another value in place of one that it reads: of a tensor
        that was made between the two."""
        local = case.local(row)
        op = run.op(row.target.key.op)
        if local is None or op is None:
            return None
        reads = _read_behind(case, run, row)
        direct = {e.op for e in op.inputs}
        for edge, value in local.inputs.items():
            maker = case.by_reference.get(
                TensorKey(edge.op, edge.role, edge.index, row.target.key.part)
            )
            if edge.role is not Role.OUTPUT or maker is None:
                continue
            if reads and maker.target.key.op not in reads:
                continue  # The graph says itself that it reads something else.
            maker_op = maker.target.key.op
            between = [
                r
                for r in case.computed
                if maker.target.order < r.target.order < row.target.order
                and r.reference.shape == value.shape
                and r.target.key.role is Role.OUTPUT
                # An op whose graph says that it reads the other is wired so, not overwritten,
                # unless it reads both.
                and (r.target.key.op not in reads or direct >= {r.target.key.op, maker_op})
            ]
            for other in between[-_CANDIDATES:]:
                theirs = case.values("target", other)
                found: Proof | None = None
                if theirs is not None and theirs.shape == value.shape:
                    found = proof(local, {edge: theirs})
                if found is None or not found.exact:
                    continue
                label = maker.target.label
                words = found.words(f"with {other.target.label} for {label}", row.target.label)
                return self._finding(
                    case,
                    row,
                    maker.target.key.op,
                    "overwritten",
                    0.93 if reads else 0.6,
                    (words, f"the graph says that it reads {label}"),
                )
        return None

    def _finding(
        self,
        case: Case,
        row: Row,
        maker: OpKey,
        kind: str,
        confidence: float,
        evidence: tuple[str, ...],
    ) -> Finding:
        how = "shares its memory with another" if kind == "overlap" else "changed"
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{maker} {how} before {row.target.label} read it",
            level=Level.CAUSE,
            confidence=confidence,
            ops=(row.target.label, str(maker)),
            reference_ops=(row.reference.label,),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=evidence,
            next=f"give {maker} a buffer of its own, or copy it before it is written to",
            rows=(case.place[row.target.key],),
        )


def _values(run: Run, tensor: Tensor | None) -> Values | None:
    if tensor is None or tensor.quantization is not None:
        return None
    return real_values(run, tensor)


def _overlaps(run: Run) -> dict[OpKey, tuple[OpKey, str]]:
    """Ops whose output is written over while it is still to be read -> by which op."""
    placed = [t for t in run.tensors if t.address and t.nbytes and t.key.role is Role.OUTPUT]
    if not placed or len(placed) > _MOST:
        return {}
    order = {op.key: at for at, op in enumerate(run.ops)}
    last: dict[OpKey, int] = {}
    for at, op in enumerate(run.ops):
        for edge in op.inputs:
            last[edge.op] = at
    return dict(_pairs(placed, order, last))


def _pairs(
    placed: list[Tensor], order: dict[OpKey, int], last: dict[OpKey, int]
) -> Iterator[tuple[OpKey, tuple[OpKey, str]]]:
    placed.sort(key=lambda t: t.address or 0)
    for at, one in enumerate(placed):
        end = (one.address or 0) + one.nbytes
        for other in placed[at + 1 :]:
            if (other.address or 0) >= end:
                break
            if _is_alias(one, other) or one.key.part != other.key.part:
                continue
            early, late = sorted((one, other), key=lambda t: order.get(t.key.op, -1))
            written = order.get(late.key.op, -1)
            # An op may write over what it reads itself if nobody reads that afterwards.
            if order.get(early.key.op, -1) < written < last.get(early.key.op, -1):
                shared = min(end, (other.address or 0) + other.nbytes) - (other.address or 0)
                words = f"{early.key.op} and {late.key.op} share {shared:,} bytes while both live"
                yield early.key.op, (late.key.op, words)


def _is_alias(one: Tensor, other: Tensor) -> bool:
    """Whether they are said to share memory, with each other or with a third."""
    names = {str(one.key), str(other.key)}
    same = bool(one.alias_of) and one.alias_of == other.alias_of
    return same or one.alias_of in names or other.alias_of in names


def _read_behind(case: Case, run: Run, row: Row) -> set[OpKey]:
    """The ops whose results are read by an op of the target, and by those that only lead to it."""
    paired = {r.target.key.op for r in case.computed}
    found: set[OpKey] = set()
    waiting = [row.target.key.op]
    while waiting and len(found) < _FAR:
        op = run.op(waiting.pop())
        for edge in op.inputs if op is not None else ():
            if edge.role is Role.OUTPUT and edge.op not in found:
                found.add(edge.op)
                if edge.op not in paired:
                    waiting.append(edge.op)
    return found
