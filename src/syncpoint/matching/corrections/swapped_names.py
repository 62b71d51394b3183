"""Exchange the partners of two activations that took each other's origin name when the compiler
merged constants.

Compilers that merge equal constants also merge their metadata: the product of one hard swish then
names another hard swish as its origin. Values reveal this if they do so on both sides: the op with
the name equals another reference op, and the reference op equals an op with another name. The next
sync points downstream must be equal too; if two ops are really exchanged, they are not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from syncpoint.matching.evidence.downstream_agreement import is_downstream_equal
from syncpoint.matching.graph import Slot
from syncpoint.matching.op_kinds import ACTIVATIONS
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Role

_MAX_NEIGHBORS = 16
"""Maximum number of ops of a kind to compare in each direction, so that the work does not grow with
the square if all are unequal."""


def exchange_swapped_names(work: Workspace) -> bool:
    """Exchange the partners of unequal pairs of activations if both have an equal one; return
    whether any pair changed."""
    unequal = {t: r for t, r in work.to_reference.items() if _is_doubtful(work, t, r)}
    if not unequal:
        return False
    targets = _CandidateOutputs(work, TARGET, unequal)
    references = _CandidateOutputs(work, REFERENCE, unequal.values())
    moved: dict[Slot, Slot] = {}
    for target, reference in unequal.items():
        equal_references = [
            r for r in references.nearest_like(reference) if work.fingerprints.are_equal(target, r)
        ]
        equal_targets = [
            t for t in targets.nearest_like(target) if work.fingerprints.are_equal(t, reference)
        ]
        if len(equal_references) != 1 or len(equal_targets) != 1:
            continue
        if all(is_downstream_equal(work, slot) for slot in (target, equal_targets[0])):
            moved[target] = equal_references[0]
            moved[equal_targets[0]] = reference
    if not moved or len(set(moved.values())) != len(moved):
        return False
    for target, reference in moved.items():
        work.unpair(target)
        work.unpair(work.to_target.get(reference, target))
    for target, reference in moved.items():
        work.admit(TARGET, target)
        work.admit(REFERENCE, reference)
        kind = work.graphs[REFERENCE].class_of(reference)
        work.pair(target, reference, f"equal values, and the name of another {kind}", 0.9)
    work.apply_changes()
    return True


def _is_doubtful(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Whether two activations are paired by origin name and have unequal values."""
    is_named = work.evidence_kind(target) is EvidenceKind.ORIGIN
    if target.role is not Role.OUTPUT or not is_named:
        return False
    if work.graphs[REFERENCE].class_of(reference) not in ACTIVATIONS:
        return False
    if not work.fingerprints.is_informative(TARGET, target):
        return False
    if not work.fingerprints.is_informative(REFERENCE, reference):
        return False
    return not work.fingerprints.are_equal(target, reference)


class _CandidateOutputs:
    """The outputs of one side that are unpaired or doubtful, by class and number of elements."""

    def __init__(self, work: Workspace, side: int, doubtful_slots: Iterable[Slot]) -> None:
        self._graph = graph = work.graphs[side]
        self._positions: dict[tuple[str, int], list[int]] = {}
        self._slots: dict[int, Slot] = {}
        doubtful = set(doubtful_slots)
        paired = (work.to_reference, work.to_target)[side]
        keys = {(graph.class_of(slot), graph.count(slot)) for slot in doubtful}
        for position, kind in enumerate(graph.classes):
            for slot in graph.outputs(position)[:1]:
                key = kind, graph.count(slot)
                if key in keys and (slot in doubtful or slot not in paired):
                    self._positions.setdefault(key, []).append(position)
                    self._slots[position] = slot

    def nearest_like(self, slot: Slot) -> list[Slot]:
        """The nearest outputs of the same class and number of elements."""
        positions = self._positions.get((self._graph.class_of(slot), self._graph.count(slot)), [])
        own_position = self._graph.position[slot.op]
        middle = bisect_left(positions, own_position)
        nearest = positions[max(middle - _MAX_NEIGHBORS, 0) : middle + _MAX_NEIGHBORS + 1]
        return [self._slots[position] for position in nearest if position != own_position]
