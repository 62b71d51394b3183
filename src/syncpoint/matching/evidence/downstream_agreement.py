"""Whether the next sync points downstream of a tensor hold equal sampled values (unknown counts as
equal), as evidence for or against its pair."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from syncpoint.matching.graph import Slot
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace

MIN_DROP = 30.0
"""To contradict a pair, the distance of its readers must be so many times smaller than its own: an
error that is only attenuated, such as that of one of two summands, contradicts nothing."""
_MAX_OPS = 24
"""Maximum number of target ops to pass on the way to the next sync points."""


def is_downstream_equal(work: Workspace, target: Slot) -> bool:
    """Whether there are sync points downstream and the next ones hold equal values."""
    sync_points = list(next_sync_points(work, target))
    return bool(sync_points) and all(is_equal_or_unknown(work, *slots) for slots in sync_points)


def do_readers_contradict(work: Workspace, target: Slot) -> bool:
    """Whether the next sync points agree far better than a pair does itself, so that there is no
    error in it that explains the difference."""
    own = work.view_selector.find_best_view(target, work.to_reference[target])[0]
    sync_points = next_sync_points(work, target)
    distances = [work.view_selector.find_best_view(*slots)[0] for slots in sync_points]
    known_distances = [distance for distance in distances if distance < inf]
    limit = min(work.fingerprints.tolerance, own / MIN_DROP)
    return bool(known_distances) and max(known_distances) <= limit


def is_equal_or_unknown(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Whether a pair holds equal values, as far as its values are evidence."""
    if not work.fingerprints.is_informative(TARGET, target):
        return True
    if not work.fingerprints.is_informative(REFERENCE, reference):
        return True
    return work.view_selector.find_best_view(target, reference)[0] <= work.fingerprints.tolerance


def next_sync_points(work: Workspace, slot: Slot) -> Iterator[tuple[Slot, Slot]]:
    """The next sync points downstream of a target slot on every path, as slots of both sides. A
    slot that is a model output is compared with the one that is this output of the reference."""
    graph = work.graphs[TARGET]
    if slot in work.output_partners:
        yield slot, work.output_partners[slot]
    waiting = list(graph.consumers.get(slot, ()))
    visited: set[int] = set()
    while waiting and len(visited) < _MAX_OPS:
        position = waiting.pop(0)
        if position in visited:
            continue
        visited.add(position)
        for output in graph.outputs(position):
            if output in work.to_reference:
                yield output, work.to_reference[output]
                continue
            if output in work.output_partners:
                yield output, work.output_partners[output]
            waiting += graph.consumers.get(output, ())
