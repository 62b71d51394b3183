"""Check whether the next sync points downstream of a tensor hold equal values, as evidence for its
pair."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace

_MAX_OPS = 24
"""Maximum number of target ops to pass on the way to the next sync points."""


def is_downstream_equal(work: Workspace, target: Slot) -> bool:
    """Whether there are sync points downstream and the next ones hold equal values."""
    paired = list(_next_paired_slots(work, work.graphs[TARGET], target))
    return bool(paired) and all(_is_equal_or_unknown(work, slot) for slot in paired)


def _is_equal_or_unknown(work: Workspace, target: Slot) -> bool:
    reference = work.to_reference[target]
    if not work.fingerprints.is_informative(TARGET, target):
        return True
    if not work.fingerprints.is_informative(REFERENCE, reference):
        return True
    return work.view_selector.find_best_view(target, reference)[0] <= work.fingerprints.tolerance


def _next_paired_slots(work: Workspace, graph: SlotGraph, slot: Slot) -> Iterator[Slot]:
    waiting = list(graph.consumers.get(slot, ()))
    visited: set[int] = set()
    while waiting and len(visited) < _MAX_OPS:
        position = waiting.pop(0)
        if position in visited:
            continue
        visited.add(position)
        for output in graph.outputs(position):
            if output in work.to_reference:
                yield output
            else:
                waiting += graph.consumers.get(output, ())
