"""Matcher along graph edges, from paired inputs to readers and back: skips ops of one side, tells
equal readers apart, pairs after a declared activation or bias.

An op whose inputs are all paired is paired with the op of the same class that reads the partners of
those inputs. If there are several, parameters decide, then values; if neither decides, they stay
unpaired. Views, casts and copies are skipped: their input counts. The work grows with the number of
edges: every op is filed once under its inputs and never compared with all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan

from syncpoint.matching.fingerprints import choose_by_margin
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.matchers.output_ops import pair_by_model_output
from syncpoint.matching.op_kinds import COMMUTATIVE, RECURRENT, TRANSPARENT, op_class
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.model import Op, OpKey, Role

_READING_PAIRED = "same kind, reading paired tensors"

_MAX_WEIGHT_SHRINKAGE = 8
"""A weight of so many times fewer elements is that of another op."""

Key = tuple[object, ...]


class StructureMatcher:
    """Pairs ops by their inputs and their readers."""

    name = "structure"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Add the pairs that follow from those of earlier matchers."""
        work = Workspace.of(matching)
        if all(graph.has_edges for graph in work.graphs):
            walk_edges(work)
            if pair_by_model_output(work):
                walk_edges(work)
        return ()


def _with_bias(graph: SlotGraph, slot: Slot) -> Slot:
    """The slot with the bias of a product, if another op adds it; else the slot itself."""
    position = graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
    return next(iter(graph.results(position)), slot) if position in graph.completed else slot


def _with_declared_step(
    target_graph: SlotGraph, target: Slot, reference_graph: SlotGraph, reference: Slot
) -> Slot:
    """The reference slot after the activation or the factor that a fused target op declares, if the
    reference has this step next; else the slot itself."""
    op = target_graph.op_of(target)
    activation = op.attributes.get("activation") if op is not None else None
    reader = reference_graph.only_reader(reference)
    if op is None or reader is None:
        return reference
    is_next = isinstance(activation, str) and bool(activation)
    is_next = is_next and reference_graph.classes[reader] == op_class(str(activation))
    own_op = reference_graph.op_of(reference)
    if not is_next and own_op is not None and "alpha" not in own_op.attributes:
        is_next = _factor_of(reference_graph, reader) == _declared_factor(op)
    return next(iter(reference_graph.outputs(reader)), reference) if is_next else reference


def _declared_factor(op: Op) -> float | None:
    """The factor that a fused matrix product applies to its result, to six digits."""
    factor = op.attributes.get("alpha")
    if not isinstance(factor, int | float) or op_class(op.type) != "matmul" or factor == 1:
        return None
    return float(f"{factor:.5e}")


def _factor_of(graph: SlotGraph, position: int) -> float:
    """The number that an op multiplies its only operand by, to six digits; nan if it does not."""
    number = graph.ops[position].attributes.get("other")
    if not isinstance(number, int | float) or len(graph.reads[position]) != 1 or not number:
        return nan
    factor = {"mul": float(number), "div": 1 / number}.get(graph.classes[position], nan)
    return float(f"{factor:.5e}")


def _has_far_smaller_weight(
    target_graph: SlotGraph, target: int, reference_graph: SlotGraph, reference: int
) -> bool:
    """Whether a convolution or matrix product has only a fraction of the reference's weights, as a
    norm that was turned into a convolution has. Layouts may pad weights and pack integers."""
    if target_graph.classes[target] not in ("conv", "matmul"):
        return False
    counts = [
        max((graph.parameter_count(e) for e in graph.parameters(position)), default=0)
        for graph, position in ((target_graph, target), (reference_graph, reference))
    ]
    return 0 < counts[0] * _MAX_WEIGHT_SHRINKAGE <= counts[1]


def walk_edges(work: Workspace) -> None:
    """Walk strictly first, then skip ops that one side lacks, then ignore the order of operands, so
    that ops with swapped operands are paired too."""
    for loose, ordered in ((False, True), (True, True), (True, False)):
        if work.is_done():
            return
        EdgeWalk(work, loose, ordered).run()


@dataclass
class _Bucket:
    """Ops of both sides of one class that read the same tensors."""

    members: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))


class EdgeWalk:
    """One walk along the edges, starting from all pairs."""

    def __init__(self, work: Workspace, loose: bool, ordered: bool = True) -> None:
        self.work = work
        self.loose = loose
        self.ordered = ordered
        self.graphs = work.graphs
        self._labels: tuple[dict[Slot, Slot], dict[Slot, Slot]] = ({}, {})
        """For each side: root slot -> root slot of the target that is paired with it."""
        self._readers = tuple(self._readers_by_root(graph) for graph in self.graphs)
        self._buckets: dict[Key, _Bucket] = {}
        self._filed: tuple[dict[int, Key], dict[int, Key]] = ({}, {})
        self._dirty: dict[Key, None] = {}
        self._waiting: list[tuple[Slot, Slot]] = []
        self._parameter_partners = {
            p.target.op: p.reference.op
            for p in work.matching.pairs
            if p.target.role is Role.PARAMETER and p.reference.role is Role.PARAMETER
        }
        self.filed_count = 0
        """Number of ops that were filed; grows with the number of edges."""

    def run(self) -> None:
        """Repeat until no more pairs follow."""
        for target, reference in list(self.work.to_reference.items()):
            self._label_pair(target, reference)
        while True:
            self._file_readers()
            if not self._pair_filed_ops():
                return

    def pair_unpaired_ops(self, target: int, reference: int, evidence: str) -> bool:
        """Pair two ops by other evidence than their inputs, if nothing has paired them and their
        results are of one size; return whether any pair was added."""
        slots = (
            self.graphs[TARGET].results(target)[:1],
            self.graphs[REFERENCE].results(reference)[:1],
        )
        counts = {graph.count(s) for graph, ss in zip(self.graphs, slots, strict=True) for s in ss}
        is_open = self._is_open(TARGET, target) and self._is_open(REFERENCE, reference)
        return is_open and len(counts) == 1 and self._pair_ops(target, reference, evidence, 0.9)

    def root(self, side: int, slot: Slot) -> Slot:
        """The slot before views; in a loose walk also before ops that may have been absorbed."""
        graph = self.graphs[side]
        slot = graph.root(slot)
        if not self.loose:
            return slot
        paired = (self.work.to_reference, self.work.to_target)[side]
        for _ in range(4):
            position = graph.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
            if position < 0 or slot in paired or not graph.is_unary(position):
                break
            slot = graph.root(graph.reads[position][0])
        return slot

    def _readers_by_root(self, graph: SlotGraph) -> dict[Slot, list[int]]:
        side = self.graphs.index(graph)
        readers: dict[Slot, list[int]] = {}
        for position, reads in enumerate(graph.reads):
            for root in {self.root(side, slot) for slot in reads}:
                readers.setdefault(root, []).append(position)
        return readers

    def _label_pair(self, target: Slot, reference: Slot) -> None:
        roots = self.root(TARGET, target), self.root(REFERENCE, reference)
        labels = [self._labels[side].get(root) for side, root in enumerate(roots)]
        if labels[0] is not None or labels[1] is not None:
            # The first pair of a root counts; a second pair may contradict it.
            return
        for side, root in enumerate(roots):
            self._labels[side][root] = roots[0]
        self._waiting.append(roots)

    def _file_readers(self) -> None:
        while self._waiting:
            for side, root in enumerate(self._waiting.pop()):
                for position in self._readers[side].get(root, ()):
                    self._file(side, position)

    def _file(self, side: int, position: int) -> None:
        """File an op under its inputs once all of them are paired."""
        graph = self.graphs[side]
        if position in self._filed[side] or position in graph.completing:
            return
        if not graph.live[position]:
            return
        labels = [self._labels[side].get(self.root(side, slot)) for slot in graph.reads[position]]
        if None in labels:
            return
        self.filed_count += 1
        kind = graph.classes[position]
        first = next(iter(graph.results(position)), None)
        count = graph.count(first) if first is not None else -1
        shape = graph.shape(first) if first is not None and kind in TRANSPARENT else None
        is_any_order = kind in COMMUTATIVE or not self.ordered
        inputs = tuple(sorted(labels, key=str)) if is_any_order else tuple(labels)
        key: Key = (kind, inputs, count, shape)
        self._filed[side][position] = key
        self._buckets.setdefault(key, _Bucket()).members[side].append(position)
        self._dirty[key] = None

    def _pair_filed_ops(self) -> bool:
        """Pair the filed ops; return whether any pair was added."""
        has_paired = False
        for key in list(self._dirty):
            del self._dirty[key]
            bucket = self._buckets[key]
            targets, references = (
                [position for position in bucket.members[side] if self._is_open(side, position)]
                for side in (TARGET, REFERENCE)
            )
            if targets and references:
                has_paired |= self._pair_bucket(targets, references)
        if not has_paired:
            has_paired = self._pair_inputs()
        return has_paired

    def _is_open(self, side: int, position: int) -> bool:
        outputs = self.graphs[side].results(position)
        return any(self.work.is_free(side, slot) for slot in outputs)

    def _pair_bucket(self, targets: list[int], references: list[int]) -> bool:
        """Pair ops that read the same tensors; return whether any pair was added."""
        if len(targets) == 1 and len(references) == 1:
            if not self.ordered and len(self.graphs[TARGET].reads[targets[0]]) > 1:
                return self._pair_ops(
                    targets[0], references[0], f"{_READING_PAIRED} in another order", 0.6
                )
            return self._pair_ops(targets[0], references[0], _READING_PAIRED, 0.85)
        has_paired = False
        for target, reference, reason in self._distinguish(targets, references):
            has_paired |= self._pair_ops(target, reference, f"{_READING_PAIRED}; {reason}", 0.85)
        open_targets = [target for target in targets if self._is_open(TARGET, target)]
        open_references = [
            reference for reference in references if self._is_open(REFERENCE, reference)
        ]
        if has_paired and len(open_targets) == 1 and len(open_references) == 1:
            has_paired |= self._pair_ops(
                open_targets[0], open_references[0], f"{_READING_PAIRED}; the only one left", 0.75
            )
        return has_paired

    def _distinguish(
        self, targets: list[int], references: list[int]
    ) -> Iterable[tuple[int, int, str]]:
        """Pairs among ops that read the same tensors: by parameters, else by values."""
        by_parameters = self._match_by_parameters(targets, references)
        if by_parameters:
            yield from (
                (target, reference, "the same parameters") for target, reference in by_parameters
            )
            return
        if len(targets) * len(references) > 4096:
            return
        target_slots = [self.graphs[TARGET].results(target)[0] for target in targets]
        reference_slots = [self.graphs[REFERENCE].results(reference)[0] for reference in references]
        table = [
            [
                self.work.view_selector.find_best_view(target_slot, reference_slot)[0]
                for reference_slot in reference_slots
            ]
            for target_slot in target_slots
        ]
        for i, j in choose_by_margin(table, self.work.fingerprints.tolerance):
            yield targets[i], references[j], "equal values"
        are_views = self.graphs[TARGET].classes[targets[0]] in TRANSPARENT
        if are_views and len(targets) == len(references):
            yield from (
                (target, reference, "in order")
                for target, reference in zip(targets, references, strict=True)
            )

    def _pair_ops(self, target: int, reference: int, evidence: str, confidence: float) -> bool:
        if self.work.is_denied(
            self.graphs[TARGET].ops[target].key, self.graphs[REFERENCE].ops[reference].key
        ):
            return False
        target_graph, reference_graph = self.graphs
        if _has_far_smaller_weight(target_graph, target, reference_graph, reference):
            return False
        kind = EvidenceKind.STRUCTURE
        if target in target_graph.completed and reference in reference_graph.completed:
            # Both sides have the product without bias: it is a pair of its own.
            products = target_graph.outputs(target)[:1], reference_graph.outputs(reference)[:1]
            for target_slot, reference_slot in zip(*products, strict=False):
                self.work.pair(target_slot, reference_slot, evidence, confidence, kind=kind)
        has_paired = False
        by_index = {slot.index: slot for slot in reversed(reference_graph.results(reference))}
        for slot in target_graph.results(target):
            partner = by_index.get(slot.index)
            if partner is None:
                continue
            partner = _with_declared_step(target_graph, slot, reference_graph, partner)
            if self.work.pair(slot, partner, evidence, confidence, kind=kind):
                has_paired = True
                self._label_pair(slot, partner)
        return has_paired

    def _pair_inputs(self) -> bool:
        """Pair the unlabeled inputs at the same index of paired ops of one class."""
        has_paired = False
        target_graph, reference_graph = self.graphs
        for target, reference in list(self.work.to_reference.items()):
            for roots in self._unlabeled_inputs(target, reference):
                slot = _with_bias(target_graph, roots[0])
                other = _with_bias(reference_graph, roots[1])
                if not self._can_be_one_input(slot, other):
                    continue
                other = _with_declared_step(target_graph, slot, reference_graph, other)
                if target_graph.count(slot) != reference_graph.count(other):
                    continue
                if self.work.pair(slot, other, "same kind, read by paired ops", 0.8):
                    self._label_pair(slot, other)
                    has_paired = True
        return has_paired

    def _can_be_one_input(self, target: Slot, reference: Slot) -> bool:
        """Whether the inputs of two paired ops at one index may be a pair: results of one kind, or
        equal ones of an op that is several ops on the other side, as an LSTM is."""
        kinds = self.graphs[TARGET].kind_of(target), self.graphs[REFERENCE].kind_of(reference)
        if kinds[0] == kinds[1]:
            return True
        return bool(RECURRENT.intersection(kinds)) and self.work.fingerprints.are_equal(
            target, reference
        )

    def _unlabeled_inputs(self, target: Slot, reference: Slot) -> list[tuple[Slot, Slot]]:
        """The roots of the inputs of two paired ops of one class, where neither has a label."""
        target_graph, reference_graph = self.graphs
        target_position = target_graph.position.get(target.op, -1)
        reference_position = reference_graph.position.get(reference.op, -1)
        if target_position < 0 or reference_position < 0:
            return []
        kind = target_graph.classes[target_position]
        target_reads = target_graph.reads[target_position]
        reference_reads = reference_graph.reads[reference_position]
        if kind != reference_graph.classes[reference_position]:
            return []
        if len(target_reads) != len(reference_reads):
            return []
        roots = [
            (self.root(TARGET, slot), self.root(REFERENCE, other))
            for slot, other in zip(target_reads, reference_reads, strict=True)
        ]
        unlabeled = [pair for pair in roots if self._is_unlabeled(*pair)]
        return [] if kind in COMMUTATIVE and len(unlabeled) != 1 else unlabeled

    def _match_by_parameters(
        self, targets: list[int], references: list[int]
    ) -> list[tuple[int, int]]:
        """Pair ops by the parameters they read, if those are paired."""
        if not self._parameter_partners:
            return []
        by_parameters: dict[tuple[OpKey, ...], list[int]] = {}
        for reference in references:
            parameters = tuple(edge.op for edge in self.graphs[REFERENCE].parameters(reference))
            by_parameters.setdefault(parameters, []).append(reference)
        matched = []
        for target in targets:
            edges = [edge.op for edge in self.graphs[TARGET].parameters(target)]
            partners = tuple(
                self._parameter_partners[edge] for edge in edges if edge in self._parameter_partners
            )
            candidates = by_parameters.get(partners, []) if len(partners) == len(edges) else []
            if edges and len(candidates) == 1:
                matched.append((target, candidates[0]))
        return matched if len({reference for _, reference in matched}) == len(matched) else []

    def _is_unlabeled(self, target: Slot, reference: Slot) -> bool:
        return target not in self._labels[TARGET] and reference not in self._labels[REFERENCE]
