"""Find values that were overwritten before they were read: by recorded addresses, or by trying
another tensor in their place; the ops in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.proof import Proof, prove_change
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.run.model import Edge, OpKey, Role, Tensor
from syncpoint.run.reader import Run

_MAX_OPS_BEHIND = 256
"""Ops to visit between one sync point and those before it."""


def list_produced_between(
    case: Case, run: Run, maker: Row, row: Row, shape: tuple[int, ...], reads: set[OpKey]
) -> list[Row]:
    """List rows of results that were produced between a value and the op that reads it, and that
    may have overwritten that value."""
    op = run.op(row.target.key.op)
    direct = {edge.op for edge in op.inputs} if op is not None else set()
    return [
        other
        for other in case.computed
        if maker.target.order < other.target.order < row.target.order
        and other.reference.shape == shape
        and other.target.key.role is Role.OUTPUT
        # If the graph says that the op reads the other, it is wired so, not overwritten, unless
        # it reads both.
        and (
            other.target.key.op not in reads or direct >= {other.target.key.op, maker.target.key.op}
        )
    ]


def prove_overwritten(
    case: Case, experiment: RegionExperiment, edge: Edge, value: NDArray[Any], other: Row
) -> Proof | None:
    """Prove that another tensor in place of `value` gives the target's values; None if not."""
    replacement = case.values("target", other)
    if replacement is None or replacement.shape != value.shape:
        return None
    shown = prove_change(experiment, {edge: replacement})
    return shown if shown is not None and shown.exact else None


def list_ops_read(case: Case, run: Run, row: Row) -> set[OpKey]:
    """List the ops that an op of the target reads, directly or through ops that are not
    compared."""
    paired = {r.target.key.op for r in case.computed}
    ops_read: set[OpKey] = set()
    waiting = [row.target.key.op]
    while waiting and len(ops_read) < _MAX_OPS_BEHIND:
        op = run.op(waiting.pop())
        for edge in op.inputs if op is not None else ():
            if edge.role is Role.OUTPUT and edge.op not in ops_read:
                ops_read.add(edge.op)
                if edge.op not in paired:
                    waiting.append(edge.op)
    return ops_read


_MAX_ADDRESSED_TENSORS = 20_000


def find_overlaps(run: Run) -> dict[OpKey, tuple[OpKey, str]]:
    """Map each op whose output is overwritten while it is still needed to the op that does it."""
    placed = [t for t in run.tensors if t.address and t.nbytes and t.key.role is Role.OUTPUT]
    if not placed or len(placed) > _MAX_ADDRESSED_TENSORS:
        return {}
    order = {op.key: index for index, op in enumerate(run.ops)}
    last_read: dict[OpKey, int] = {}
    for index, op in enumerate(run.ops):
        for edge in op.inputs:
            last_read[edge.op] = index
    return dict(_find_pairs(placed, order, last_read))


def _find_pairs(
    placed: list[Tensor], order: dict[OpKey, int], last_read: dict[OpKey, int]
) -> Iterator[tuple[OpKey, tuple[OpKey, str]]]:
    placed.sort(key=lambda t: t.address or 0)
    for index, one in enumerate(placed):
        end = (one.address or 0) + one.nbytes
        for other in placed[index + 1 :]:
            if (other.address or 0) >= end:
                break
            if _is_alias(one, other) or one.key.part != other.key.part:
                continue
            early, late = sorted((one, other), key=lambda t: order.get(t.key.op, -1))
            written = order.get(late.key.op, -1)
            # An op may overwrite its own input if no op reads that afterwards.
            if order.get(early.key.op, -1) < written < last_read.get(early.key.op, -1):
                shared = min(end, (other.address or 0) + other.nbytes) - (other.address or 0)
                words = (
                    f"{early.key.op} and {late.key.op} share {shared:,} bytes while both are alive"
                )
                yield early.key.op, (late.key.op, words)


def _is_alias(one: Tensor, other: Tensor) -> bool:
    """Whether they are declared aliases of each other or of a third tensor."""
    names = {str(one.key), str(other.key)}
    same = bool(one.alias_of) and one.alias_of == other.alias_of
    return same or one.alias_of in names or other.alias_of in names
