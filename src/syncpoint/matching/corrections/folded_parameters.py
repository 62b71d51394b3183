"""Parameters that a fold has changed: the same name, other numbers, and no error."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.matching.graph import Graph
from syncpoint.matching.op_kinds import AFFINE
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Op, OpKey, Role

_FAR = 12


def part_folded(work: Workspace) -> None:
    """Take pairs of parameters apart where the target's holds what other ops did in the
    reference. What the fold made of them shows in the result of the op that reads them."""
    partner = {
        p.target.op: p
        for p in work.matching.pairs
        if p.target.role is Role.PARAMETER and p.reference.role is Role.PARAMETER
    }
    gone: dict[SyncPoint, SyncPoint | None] = {}
    for slot, reference in work.to_reference.items():
        op = work.graphs[TARGET].op_of(slot)
        if op is None:
            continue
        for name in _read_by(work.graphs[TARGET], op):
            pair = partner.get(name)
            if pair is None or pair in gone:
                continue
            taken_in = _folded(work, reference.op, pair.reference.op)
            if taken_in:
                gone[pair] = None
                detail = f"holds {taken_in} too, folded into {op.key}"
                reason = Reason(ReasonCode.NO_COUNTERPART, detail)
                for side, key in (("target", pair.target), ("reference", pair.reference)):
                    work.matching.explain(side, key, reason)
    work.matching.exchange(gone)
    work.refresh()


def _read_by(graph: Graph, op: Op) -> Iterator[OpKey]:
    """The parameters of an op, seen through the casts and transposes of constants."""
    waiting = list(op.inputs)
    for _ in range(_FAR):
        if not waiting:
            return
        edge = waiting.pop()
        if edge.role is Role.PARAMETER:
            yield edge.op
        at = graph.position.get(edge.op, -1) if edge.role is Role.OUTPUT else -1
        if at >= 0 and not graph.live[at]:
            waiting += graph.ops[at].inputs


def _folded(work: Workspace, last: OpKey, parameter: OpKey) -> str:
    """The op that was folded into the one which reads a parameter, seen from the reference op
    that the target's result is paired with; "" if there is none."""
    graph = work.graphs[REFERENCE]
    waiting = [graph.position.get(last, -1)]
    seen: set[int] = set()
    affine = ""
    reader = -1
    while waiting and len(seen) < _FAR:
        at = waiting.pop(0)
        if at < 0 or at in seen:
            continue
        seen.add(at)
        if any(e.op == parameter and e.role is Role.PARAMETER for e in graph.ops[at].inputs):
            reader = at
            continue
        if graph.classes[at] in AFFINE and len(graph.reads[at]) == 1:
            affine = affine or str(graph.ops[at].key)
        for slot in graph.reads[at]:
            if slot not in work.to_target:
                waiting.append(graph.position.get(slot.op, -1))
    return affine if reader >= 0 else ""
