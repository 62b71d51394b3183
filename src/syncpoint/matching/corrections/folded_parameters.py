"""Unpair parameters that a fold has changed, such as a weight multiplied by a batch norm: same
name, other values, no error."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.matching.graph import SlotGraph
from syncpoint.matching.op_kinds import AFFINE
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Op, OpKey, Role

_MAX_OPS = 12
"""Maximum number of ops to follow back to the reader of a parameter."""


def unpair_folded_parameters(work: Workspace) -> None:
    """Unpair parameters if other reference ops were folded into the target's parameter. An error
    in the fold shows in the output of the op that reads it."""
    pairs = {
        p.target.op: p
        for p in work.matching.pairs
        if p.target.role is Role.PARAMETER and p.reference.role is Role.PARAMETER
    }
    removed: dict[SyncPoint, SyncPoint | None] = {}
    for slot, reference in work.to_reference.items():
        op = work.graphs[TARGET].op_of(slot)
        if op is None:
            continue
        for name in _read_parameters(work.graphs[TARGET], op):
            pair = pairs.get(name)
            if pair is None or pair in removed:
                continue
            folded_op = _find_folded_op(work, reference.op, pair.reference.op)
            if folded_op:
                removed[pair] = None
                detail = f"holds {folded_op} too, folded into {op.key}"
                reason = Reason(ReasonCode.NO_COUNTERPART, detail)
                for side, key in (("target", pair.target), ("reference", pair.reference)):
                    work.matching.explain(side, key, reason)
    work.matching.exchange(removed)
    work.refresh()


def _read_parameters(graph: SlotGraph, op: Op) -> Iterator[OpKey]:
    """The parameters of an op, also behind casts and transpositions of constants."""
    waiting = list(op.inputs)
    for _ in range(_MAX_OPS):
        if not waiting:
            return
        edge = waiting.pop()
        if edge.role is Role.PARAMETER:
            yield edge.op
        position = graph.position.get(edge.op, -1) if edge.role is Role.OUTPUT else -1
        if position >= 0 and not graph.live[position]:
            waiting += graph.ops[position].inputs


def _find_folded_op(work: Workspace, last: OpKey, parameter: OpKey) -> str:
    """The reference op that was folded into the reader of a parameter: it lies between that reader
    and the op `last` that the target is paired with; "" if there is none."""
    graph = work.graphs[REFERENCE]
    waiting = [graph.position.get(last, -1)]
    visited: set[int] = set()
    folded_op = ""
    reader = -1
    while waiting and len(visited) < _MAX_OPS:
        position = waiting.pop(0)
        if position < 0 or position in visited:
            continue
        visited.add(position)
        if any(e.op == parameter and e.role is Role.PARAMETER for e in graph.ops[position].inputs):
            reader = position
            continue
        if graph.classes[position] in AFFINE and len(graph.reads[position]) == 1:
            folded_op = folded_op or str(graph.ops[position].key)
        for slot in graph.reads[position]:
            if slot not in work.to_target:
                waiting.append(graph.position.get(slot.op, -1))
    return folded_op if reader >= 0 else ""
