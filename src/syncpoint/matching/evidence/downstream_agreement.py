"""Whether what is made from a tensor agrees: the next sync points downstream."""

from __future__ import annotations

from collections.abc import Iterator

from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace

_AROUND = 24
"""How many target ops are passed on the way to the next sync points."""


def agree_after(work: Workspace, target: Slot) -> bool:
    """Whether the next sync points downstream hold equal values, and there are some."""
    found = list(_next(work, work.graphs[TARGET], target))
    return bool(found) and all(
        work.layouts.best(slot, work.to_reference[slot])[0] <= work.prints.tolerance
        for slot in found
        if work.prints.tells(TARGET, slot) and work.prints.tells(REFERENCE, work.to_reference[slot])
    )


def _next(work: Workspace, graph: Graph, slot: Slot) -> Iterator[Slot]:
    waiting = list(graph.consumers.get(slot, ()))
    seen: set[int] = set()
    while waiting and len(seen) < _AROUND:
        at = waiting.pop(0)
        if at in seen:
            continue
        seen.add(at)
        for made in graph.outputs(at):
            if made in work.to_reference:
                yield made
            else:
                waiting += graph.consumers.get(made, ())
