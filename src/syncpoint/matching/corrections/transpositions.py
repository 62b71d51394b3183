"""Transpositions that one side merged: the same tensor, its axes in another order.

A compiler that has an op of its own turn its operand merges that with the transposition the user
wrote. Both sides then turn tensors that are paired, and each says how: the view between the two
follows from what the ops say of themselves, never from values alone.
"""

from __future__ import annotations

from syncpoint.matching.evidence.downstream_agreement import agree_after
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.views import View
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Op

_STEPS = 4
"""Transpositions of one another that are looked behind."""


def pair_turned(work: Workspace) -> None:
    """Pair transpositions of paired tensors, where both say their axes, the values are equal
    through the view that follows from them, and so is what comes after: a wrong order of axes
    would show there."""
    mine, theirs = work.graphs
    _part_mistaken(work)
    waiting: dict[Slot, list[tuple[Slot, tuple[int, ...]]]] = {}
    for slot in _turned(work, TARGET):
        behind = _behind(mine, slot, work.to_reference)
        if behind is not None and not work.view(behind[0]):
            waiting.setdefault(work.to_reference[behind[0]], []).append((slot, behind[1]))
    for slot in _turned(work, REFERENCE):
        behind = _behind(theirs, slot, work.to_target)
        fitting = []
        for target, order in waiting.get(behind[0], ()) if behind is not None else ():
            view = _between(order, behind[1]) if behind is not None else None
            if view is None or target in work.to_reference:
                continue
            if work.prints.equal(target, slot, view) and agree_after(work, target):
                fitting.append((target, view))
        if len(fitting) == 1:
            target, view = fitting[0]
            work.admit(TARGET, target)
            said = "the same tensor turned, by the axes that both ops name"
            work.pair(target, slot, said, 0.9, view=view)


def drop_moved_transpositions(work: Workspace) -> None:
    """Views and slices of another shape that hold the reference's numbers in an order of axes
    that no other op needs, while all that follows is equal: a transposition was moved past
    them. Were it a mistake, it would show in what follows."""
    order = work.graphs[TARGET].position
    for target, reference in sorted(
        work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
    ):
        shapes = work.graphs[TARGET].shape(target), work.graphs[REFERENCE].shape(reference)
        plain = [[n for n in shape or () if n != 1] for shape in shapes]
        moves = work.graphs[TARGET].class_of(target) in TRANSPARENT | {"slice", "split"}
        if not moves or plain[0] == plain[1] or work.view(target):
            continue
        distance, view = work.layouts.best(target, reference)
        if view and distance <= work.prints.tolerance and agree_after(work, target):
            work.unpair(target)
            why = f"equal through {view}, which what follows undoes"
            work.explain(TARGET, target, f"made from {reference}; {why}")
            work.explain(REFERENCE, reference, f"{target} is {why}")


def _part_mistaken(work: Workspace) -> None:
    """Undo pairs by name of transpositions that have the same shape and not the same axes, where
    the axes that they name themselves make them equal."""
    mine, theirs = work.graphs
    for target, reference in list(work.to_reference.items()):
        if mine.class_of(target) != "transpose" or theirs.class_of(reference) != "transpose":
            continue
        if work.view(target) or work.evidence_kind(target) is EvidenceKind.MAP:
            continue
        one = _behind(mine, target, work.to_reference)
        other = _behind(theirs, reference, work.to_target)
        if one is None or other is None or work.to_reference[one[0]] != other[0]:
            continue
        view = None if work.view(one[0]) else _between(one[1], other[1])
        if not view or work.prints.equal(target, reference):
            continue
        if work.prints.equal(target, reference, view) and agree_after(work, target):
            work.unpair(target)


def _turned(work: Workspace, side: int) -> list[Slot]:
    graph = work.graphs[side]
    return [
        slot
        for at, kind in enumerate(graph.classes)
        if kind == "transpose" and graph.live[at]
        for slot in graph.outputs(at)
        if slot not in (work.to_reference, work.to_target)[side]
    ]


def _behind(
    graph: Graph, slot: Slot, paired: dict[Slot, Slot]
) -> tuple[Slot, tuple[int, ...]] | None:
    """The paired tensor that transpositions made this one of, and their axes together."""
    rank = len(graph.shape(slot) or ())
    order = tuple(range(rank))
    for _ in range(_STEPS):
        at = graph.position.get(slot.op, -1)
        if at < 0 or graph.classes[at] != "transpose" or len(graph.reads[at]) != 1:
            return None
        own = axes_of(graph.ops[at], rank)
        if own is None:
            return None
        order = tuple(own[a] for a in order)
        slot = graph.reads[at][0]
        if slot in paired:
            return slot, order
    return None


def axes_of(op: Op, rank: int) -> tuple[int, ...] | None:
    """The axes of a transposition as it says them itself, in the order of the result's."""
    said = op.attributes
    constants = said.get("constants")
    listed = said.get("perm", said.get("dims"))
    if listed is None and isinstance(constants, list) and len(constants) == 1:
        listed = constants[0]
    if isinstance(listed, list) and all(isinstance(a, int) for a in listed):
        order = tuple(a % rank for a in listed) if rank else ()
        return order if sorted(order) == list(range(rank)) else None
    ends = [said.get(name) for name in ("dim0", "dim1")]
    if all(isinstance(a, int) and -rank <= a < rank for a in ends):
        swapped = list(range(rank))
        one, other = (int(a) % rank for a in ends if a is not None)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        return tuple(swapped)
    return None


def _between(target: tuple[int, ...], reference: tuple[int, ...]) -> View | None:
    """What turns the target into the reference, both being turned from one tensor."""
    if len(target) != len(reference):
        return None
    order = tuple(target.index(axis) for axis in reference)
    return View() if order == tuple(range(len(order))) else View(f"transpose({_text(order)})")


def _text(order: tuple[int, ...]) -> str:
    return ",".join(map(str, order))
