"""What the matchers that look at structure and values share: both graphs, pairs by slot."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from syncpoint.matching.evidence.source_lines import Lines
from syncpoint.matching.fingerprints import Fingerprints
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.layouts import Layouts
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey, Role

TARGET, REFERENCE = 0, 1
SIDES = ("target", "reference")


class Workspace:
    """Built once for a matching, when a matcher first asks for it."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.graphs = (Graph(matching.target), Graph(matching.reference))
        self.to_reference: dict[Slot, Slot] = {}
        """Paired slots, from the target's to the reference's."""
        self.to_target: dict[Slot, Slot] = {}
        self._points: dict[Slot, list[SyncPoint]] = {}
        self._notes: dict[Slot, str] = {}
        self._known = 0
        self.refresh()
        for side, graph in enumerate(self.graphs):
            for slot, whole in graph.steps():
                self.explain_inside(side, slot, str(whole), final=True)

    @classmethod
    def of(cls, matching: Matching) -> Workspace:
        """The workspace of a matching, with all pairs that it has by now."""
        found = matching.workspace
        if not isinstance(found, cls):
            found = matching.workspace = cls(matching)
        found.refresh()
        return found

    @cached_property
    def prints(self) -> Fingerprints:
        """Fingerprints of both sides."""
        return Fingerprints(*self.graphs)

    @cached_property
    def layouts(self) -> Layouts:
        """Views between the two sides."""
        return Layouts(self.prints)

    @cached_property
    def lines(self) -> Lines:
        """Lines of the user's code that both sides know."""
        return Lines(self.matching)

    def denied(self, target: OpKey, reference: OpKey) -> bool:
        """Whether the lines of two small ops speak against a pair, and values not for it."""
        ops = (
            self.graphs[side].ops[self.graphs[side].position[key]]
            for side, key in enumerate((target, reference))
        )
        return self.lines.deny(*ops) and not self.prints.equal(Slot(target), Slot(reference))

    def refresh(self) -> None:
        """Take in what other matchers have paired."""
        pairs = self.matching.pairs
        if len(pairs) == self._known:
            return
        self.to_reference.clear()
        self.to_target.clear()
        self._points.clear()
        for pair in pairs:
            self._note(pair)
        self._known = len(pairs)

    def _note(self, pair: SyncPoint) -> None:
        if pair.target.role not in (Role.OUTPUT, Role.MODEL_INPUT, Role.STATE):
            return
        if pair.reference.role is not pair.target.role:
            return
        target = Slot(pair.target.op, pair.target.index, pair.target.role)
        reference = Slot(pair.reference.op, pair.reference.index, pair.reference.role)
        self.to_reference.setdefault(target, reference)
        self._points.setdefault(target, []).append(pair)
        self.to_target.setdefault(reference, target)

    def free(self, side: int, slot: Slot) -> bool:
        """Whether a recorded slot may still be paired."""
        tensors = self.graphs[side].slots.get(slot)
        if not tensors or slot in (self.to_reference, self.to_target)[side]:
            return False
        asked = (self.matching.free_target, self.matching.free_reference)[side]
        return any(asked(tensor.key) for tensor in tensors)

    def admit(self, side: int, slot: Slot) -> bool:
        """Take back a slot that was taken for a mere step of another op; whether it is free now."""
        for tensor in self.graphs[side].slots.get(slot, ()):
            self.matching.admit(SIDES[side], tensor.key)
        return self.free(side, slot)

    def is_done(self) -> bool:
        """Whether one side has nothing left that may be paired."""
        return not all(
            any(slot.role is Role.OUTPUT and self.free(side, slot) for slot in graph.slots)
            for side, graph in enumerate(self.graphs)
        )

    def pair(
        self,
        target: Slot,
        reference: Slot,
        evidence: str,
        confidence: float,
        note: str = "",
        view: View | None = None,
        kind: EvidenceKind = EvidenceKind.OTHER,
    ) -> bool:
        """Make sync points of two slots, one for each part that both have."""
        if not (self.free(TARGET, target) and self.free(REFERENCE, reference)):
            return False
        theirs = {t.key.part: t.key for t in self.graphs[REFERENCE].slots[reference]}
        made = False
        for tensor in self.graphs[TARGET].slots[target]:
            other = theirs.get(tensor.key.part)
            if other is not None:
                pair = SyncPoint(
                    tensor.key,
                    other,
                    evidence,
                    confidence=confidence,
                    kind=kind,
                    view=view or View(),
                    note=note,
                )
                if self.matching.add(pair):
                    self._points.setdefault(target, []).append(pair)
                    made = True
        if made:
            self.to_reference[target] = reference
            self.to_target[reference] = target
            self._known = len(self.matching.pairs)
        return made

    def unpair(self, target: Slot) -> None:
        """Free a slot and its partner again; `settle` then takes their sync points out."""
        reference = self.to_reference.pop(target, None)
        if reference is not None:
            self.to_target.pop(reference, None)
        for point in self._points.pop(target, ()):
            self.matching.release(point)

    def settle(self) -> None:
        """Take out what was unpaired and write down what was noted, all at once."""
        said = {}
        for target, text in self._notes.items():
            for point in self._points.get(target, ()):
                said[point] = replace(point, note=text)
        self._notes.clear()
        self.matching.exchange(said)
        self._known = -1
        self.refresh()

    def evidence(self, target: Slot) -> str:
        """What speaks for the pair of a target slot."""
        points = self._points.get(target)
        return points[0].evidence if points else ""

    def evidence_kind(self, target: Slot) -> EvidenceKind:
        """What the pair of a target slot rests on."""
        points = self._points.get(target)
        return points[0].kind if points else EvidenceKind.OTHER

    def view(self, target: Slot) -> View:
        """The view through which the pair of a target slot is compared."""
        points = self._points.get(target)
        return points[0].view if points else View()

    def note(self, target: Slot, text: str) -> None:
        """Say what is odd about the pair of a target slot; `settle` writes it down."""
        self._notes[target] = text

    def hide(self, side: int, slot: Slot) -> None:
        """Say that a slot has no partner because the other side's op holds more than it."""
        keys = ((SIDES[side], tensor.key) for tensor in self.graphs[side].slots.get(slot, ()))
        self.matching.hidden.update(keys)

    def explain(
        self, side: int, slot: Slot, detail: str, final: bool = False, inside: str = ""
    ) -> None:
        """Say why a slot has no partner."""
        say = self.matching.refuse if final else self.matching.explain
        for tensor in self.graphs[side].slots.get(slot, ()):
            if self.free(side, slot):
                say(SIDES[side], tensor.key, Reason(ReasonCode.NO_COUNTERPART, detail), inside)

    def explain_inside(self, side: int, slot: Slot, whole: str, final: bool = False) -> None:
        """Say that a slot has no partner because it is a piece of one op."""
        self.explain(side, slot, f"inside {whole}", final, whole)
