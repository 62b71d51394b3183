"""Move a pair to the result of the layout ops behind the op of the target, if they put its elements
into a wrong order.

An op whose layout differs by definition, such as a recurrent layer of ONNX, is paired through the
view that follows from the definition. The ops after it that restore the usual layout have no
counterpart. If their result is not what the view gives, the error is theirs, not that of the op
that reads it.
"""

from __future__ import annotations

from syncpoint.matching.evidence.downstream_agreement import (
    is_equal_or_unknown,
    next_sync_points,
)
from syncpoint.matching.fingerprints import relative_distance
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.workspace import TARGET, Workspace

_MAX_LAYOUT_OPS = 16
"""Maximum number of layout ops to follow behind one op."""


def move_pairs_to_wrong_layouts(work: Workspace) -> None:
    """Pair the result of wrong layout ops instead of the result of the op before them."""
    for target, reference in list(work.to_reference.items()):
        if not work.view_selector.has_defined_view(target, reference):
            continue
        if not work.fingerprints.are_equal(target, reference, work.view(target)):
            continue
        slot = _wrong_layout(work, target, reference)
        if slot is not None and work.admit(TARGET, slot):
            work.unpair(target)
            evidence = f"{target} in the layout that the ops after it give it"
            note = f"{target} equals {reference} in its own layout; the ops after it are wrong"
            view = work.view_selector.reshape_view(slot, reference)
            work.pair(slot, reference, evidence, 0.9, note=note, view=view)
            work.explain_inside(TARGET, target, str(reference.op))


def _wrong_layout(work: Workspace, target: Slot, reference: Slot) -> Slot | None:
    """The result of layout ops behind a target slot that is in another order than its view gives,
    if an op that reads it is off and its partner reads the reference slot itself. Another layout
    that the readers expect is no error: it has another shape or is an order of axes."""
    graph, other_graph = work.graphs
    results = _results_of_layout_ops(work, target)
    shape = _long_axes(other_graph.shape(reference))
    usual = [slot for slot in results if _long_axes(graph.shape(slot)) == shape]
    flat = [slot for slot in results if len(graph.shape(slot) or ()) == 2 and len(shape) > 2]
    results = usual or flat[-1:]
    if not results or not all(_holds_other_order(work, target, slot) for slot in results):
        return None
    if work.view_selector.find_best_view(results[0], reference)[0] <= work.fingerprints.tolerance:
        return None
    readers = [
        (slot, other)
        for slot, other in next_sync_points(work, results[0])
        if reference in _reads(other_graph, other) and graph.shape(slot) == other_graph.shape(other)
    ]
    is_off = any(not is_equal_or_unknown(work, *slots) for slots in readers)
    return results[0] if is_off else None


def _long_axes(shape: tuple[int, ...] | None) -> list[int]:
    return [n for n in shape or () if n != 1]


def _results_of_layout_ops(work: Workspace, target: Slot) -> list[Slot]:
    """The unpaired results of the layout ops behind a target slot, in their order."""
    graph = work.graphs[TARGET]
    results: list[Slot] = []
    waiting = [target]
    while waiting and len(results) < _MAX_LAYOUT_OPS:
        for reader in graph.consumers.get(waiting.pop(0), ()):
            if graph.classes[reader] in TRANSPARENT:
                outputs = [s for s in graph.outputs(reader) if s not in work.to_reference]
                waiting += outputs
                results += outputs
    return results


def _reads(graph: SlotGraph, slot: Slot) -> list[Slot]:
    position = graph.position.get(slot.op, -1)
    return graph.reads[position] if position >= 0 else []


def _holds_other_order(work: Workspace, target: Slot, slot: Slot) -> bool:
    """Whether a slot does not hold the elements of the target in the order that its view gives."""
    if work.graphs[TARGET].count(target) != work.graphs[TARGET].count(slot):
        return False
    expected = work.fingerprints.sample(TARGET, target, work.view(target))
    actual = work.fingerprints.sample(TARGET, slot)
    if expected is None or actual is None:
        return False
    return relative_distance(actual, expected) > work.fingerprints.tolerance
