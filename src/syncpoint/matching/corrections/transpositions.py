"""Pair or unpair transpositions that a compiler merged or moved: the same tensor with its axes in
another order; axes that an op records.

A compiler whose op transposes its operand merges that with the transposition in the user's code.
Both sides then transpose paired tensors, and each op records its axes: the view between the two
follows from the recorded axes, never from values alone.
"""

from __future__ import annotations

from syncpoint.matching.evidence.downstream_agreement import is_downstream_equal
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.views import View
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Op

_MAX_TRANSPOSITIONS = 4
"""Maximum number of consecutive transpositions to follow."""


def pair_merged_transpositions(work: Workspace) -> None:
    """Pair transpositions of paired tensors if both record their axes, the values are equal
    through the view that follows from them, and the next sync points downstream are equal: a wrong
    order of axes would show there."""
    target_graph, reference_graph = work.graphs
    _unpair_wrong_axes(work)
    by_reference: dict[Slot, list[tuple[Slot, tuple[int, ...]]]] = {}
    for slot in _unpaired_transpositions(work, TARGET):
        source = _trace_to_paired(target_graph, slot, work.to_reference)
        if source is not None and not work.view(source[0]):
            by_reference.setdefault(work.to_reference[source[0]], []).append((slot, source[1]))
    for slot in _unpaired_transpositions(work, REFERENCE):
        source = _trace_to_paired(reference_graph, slot, work.to_target)
        candidates = []
        for target, order in by_reference.get(source[0], ()) if source is not None else ():
            view = _view_between(order, source[1]) if source is not None else None
            if view is None or target in work.to_reference:
                continue
            is_equal = work.fingerprints.are_equal(target, slot, view)
            if is_equal and is_downstream_equal(work, target):
                candidates.append((target, view))
        if len(candidates) == 1:
            target, view = candidates[0]
            work.admit(TARGET, target)
            evidence = "the same tensor transposed, by the axes that both ops record"
            work.pair(target, slot, evidence, 0.9, view=view)


def drop_moved_transpositions(work: Workspace) -> None:
    """Unpair views and slices of another shape that are equal through an order of axes that no
    other op needs, if the sync points downstream are equal: the compiler moved a transposition past
    them. A wrong order of axes would show downstream."""
    order = work.graphs[TARGET].position
    for target, reference in sorted(
        work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
    ):
        shapes = work.graphs[TARGET].shape(target), work.graphs[REFERENCE].shape(reference)
        long_axes = [[n for n in shape or () if n != 1] for shape in shapes]
        is_view = work.graphs[TARGET].class_of(target) in TRANSPARENT | {"slice", "split"}
        if not is_view or long_axes[0] == long_axes[1] or work.view(target):
            continue
        distance, view = work.view_selector.find_best_view(target, reference)
        if view and distance <= work.fingerprints.tolerance and is_downstream_equal(work, target):
            work.unpair(target)
            detail = f"equal through {view}, which later ops undo"
            work.explain(TARGET, target, f"made from {reference}; {detail}")
            work.explain(REFERENCE, reference, f"{target} is {detail}")


def _unpair_wrong_axes(work: Workspace) -> None:
    """Unpair transpositions of the same shape that differ in their recorded axes, if they are
    equal through the view between those axes."""
    target_graph, reference_graph = work.graphs
    for target, reference in list(work.to_reference.items()):
        classes = target_graph.class_of(target), reference_graph.class_of(reference)
        if classes != ("transpose", "transpose"):
            continue
        if work.view(target) or work.evidence_kind(target) is EvidenceKind.MAP:
            continue
        target_source = _trace_to_paired(target_graph, target, work.to_reference)
        reference_source = _trace_to_paired(reference_graph, reference, work.to_target)
        if target_source is None or reference_source is None:
            continue
        if work.to_reference[target_source[0]] != reference_source[0] or work.view(
            target_source[0]
        ):
            continue
        view = _view_between(target_source[1], reference_source[1])
        if not view or work.fingerprints.are_equal(target, reference):
            continue
        is_equal = work.fingerprints.are_equal(target, reference, view)
        if is_equal and is_downstream_equal(work, target):
            work.unpair(target)


def _unpaired_transpositions(work: Workspace, side: int) -> list[Slot]:
    graph = work.graphs[side]
    return [
        slot
        for position, kind in enumerate(graph.classes)
        if kind == "transpose" and graph.live[position]
        for slot in graph.outputs(position)
        if slot not in (work.to_reference, work.to_target)[side]
    ]


def _trace_to_paired(
    graph: SlotGraph, slot: Slot, paired: dict[Slot, Slot]
) -> tuple[Slot, tuple[int, ...]] | None:
    """The paired tensor before consecutive transpositions, and their combined axes."""
    rank = len(graph.shape(slot) or ())
    order = tuple(range(rank))
    for _ in range(_MAX_TRANSPOSITIONS):
        position = graph.position.get(slot.op, -1)
        if (
            position < 0
            or graph.classes[position] != "transpose"
            or len(graph.reads[position]) != 1
        ):
            return None
        axes = permutation_of(graph.ops[position], rank)
        if axes is None:
            return None
        order = tuple(axes[a] for a in order)
        slot = graph.reads[position][0]
        if slot in paired:
            return slot, order
    return None


def permutation_of(op: Op, rank: int) -> tuple[int, ...] | None:
    """The recorded input axis of each output axis of a transposition; None if unknown."""
    attributes = op.attributes
    constants = attributes.get("constants")
    axes = attributes.get("perm", attributes.get("dims"))
    if axes is None and isinstance(constants, list) and len(constants) == 1:
        axes = constants[0]
    if isinstance(axes, list) and all(isinstance(a, int) for a in axes):
        order = tuple(a % rank for a in axes) if rank else ()
        return order if sorted(order) == list(range(rank)) else None
    swapped_axes = [attributes.get(name) for name in ("dim0", "dim1")]
    if all(isinstance(a, int) and -rank <= a < rank for a in swapped_axes):
        permutation = list(range(rank))
        first, second = (int(a) % rank for a in swapped_axes if a is not None)
        permutation[first], permutation[second] = permutation[second], permutation[first]
        return tuple(permutation)
    return None


def _view_between(target: tuple[int, ...], reference: tuple[int, ...]) -> View | None:
    """The view from the target to the reference, which are transpositions of one tensor."""
    if len(target) != len(reference):
        return None
    order = tuple(target.index(axis) for axis in reference)
    return View() if order == tuple(range(len(order))) else View(f"transpose({_axes_text(order)})")


def _axes_text(order: tuple[int, ...]) -> str:
    return ",".join(map(str, order))
