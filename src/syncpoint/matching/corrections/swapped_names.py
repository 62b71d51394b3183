"""Names that went to another op of the same kind.

Compilers that merge equal constants merge what is written about them too: of several hard swishes,
the product of one then says that it was made from another. Values tell, where they tell on both
sides: what bears the name is another op's result, and the op's own result bears another name. What
follows must agree as well: where two ops were exchanged in truth, it does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from syncpoint.matching.evidence.downstream_agreement import agree_after
from syncpoint.matching.graph import Slot
from syncpoint.matching.op_kinds import ACTIVATIONS
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Role

_NEAR = 16
"""How many ops of a kind are looked at in each direction: where all is unequal, the work must not
grow with the square."""


def exchange(work: Workspace) -> bool:
    """Give unequal pairs of activations the partners that they are equal to, if both have one;
    tells whether any have."""
    unequal = {t: r for t, r in work.to_reference.items() if _doubtful(work, t, r)}
    if not unequal:
        return False
    targets = _Results(work, TARGET, unequal)
    references = _Results(work, REFERENCE, unequal.values())
    moved: dict[Slot, Slot] = {}
    for target, reference in unequal.items():
        meant = [r for r in references.like(reference) if work.prints.equal(target, r)]
        made = [t for t in targets.like(target) if work.prints.equal(t, reference)]
        if len(meant) == len(made) == 1 and all(agree_after(work, t) for t in (target, made[0])):
            moved[target] = meant[0]
            moved[made[0]] = reference
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
    work.settle()
    return True


def _doubtful(work: Workspace, target: Slot, reference: Slot) -> bool:
    is_named = work.evidence_kind(target) is EvidenceKind.ORIGIN
    if target.role is not Role.OUTPUT or not is_named:
        return False
    if work.graphs[REFERENCE].class_of(reference) not in ACTIVATIONS:
        return False
    tell = work.prints.tells(TARGET, target) and work.prints.tells(REFERENCE, reference)
    return tell and not work.prints.equal(target, reference)


class _Results:
    """What one side has that is unpaired, or whose partner is in doubt, by class and size."""

    def __init__(self, work: Workspace, side: int, doubted: Iterable[Slot]) -> None:
        self._graph = graph = work.graphs[side]
        self._found: dict[tuple[str, int], list[int]] = {}
        self._slots: dict[int, Slot] = {}
        may = set(doubted)
        paired = (work.to_reference, work.to_target)[side]
        wanted = {(graph.class_of(slot), graph.count(slot)) for slot in may}
        for at, kind in enumerate(graph.classes):
            for slot in graph.outputs(at)[:1]:
                key = kind, graph.count(slot)
                if key in wanted and (slot in may or slot not in paired):
                    self._found.setdefault(key, []).append(at)
                    self._slots[at] = slot

    def like(self, slot: Slot) -> list[Slot]:
        """The nearest of them that are of the class and size of this one."""
        places = self._found.get((self._graph.class_of(slot), self._graph.count(slot)), [])
        at = self._graph.position[slot.op]
        middle = bisect_left(places, at)
        near = places[max(middle - _NEAR, 0) : middle + _NEAR + 1]
        return [self._slots[place] for place in near if place != at]
