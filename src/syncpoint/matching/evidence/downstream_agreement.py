"""Check whether the next sync points downstream of a tensor hold equal values, as evidence for its
pair."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace

MIN_DROP = 30.0
"""To contradict a pair, the distance of its readers must be so many times smaller than its own: an
error that is only attenuated, such as that of one of two summands, contradicts nothing."""
_MAX_OPS = 24
"""Maximum number of target ops to pass on the way to the next sync points."""


def is_downstream_equal(work: Workspace, target: Slot) -> bool:
    """Whether there are sync points downstream and the next ones hold equal values."""
    paired = list(next_paired_slots(work, work.graphs[TARGET], target))
    return bool(paired) and all(_is_equal_or_unknown(work, slot) for slot in paired)


def do_readers_contradict(work: Workspace, target: Slot) -> bool:
    """Whether the next sync points agree far better than a pair does itself, so that there is no
    error in it that explains the difference."""
    own = work.view_selector.find_best_view(target, work.to_reference[target])[0]
    readers = next_paired_slots(work, work.graphs[TARGET], target)
    distances = [work.view_selector.find_best_view(s, work.to_reference[s])[0] for s in readers]
    known_distances = [distance for distance in distances if distance < inf]
    limit = min(work.fingerprints.tolerance, own / MIN_DROP)
    return bool(known_distances) and max(known_distances) <= limit


def _is_equal_or_unknown(work: Workspace, target: Slot) -> bool:
    reference = work.to_reference[target]
    if not work.fingerprints.is_informative(TARGET, target):
        return True
    if not work.fingerprints.is_informative(REFERENCE, reference):
        return True
    return work.view_selector.find_best_view(target, reference)[0] <= work.fingerprints.tolerance


def next_paired_slots(work: Workspace, graph: SlotGraph, slot: Slot) -> Iterator[Slot]:
    """The next paired slots downstream of a target slot, on every path."""
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
