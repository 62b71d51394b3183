"""Groups of small ops that one reference op was decomposed into: find the op that returns its
output, split groups, explain the other outputs.

Its output is paired with the reference; the outputs of the other ops are intermediate values.
"""

from __future__ import annotations

import re
from collections.abc import Container

from syncpoint.matching.corrections.moved_biases import find_slot_with_bias
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import TRANSPARENT, op_class
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Role

_MAX_SPAN_OPS = 4096
"""Maximum distance of ops to examine, so that the work does not grow with the square."""
_PASS_THROUGH = TRANSPARENT | {"quantize", "dequantize"}
_NUMBER = re.compile(r"(?P<stem>.+?)(?:_(?P<number>\d+))?")


class LoweredOp:
    """Ops of one side that were lowered from one op of the program."""

    def __init__(self, name: str, kind: str, positions: list[int], names: set[str]) -> None:
        self.name = name
        self.kind = kind
        self.positions = positions
        self.names = names


def pair_completed_op(
    work: Workspace,
    target: LoweredOp,
    reference: LoweredOp,
    evidence: str,
    confidence: float,
    kind: EvidenceKind = EvidenceKind.ORIGIN,
) -> None:
    """Pair the output that completes a reference op; earlier outputs are intermediate values."""
    references = work.graphs[REFERENCE].outputs(reference.positions[-1])
    if not references:
        return
    if len(references) > 1 and len(target.positions) > 1:
        _pair_several_outputs(work, target, reference, references, evidence, confidence, kind)
        return
    positions = _find_equal_piece(work, target, references[0])
    if positions is None:
        return
    target.positions = positions
    ending = _choose_ending(work, target, reference, references, kind)
    if ending is None:
        return
    before_bias = _outputs_before_bias(work.graphs[TARGET], ending.position, target, reference)
    for slot in before_bias:
        work.explain(TARGET, slot, f"inside {reference.name}, before its bias", final=True)
    if not before_bias and _pair_ending(work, ending, evidence, confidence, kind):
        inner = [position for position in target.positions if position != ending.position]
        _explain_inner(work, reference, inner)


def _choose_ending(
    work: Workspace,
    target: LoweredOp,
    reference: LoweredOp,
    references: list[Slot],
    evidence_kind: EvidenceKind,
) -> _Ending | None:
    """The lowered op that completes the reference op; None if no op can. An output of another size
    can only be that of an op whose origin is known."""
    target_graph, reference_graph = work.graphs
    endings = [_Ending(work, target, position, references) for position in target.positions]
    candidates = [ending for ending in endings if ending.fits and ending.is_read_outside]
    if (
        not candidates
        and evidence_kind is EvidenceKind.ORIGIN
        and len(endings) == 1
        and op_class(target_graph.ops[endings[0].position].type) == reference.kind
    ):
        # Copies of constants of different size are copies of different constants, such as a mask
        # and its fill value. A wrong constant shows downstream.
        is_live = reference_graph.live[reference.positions[-1]]
        candidates = [
            ending
            for ending in endings
            if ending.computes or target_graph.live[ending.position] or is_live
        ]
    # The cast of another ending is not the output of the op, unless only the cast is read.
    candidate_positions = {ending.position for ending in candidates}
    return max(
        candidates,
        key=lambda ending: (
            ending.same_shape,
            ending.computes or ending.root not in candidate_positions,
            ending.position,
        ),
        default=None,
    )


def _pair_ending(
    work: Workspace, ending: _Ending, evidence: str, confidence: float, kind: EvidenceKind
) -> bool:
    """Pair the output of the last op, with its bias if another op adds that. Return whether
    anything was paired."""
    is_paired = False
    for slot, reference in _move_to_scaled(work, ending.pairs):
        biased = find_slot_with_bias(work, slot, reference)
        if biased is not None:
            text = evidence if biased == slot else f"{evidence}, with its bias"
            is_paired |= work.pair(biased, reference, text, confidence, kind=kind)
    return is_paired


def _explain_inner(
    work: Workspace, reference: LoweredOp, positions: list[int], outputs: Container[Slot] = ()
) -> None:
    """Explain the outputs of ops, except those in `outputs`, as intermediate values."""
    graph = work.graphs[TARGET]
    for slot in (slot for position in positions for slot in graph.outputs(position)):
        if slot not in outputs:
            work.explain_inside(TARGET, slot, reference.name, final=True)


def _move_to_scaled(work: Workspace, pairs: list[tuple[Slot, Slot]]) -> list[tuple[Slot, Slot]]:
    """Move a pair to the only reader of the target if the values are equal only there.

    A compiler may give the last step of an op the name of another op: the division of a mean, or
    the multiplication at the end of a hardswish.
    """
    if len(pairs) != 1:
        return pairs
    graph, (slot, reference) = work.graphs[TARGET], pairs[0]
    reader = graph.only_reader(slot)
    if reader is None or graph.classes[reader] not in ("mul", "div"):
        return pairs
    outputs = graph.outputs(reader)
    if len(outputs) != 1 or work.fingerprints.are_equal(slot, reference):
        return pairs
    if not work.fingerprints.are_equal(outputs[0], reference):
        return pairs
    return [(outputs[0], reference)] if work.admit(TARGET, outputs[0]) else pairs


def _find_equal_piece(work: Workspace, target: LoweredOp, reference: Slot) -> list[int] | None:
    """The connected ops of a lowered op whose output equals the reference; None if values do not
    decide. Compilers that merge equal constants swap the names of steps of equal ops. A lowered op
    then lies in two places, and one depends on the other through ops outside of it."""
    graph = work.graphs[TARGET]
    pieces = _split_pieces(graph, target.positions)
    if len(pieces) < 2:
        return target.positions
    equal_pieces = []
    for piece in pieces:
        outputs = [s for position in piece for s in graph.outputs(position)]
        same_size = [
            s for s in outputs if graph.count(s) == work.graphs[REFERENCE].count(reference)
        ]
        if any(
            work.view_selector.find_best_view(s, reference)[0] <= work.fingerprints.tolerance
            for s in same_size
        ):
            equal_pieces.append(piece)
    return equal_pieces[0] if len(equal_pieces) == 1 else None


def _split_pieces(graph: SlotGraph, positions: list[int]) -> list[list[int]]:
    """Split a lowered op in two if its later ops depend on the earlier ones only through others."""
    span = positions[-1] - positions[0]
    if len(positions) < 3 or span < len(positions) or span > _MAX_SPAN_OPS:
        return [positions]
    own_positions = set(positions)
    early: set[int] = set()
    through: set[int] = set()
    """Casts and the like between the ops, which compute nothing."""
    outside: set[int] = set()
    for position in range(positions[0], positions[-1] + 1):
        producers = {
            graph.position.get(s.op, -1) for s in graph.reads[position] if s.role is Role.OUTPUT
        }
        if position in own_positions and not producers & outside:
            early.add(position)
        elif (
            position not in own_positions
            and producers
            and producers <= early | through
            and graph.classes[position] in _PASS_THROUGH
        ):
            through.add(position)
        elif producers & (early | through | outside):
            outside.add(position)
    late = [position for position in positions if position not in early]
    # An op that reads an early output and one from outside has a skip connection.
    reads = {graph.position.get(s.op, -1) for position in late for s in graph.reads[position]}
    return [positions] if not late or reads & (early | through) else [sorted(early), late]


def _pair_several_outputs(
    work: Workspace,
    target: LoweredOp,
    reference: LoweredOp,
    references: list[Slot],
    evidence: str,
    confidence: float,
    kind: EvidenceKind,
) -> None:
    """Pair the outputs of an op with several outputs that became several ops, as unbind becomes
    slices. Its outputs are the slots that are read outside, if there are as many. The numbers in
    their names give the order (`getitem`, `getitem_1`), since runtimes reorder branches."""
    target_graph, reference_graph = work.graphs
    outputs = _sort_by_number(_outputs_leaving(target_graph, target))
    if len(outputs) != len(references):
        return
    pairs = list(zip(outputs, references, strict=True))
    if any(
        target_graph.count(slot) != reference_graph.count(reference_slot)
        for slot, reference_slot in pairs
    ):
        return
    evidence, confidence = f"{evidence} and number", confidence - 0.05
    is_paired = [
        work.pair(slot, reference_slot, evidence, confidence, kind=kind)
        for slot, reference_slot in pairs
    ]
    if any(is_paired):
        _explain_inner(work, reference, target.positions, outputs)


def _outputs_leaving(graph: SlotGraph, lowered: LoweredOp) -> list[Slot]:
    """The outputs of a lowered op that are read outside of it, or by no op."""
    group = set(lowered.positions)
    slots = (slot for position in lowered.positions for slot in graph.outputs(position))
    return [slot for slot in slots if _is_read_outside(graph, slot, group)]


def _is_read_outside(graph: SlotGraph, slot: Slot, group: set[int]) -> bool:
    """Whether a slot is read outside of a group of ops, or by no op."""
    readers = graph.consumers.get(slot)
    return not readers or any(reader not in group for reader in readers)


def _sort_by_number(slots: list[Slot]) -> list[Slot]:
    """Sort slots of ops whose names differ only in their number; empty if they differ in more."""
    numbered = [match for slot in slots if (match := _NUMBER.fullmatch(slot.op.op))]
    if len(numbered) != len(slots) or len({match["stem"] for match in numbered}) != 1:
        return []
    numbers = [int(match["number"] or 0) for match in numbered]
    by_number = sorted(zip(numbers, slots, strict=True), key=lambda pair: pair[0])
    return [slot for _, slot in by_number]


def _outputs_before_bias(
    graph: SlotGraph, position: int, target: LoweredOp, reference: LoweredOp
) -> list[Slot]:
    """The slots of a product before its bias, and their copies, if an op that reads them has the
    same origin and adds the bias. Empty if no such op follows."""
    # A product of two results has no bias.
    if graph.classes[position] not in ("matmul", "conv") or len(graph.reads[position]) != 1:
        return []
    slots = list(graph.outputs(position))
    has_bias_op = False
    for slot in slots:
        for reader in graph.consumers.get(slot, ()):
            if graph.classes[reader] in TRANSPARENT:
                slots += graph.outputs(reader)
            elif reader not in target.positions and reference.name in graph.ops[reader].origins:
                has_bias_op = True
    return slots if has_bias_op else []


def _filter_by_value_kind(work: Workspace, target: Slot, references: list[Slot]) -> list[Slot]:
    """Those outputs of a reference op that hold floats, integers or booleans as the target does."""
    graphs = work.graphs
    kind = DTYPES[graphs[TARGET].slots[target][0].dtype].kind
    return [
        slot for slot in references if DTYPES[graphs[REFERENCE].slots[slot][0].dtype].kind is kind
    ]


class _Ending:
    """A lowered op as a candidate for the output of the reference op."""

    def __init__(
        self, work: Workspace, target: LoweredOp, position: int, references: list[Slot]
    ) -> None:
        target_graph, reference_graph = work.graphs
        slots = target_graph.outputs(position)
        self.position = position
        only_slot = slots[0] if len(slots) == 1 else None
        of_kind = _filter_by_value_kind(work, only_slot, references) if only_slot else []
        if only_slot and len(references) > 1 and len(of_kind) == 1:
            # An op with several outputs that became one: the argmax of a maximum and its places.
            self.pairs = [(only_slot, of_kind[0])]
        elif len(references) > 1 or len(slots) > 1:
            self.pairs = [
                (slot, reference)
                for slot in slots
                for reference in references
                if slot.index == reference.index
            ]
        else:
            self.pairs = list(zip(slots, references, strict=False))
        group = set(target.positions)
        self.is_read_outside = any(_is_read_outside(target_graph, slot, group) for slot in slots)
        """Whether its output is read outside, or by no op."""
        self.fits = bool(self.pairs) and all(
            target_graph.count(slot) == reference_graph.count(reference)
            for slot, reference in self.pairs
        )
        self.same_shape = all(
            target_graph.shape(slot) == reference_graph.shape(reference)
            for slot, reference in self.pairs
        )
        self.computes = target_graph.classes[position] not in TRANSPARENT
        self.root = target_graph.position.get(target_graph.root(slots[0]).op, -1) if slots else -1
        """Position of the op before views and casts."""
