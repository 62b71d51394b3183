"""Matcher: pairs the outputs of a recurrent op with those of the small ops that the other side
computes step by step.

A compiler may repeat a recurrent layer for every step. No op of it then has the kind of the
recurrent op, and values find its results only if they are right. So they are found from behind: an
op that reads a result, and its partner, read the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from syncpoint.matching.evidence.recurrent_ops import (
    RecurrentOp,
    is_recurrent,
    recurrent_ops,
)
from syncpoint.matching.graph import Slot
from syncpoint.matching.matchers.graph_edges import walk_edges
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.protocol import Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Role

_MAX_STEPS_BACK = 8
"""Maximum number of ops between a reader and what it reads, such as a bias and a reshape."""

_OWN_STEPS = TRANSPARENT | {"matmul", "conv"}
"""Classes of the ops between the result of an op and what it reads."""


class UnrolledLayerMatcher:
    """Pairs the outputs of recurrent ops that the other side has step by step."""

    name = "unrolled"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair what paired readers read, then what follows along the edges."""
        has_recurrent = [
            any(map(is_recurrent, side.ops)) for side in (matching.target, matching.reference)
        ]
        if not any(has_recurrent):
            return ()
        work = Workspace.of(matching)
        if not all(graph.has_edges for graph in work.graphs):
            return ()
        ops = [recurrent_ops(graph) for graph in work.graphs]
        is_paired = False
        for side in (TARGET, REFERENCE):
            families = {op.family for op in ops[1 - side]}
            for op in ops[side]:
                if op.family not in families:
                    is_paired |= _pair_outputs(work, side, op)
        if is_paired:
            walk_edges(work)
        return ()


def _pair_outputs(work: Workspace, side: int, op: RecurrentOp) -> bool:
    """Pair the outputs of a recurrent op that paired ops read; return whether any was paired."""
    is_paired = False
    for slot in work.graphs[side].outputs(op.position):
        if not work.is_free(side, slot):
            continue
        candidates = dict.fromkeys(_operands_of_partners(work, side, slot))
        fitting = [other for other in candidates if _is_computed_from(work, side, op, other)]
        if len(fitting) == 1 and work.admit(1 - side, fitting[0]):
            slots = (slot, fitting[0]) if side == TARGET else (fitting[0], slot)
            view = work.view_selector.reshape_view(*slots)
            if view:
                work.view_selector.define_view(*slots, view)
            evidence = "read by paired ops, computed step by step"
            is_paired |= work.pair(*slots, evidence, 0.8, view=view)
    return is_paired


def _operands_of_partners(work: Workspace, side: int, slot: Slot) -> Iterator[Slot]:
    """What the partners of the ops that read a slot read in its place."""
    graph, paired = work.graphs[side], (work.to_reference, work.to_target)[side]
    for reader in graph.consumers.get(slot, ()):
        if len(graph.reads[reader]) != 1:
            continue
        for output in graph.results(reader) + graph.outputs(reader):
            if output in paired:
                operand = _find_operand(work, 1 - side, paired[output], graph.shape(slot))
                if operand is not None:
                    yield operand


def _find_operand(
    work: Workspace, side: int, output: Slot, shape: tuple[int, ...] | None
) -> Slot | None:
    """The unpaired slot that an op reads, through its own steps such as a reshape and the sum with
    its bias: the first one of a shape, else the first one of that size."""
    graph, paired = work.graphs[side], (work.to_reference, work.to_target)[side]
    of_size: Slot | None = None
    slot = output
    for _ in range(_MAX_STEPS_BACK):
        position = graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        if position < 0 or len(graph.reads[position]) != 1:
            break
        if slot != output and graph.classes[position] not in _OWN_STEPS:
            break
        slot = graph.reads[position][0]
        if slot in paired or slot.role is not Role.OUTPUT:
            break
        if graph.shape(slot) == shape:
            return slot
        if of_size is None and graph.count(slot) == prod(shape or ()):
            of_size = slot
    return of_size


def _is_computed_from(work: Workspace, side: int, op: RecurrentOp, other: Slot) -> bool:
    """Whether a slot of the other side depends on nothing but the partner of what the recurrent op
    reads."""
    graph, other_graph = work.graphs[side], work.graphs[1 - side]
    paired = (work.to_reference, work.to_target)[1 - side]
    sources = {graph.root(slot) for slot in graph.reads[op.position]}
    limit = len(other_graph.ops) + 1
    others = other_graph.sources_behind(other_graph.position[other.op], paired, limit)
    partners = {graph.root(paired[slot]) for slot in others or () if slot in paired}
    return bool(partners) and partners <= sources
