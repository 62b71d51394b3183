"""During matching, say why a slot has no partner: folded, inside an op (a product before its bias
is added, merged ops), view or copy of a compared slot."""

from __future__ import annotations

from collections import Counter

from syncpoint.matching.evidence.numbered_modules import find_module_names
from syncpoint.matching.evidence.source_lines import source_call_of
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.workspace import REFERENCE, SIDES, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey, Role


def add_unmatched_reasons(work: Workspace) -> None:
    """Add a reason to unpaired slots without one, from the next sync point downstream."""
    paired = (work.to_reference, work.to_target)
    for side in (TARGET, REFERENCE):
        graph = work.graphs[side]
        if not graph.has_edges:
            continue
        next_paired = _next_paired_slots(graph, paired[side])
        inner_ops = _InnerOps(work) if side == TARGET else None
        for slot in graph.slots:
            if slot.role is not Role.OUTPUT or slot in paired[side]:
                continue
            is_uncounted = _is_shown_downstream(graph, slot, next_paired)
            is_uncounted = is_uncounted or _has_compared_copy(graph, slot, paired[side])
            is_uncounted = is_uncounted or graph.count(slot) == 0
            if is_uncounted or (inner_ops and inner_ops.contains(slot, next_paired)):
                keys = ((SIDES[side], t.key) for t in graph.slots[slot])
                work.matching.uncounted.update(keys)
            if not work.is_free(side, slot):
                continue
            if any((SIDES[side], t.key) in work.matching.reasons for t in graph.slots[slot]):
                continue
            _explain_slot(work, side, slot, next_paired.get(slot))
        _hide_first_halves(work, side)
        _explain_parameters(work, side)


def _hide_first_halves(work: Workspace, side: int) -> None:
    """Mark products, and what scales them before their bias is added, as inside the op that adds it
    if that op is compared."""
    graph = work.graphs[side]
    paired = (work.to_reference, work.to_target)[side]
    halves = [*graph.between_halves.items(), *zip(graph.completed, graph.completed, strict=True)]
    for position, first in halves:
        if any(slot in paired for slot in graph.outputs(graph.completed[first])):
            for slot in graph.outputs(position):
                if slot not in paired:
                    work.mark_hidden(side, slot)


def _explain_parameters(work: Workspace, side: int) -> None:
    """Explain unpaired parameters by the op that reads them and the reason of that op."""
    graph, reasons = work.graphs[side], work.matching.reasons
    readers: dict[OpKey, int] = {}
    for position, op in enumerate(graph.ops):
        for edge in op.inputs:
            if edge.role is Role.PARAMETER:
                readers.setdefault(edge.op, position)
    is_free = (work.matching.free_target, work.matching.free_reference)[side]
    for tensor in graph.side.others:
        if tensor.key.role is not Role.PARAMETER or (SIDES[side], tensor.key) in reasons:
            continue
        position = readers.get(tensor.key.op, -1)
        outputs = graph.outputs(position) if position >= 0 else []
        if not outputs or not is_free(tensor.key):
            continue
        reader_reason = reasons.get((SIDES[side], graph.slots[outputs[0]][0].key))
        detail = f"read by {outputs[0].op}" + (
            f", {reader_reason.detail}" if reader_reason and reader_reason.detail else ""
        )
        reason = Reason(ReasonCode.NO_COUNTERPART, detail)
        work.matching.explain(SIDES[side], tensor.key, reason)


def _is_shown_downstream(graph: SlotGraph, slot: Slot, next_paired: dict[Slot, Slot]) -> bool:
    """Whether a slot is a constant, or a view, cast or copy before a compared slot."""
    position = graph.position[slot.op]
    return not graph.live[position] or (
        graph.classes[position] in TRANSPARENT and slot in next_paired
    )


def _has_compared_copy(graph: SlotGraph, slot: Slot, paired: dict[Slot, Slot]) -> bool:
    """Whether a copy of a slot, in another type or layout, is compared."""
    readers = graph.consumers.get(slot, ())
    copies = (copy for reader in readers for copy in graph.outputs(reader))
    return any(graph.roots.get(copy) == graph.root(slot) and copy in paired for copy in copies)


class _InnerOps:
    """Target ops that are steps of one op whose output is compared.

    That op is the common origin of the steps, or a reference op that is the only computing op of
    its source line.
    """

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._modules = find_module_names(work)
        reference = work.graphs[REFERENCE]
        computing = [
            op
            for position, op in enumerate(reference.ops)
            if reference.live[position] and reference.classes[position] not in TRANSPARENT
        ]
        self._calls = Counter(source_call_of(op) for op in computing)
        self._in_module = Counter(op.module for op in computing)

    def contains(self, slot: Slot, next_paired: dict[Slot, Slot]) -> bool:
        """Whether the op of a slot is such a step."""
        end = next_paired.get(slot)
        op = self._work.graphs[TARGET].op_of(slot)
        compared_op = (
            self._work.graphs[REFERENCE].op_of(self._work.to_reference[end]) if end else None
        )
        if op is None or compared_op is None:
            return False
        last = self._work.graphs[TARGET].op_of(end) if end else None
        if last is not None and op.origins and op.origins[-1:] == last.origins[-1:]:
            return True
        call = source_call_of(op, self._modules)
        if op.source:
            return self._calls[call] == 1 and source_call_of(compared_op) == call
        # Fused ops may have lost their source line; a module with only one op identifies it.
        module = self._modules.get(op.module, "")
        return bool(module) and self._in_module[module] == 1 and compared_op.module == module


def _explain_slot(work: Workspace, side: int, slot: Slot, next_paired: Slot | None) -> None:
    """Explain a slot by the next sync point downstream: folded into it, or inside its op."""
    graph = work.graphs[side]
    if not graph.live[graph.position[slot.op]]:
        work.explain(side, slot, "depends on no input of the model")
    elif next_paired is None:
        return
    elif side == TARGET:
        merged = _merged_ops(work, slot)
        if len(merged) > 1:
            listed = f"{', '.join(merged[:-1])} and {merged[-1]}"
            work.explain(side, slot, f"holds {listed}, compared by slice")
        else:
            work.explain_inside(side, slot, str(work.to_reference[next_paired].op))
    else:
        target = work.to_target[next_paired]
        equal = (
            work.view_selector.find_best_view(target, next_paired)[0] <= work.fingerprints.tolerance
        )
        work.explain(side, slot, f"folded into {target}" + ("" if equal else ", or missing"))


def _merged_ops(work: Workspace, slot: Slot) -> list[str]:
    """The reference ops that one target op computes together, such as a merged product of query,
    key and value: those that its slices are paired with."""
    graph, reference_graph = work.graphs
    references = [
        work.to_reference[output]
        for reader in graph.consumers.get(slot, ())
        if graph.classes[reader] in ("split", "slice")
        for output in graph.outputs(reader)
        if output in work.to_reference
    ]
    kind = graph.class_of(graph.root(slot))
    kinds = {kind, *(["matmul", "conv"] if kind == "add" else [])}
    references = [s for s in references if reference_graph.class_of(s) in kinds]
    return [str(s.op) for s in sorted(references, key=lambda s: reference_graph.position[s.op])]


def _next_paired_slots(graph: SlotGraph, paired: dict[Slot, Slot]) -> dict[Slot, Slot]:
    """For every slot the next paired slot downstream."""
    next_paired: dict[Slot, Slot] = {}
    for position in range(len(graph.ops) - 1, -1, -1):
        for slot in graph.outputs(position):
            for reader in graph.consumers.get(slot, ()):
                outputs = graph.outputs(reader)
                nearest = next((s for s in outputs if s in paired), None)
                nearest = nearest or next(
                    (next_paired[s] for s in outputs if s in next_paired), None
                )
                if nearest is not None:
                    next_paired[slot] = nearest
                    break
    return next_paired
