"""Values that were written over before they were read: by recorded addresses, or by trying another
tensor in their place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, proof
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.run.model import Edge, OpKey, Role, Tensor
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
    case: Case, experiment: RegionExperiment, edge: Edge, value: NDArray[Any], other: Row
) -> Proof | None:
    """The proof that another tensor in place of `value` gives the target's numbers."""
    theirs = case.values("target", other)
    if theirs is None or theirs.shape != value.shape:
        return None
    shown = proof(experiment, {edge: theirs})
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


_MAX_ADDRESSED_TENSORS = 20_000
"""Tensors with addresses that are looked at."""


def find_overlaps(run: Run) -> dict[OpKey, tuple[OpKey, str]]:
    """Ops whose output is written over while it is still to be read -> by which op."""
    placed = [t for t in run.tensors if t.address and t.nbytes and t.key.role is Role.OUTPUT]
    if not placed or len(placed) > _MAX_ADDRESSED_TENSORS:
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
                words = (
                    f"{early.key.op} and {late.key.op} share {shared:,} bytes while both are alive"
                )
                yield early.key.op, (late.key.op, words)


def _is_alias(one: Tensor, other: Tensor) -> bool:
    """Whether they are said to share memory, with each other or with a third."""
    names = {str(one.key), str(other.key)}
    same = bool(one.alias_of) and one.alias_of == other.alias_of
    return same or one.alias_of in names or other.alias_of in names
