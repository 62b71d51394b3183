"""What matchers share during one matching (`Workspace`): graphs, fingerprints, views; pair and
unpair slots, note or explain a slot without partner."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from syncpoint.matching.evidence.source_lines import SourceLines
from syncpoint.matching.fingerprints import Fingerprints
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.view_selection import ViewSelector
from syncpoint.matching.views import View
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey, Role

TARGET, REFERENCE = 0, 1
SIDES = ("target", "reference")


class Workspace:
    """Graphs, fingerprints, views and pairs by slot; built once for a matching, on first use."""

    def __init__(self, matching: Matching) -> None:
        self.matching = matching
        self.graphs = (SlotGraph(matching.target), SlotGraph(matching.reference))
        self.to_reference: dict[Slot, Slot] = {}
        """Paired slots, from target to reference."""
        self.to_target: dict[Slot, Slot] = {}
        self._points: dict[Slot, list[SyncPoint]] = {}
        self._notes: dict[Slot, str] = {}
        self._registered = (0, 0)
        """Number of pairs and of exchanges when the pairs were registered."""
        self.refresh()
        for side, graph in enumerate(self.graphs):
            for slot, op_name in graph.inner_slots():
                self.explain_inside(side, slot, str(op_name), final=True)

    @classmethod
    def of(cls, matching: Matching) -> Workspace:
        """The workspace of a matching, with all pairs so far."""
        workspace = matching.workspace
        if not isinstance(workspace, cls):
            workspace = matching.workspace = cls(matching)
        workspace.refresh()
        return workspace

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """Fingerprints of both sides."""
        return Fingerprints(*self.graphs)

    @cached_property
    def view_selector(self) -> ViewSelector:
        """Finds views between the two sides."""
        return ViewSelector(self.fingerprints)

    @cached_property
    def source_lines(self) -> SourceLines:
        """Source lines that both sides record."""
        return SourceLines(self.matching)

    @cached_property
    def output_partners(self) -> dict[Slot, Slot]:
        """The target slots that are model outputs under another name, each with the reference slot
        that is the same output. Model outputs are paired before this is first used."""
        slots = [graph.model_output_slots() for graph in self.graphs]
        return {
            slots[TARGET][pair.target]: slots[REFERENCE][pair.reference]
            for pair in self.matching.pairs
            if pair.target in slots[TARGET] and pair.reference in slots[REFERENCE]
        }

    def is_denied(self, target: OpKey, reference: OpKey) -> bool:
        """Whether the source lines of two small ops contradict a pair and their values differ."""
        ops = (
            self.graphs[side].ops[self.graphs[side].position[key]]
            for side, key in enumerate((target, reference))
        )
        return self.source_lines.contradict(*ops) and not self.fingerprints.are_equal(
            Slot(target), Slot(reference)
        )

    def refresh(self) -> None:
        """Add the pairs that other matchers have found."""
        pairs = self.matching.pairs
        if self._registered == (len(pairs), self.matching.exchange_count):
            return
        self.to_reference.clear()
        self.to_target.clear()
        self._points.clear()
        for pair in pairs:
            self._register(pair)
        self._registered = (len(pairs), self.matching.exchange_count)

    def _register(self, pair: SyncPoint) -> None:
        if pair.target.role not in (Role.OUTPUT, Role.MODEL_INPUT, Role.STATE):
            return
        if pair.reference.role is not pair.target.role:
            return
        target = Slot(pair.target.op, pair.target.index, pair.target.role)
        reference = Slot(pair.reference.op, pair.reference.index, pair.reference.role)
        self.to_reference.setdefault(target, reference)
        self._points.setdefault(target, []).append(pair)
        self.to_target.setdefault(reference, target)

    def is_free(self, side: int, slot: Slot) -> bool:
        """Whether a slot is recorded and may still be paired."""
        tensors = self.graphs[side].slots.get(slot)
        if not tensors or slot in (self.to_reference, self.to_target)[side]:
            return False
        is_tensor_free = (self.matching.free_target, self.matching.free_reference)[side]
        return any(is_tensor_free(tensor.key) for tensor in tensors)

    def admit(self, side: int, slot: Slot) -> bool:
        """Admit a slot that was refused as a step of another op; return whether it is free now."""
        for tensor in self.graphs[side].slots.get(slot, ()):
            self.matching.admit(SIDES[side], tensor.key)
        return self.is_free(side, slot)

    def is_done(self) -> bool:
        """Whether one side has no free slot left."""
        return not all(
            any(slot.role is Role.OUTPUT and self.is_free(side, slot) for slot in graph.slots)
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
        """Pair two slots, part by part, and return whether any sync point was added."""
        if not (self.is_free(TARGET, target) and self.is_free(REFERENCE, reference)):
            return False
        reference_keys = {t.key.part: t.key for t in self.graphs[REFERENCE].slots[reference]}
        is_paired = False
        for tensor in self.graphs[TARGET].slots[target]:
            reference_key = reference_keys.get(tensor.key.part)
            if reference_key is not None:
                pair = SyncPoint(
                    tensor.key,
                    reference_key,
                    evidence,
                    confidence=confidence,
                    kind=kind,
                    view=view or View(),
                    note=note,
                )
                if self.matching.add(pair):
                    self._points.setdefault(target, []).append(pair)
                    is_paired = True
        if is_paired:
            self.to_reference[target] = reference
            self.to_target[reference] = target
            self._registered = (len(self.matching.pairs), self.matching.exchange_count)
        return is_paired

    def unpair(self, target: Slot) -> None:
        """Free a slot and its partner; `apply_changes` then removes their sync points."""
        reference = self.to_reference.pop(target, None)
        if reference is not None:
            self.to_target.pop(reference, None)
        for point in self._points.pop(target, ()):
            self.matching.release(point)

    def apply_changes(self) -> None:
        """Remove the unpaired sync points and write the notes."""
        annotated = {}
        for target, text in self._notes.items():
            for point in self._points.get(target, ()):
                annotated[point] = replace(point, note=text)
        self._notes.clear()
        self.matching.exchange(annotated)
        self.refresh()

    def evidence(self, target: Slot) -> str:
        """The evidence for the pair of a target slot."""
        points = self._points.get(target)
        return points[0].evidence if points else ""

    def evidence_kind(self, target: Slot) -> EvidenceKind:
        """The kind of evidence for the pair of a target slot."""
        points = self._points.get(target)
        return points[0].kind if points else EvidenceKind.OTHER

    def view(self, target: Slot) -> View:
        """The view of the pair of a target slot."""
        points = self._points.get(target)
        return points[0].view if points else View()

    def note(self, target: Slot, text: str) -> None:
        """Set a note on the pair of a target slot; `apply_changes` writes it."""
        self._notes[target] = text

    def mark_hidden(self, side: int, slot: Slot) -> None:
        """Mark a slot as fused or folded into an op of the other side."""
        keys = ((SIDES[side], tensor.key) for tensor in self.graphs[side].slots.get(slot, ()))
        self.matching.hidden.update(keys)

    def explain(
        self, side: int, slot: Slot, detail: str, final: bool = False, inside: str = ""
    ) -> None:
        """Set the reason why a slot has no partner; `final` excludes it from the matching."""
        set_reason = self.matching.refuse if final else self.matching.explain
        for tensor in self.graphs[side].slots.get(slot, ()):
            if self.is_free(side, slot):
                set_reason(
                    SIDES[side], tensor.key, Reason(ReasonCode.NO_COUNTERPART, detail), inside
                )

    def explain_inside(self, side: int, slot: Slot, op_name: str, final: bool = False) -> None:
        """Set the reason that a slot is an intermediate value of one op."""
        self.explain(side, slot, f"inside {op_name}", final, op_name)
