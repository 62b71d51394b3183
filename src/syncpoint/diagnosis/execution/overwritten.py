"""Values that another tensor may have been written over before they were read."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, proof
from syncpoint.diagnosis.experiments.region import Local
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.run.reader import Run

_FAR = 256
"""Ops that are looked at between one sync point and those before it."""


def made_between(
    case: Case, run: Run, maker: Row, row: Row, shape: tuple[int, ...], reads: set[OpKey]
) -> list[Row]:
    """Rows of results of a shape that were made between a value and the op that reads it, and that
    could have been written over that value."""
    op = run.op(row.target.key.op)
    direct = {edge.op for edge in op.inputs} if op is not None else set()
    return [
        other
        for other in case.computed
        if maker.target.order < other.target.order < row.target.order
        and other.reference.shape == shape
        and other.target.key.role is Role.OUTPUT
        # An op whose graph says that it reads the other is wired so, not overwritten, unless it
        # reads both.
        and (
            other.target.key.op not in reads or direct >= {other.target.key.op, maker.target.key.op}
        )
    ]


def prove_overwritten(
    case: Case, local: Local, edge: Edge, value: NDArray[Any], other: Row
) -> Proof | None:
    """The proof that another tensor in place of `value` gives the target's numbers."""
    theirs = case.values("target", other)
    if theirs is None or theirs.shape != value.shape:
        return None
    shown = proof(local, {edge: theirs})
    return shown if shown is not None and shown.exact else None


def makers_behind(case: Case, run: Run, row: Row) -> set[OpKey]:
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
