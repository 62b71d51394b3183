"""Why a tensor has no partner, in words: what it was folded into, what it lies inside of."""

from __future__ import annotations

from collections import Counter

from syncpoint.matching.evidence.numbered_modules import named_modules
from syncpoint.matching.evidence.source_lines import call_of
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.workspace import REFERENCE, SIDES, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey, Role


def add_reasons(work: Workspace) -> None:
    """Explain what is unpaired and has no reason yet, by the next sync point downstream."""
    paired = (work.to_reference, work.to_target)
    for side in (TARGET, REFERENCE):
        graph = work.graphs[side]
        if not graph.has_edges:
            continue
        following = _following(graph, paired[side])
        inside = _Inside(work) if side == TARGET else None
        for slot in graph.slots:
            if slot.role is not Role.OUTPUT or slot in paired[side]:
                continue
            unseen = _no_result(graph, slot, following) or _shown_by_copy(graph, slot, paired[side])
            if unseen or (inside and inside(slot, following)):
                keys = ((SIDES[side], t.key) for t in graph.slots[slot])
                work.matching.uncounted.update(keys)
            if not work.free(side, slot):
                continue
            if any((SIDES[side], t.key) in work.matching.reasons for t in graph.slots[slot]):
                continue
            _explain_slot(work, side, slot, following.get(slot))
        _explain_parameters(work, side)


def _explain_parameters(work: Workspace, side: int) -> None:
    """A parameter without a partner shows in what reads it; say which op that is, and what
    became of that one."""
    graph, said = work.graphs[side], work.matching.reasons
    readers: dict[OpKey, int] = {}
    for at, op in enumerate(graph.ops):
        for edge in op.inputs:
            if edge.role is Role.PARAMETER:
                readers.setdefault(edge.op, at)
    asked = (work.matching.free_target, work.matching.free_reference)[side]
    for tensor in graph.side.others:
        if tensor.key.role is not Role.PARAMETER or (SIDES[side], tensor.key) in said:
            continue
        at = readers.get(tensor.key.op, -1)
        made = graph.outputs(at) if at >= 0 else []
        if not made or not asked(tensor.key):
            continue
        why = said.get((SIDES[side], graph.slots[made[0]][0].key))
        detail = f"read by {made[0].op}" + (f", {why.detail}" if why and why.detail else "")
        reason = Reason(ReasonCode.NO_COUNTERPART, detail)
        work.matching.explain(SIDES[side], tensor.key, reason)


def _no_result(graph: Graph, slot: Slot, following: dict[Slot, Slot]) -> bool:
    """Constants, and views, casts and copies whose effect the next sync point shows."""
    at = graph.position[slot.op]
    return not graph.live[at] or (graph.classes[at] in TRANSPARENT and slot in following)


def _shown_by_copy(graph: Graph, slot: Slot, paired: dict[Slot, Slot]) -> bool:
    """What is compared as a copy of it, in another type or layout."""
    readers = graph.consumers.get(slot, ())
    made = (copy for at in readers for copy in graph.outputs(at))
    return any(graph.roots.get(copy) == graph.root(slot) and copy in paired for copy in made)


class _Inside:
    """Which target ops are steps of one op whose result is compared: of one op of the program
    they were made from, or of a reference op whose line called for nothing else that computes."""

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._modules = named_modules(work)
        reference = work.graphs[REFERENCE]
        computing = [
            op
            for at, op in enumerate(reference.ops)
            if reference.live[at] and reference.classes[at] not in TRANSPARENT
        ]
        self._calls = Counter(call_of(op) for op in computing)
        self._in_module = Counter(op.module for op in computing)

    def __call__(self, slot: Slot, following: dict[Slot, Slot]) -> bool:
        end = following.get(slot)
        op = self._work.graphs[TARGET].op_of(slot)
        whole = self._work.graphs[REFERENCE].op_of(self._work.to_reference[end]) if end else None
        if op is None or whole is None:
            return False
        last = self._work.graphs[TARGET].op_of(end) if end else None
        if last is not None and op.origins and op.origins[-1:] == last.origins[-1:]:
            return True
        call = call_of(op, self._modules)
        if op.source:
            return self._calls[call] == 1 and call_of(whole) == call
        # Fused ops may have lost their line; a module with one op in it needs none.
        module = self._modules.get(op.module, "")
        return bool(module) and self._in_module[module] == 1 and whole.module == module


def _explain_slot(work: Workspace, side: int, slot: Slot, following: Slot | None) -> None:
    """Say what a slot was folded into or is a piece of, by the next sync point downstream."""
    graph = work.graphs[side]
    if not graph.live[graph.position[slot.op]]:
        work.explain(side, slot, "depends on no input of the model")
    elif following is None:
        return
    elif side == TARGET:
        parts = _parts(work, slot)
        if len(parts) > 1:
            listed = f"{', '.join(parts[:-1])} and {parts[-1]}"
            work.explain(side, slot, f"holds {listed}, compared by slice")
        else:
            work.explain_inside(side, slot, str(work.to_reference[following].op))
    else:
        target = work.to_target[following]
        equal = work.layouts.best(target, following)[0] <= work.prints.tolerance
        work.explain(side, slot, f"folded into {target}" + ("" if equal else ", or missing"))


def _parts(work: Workspace, slot: Slot) -> list[str]:
    """The reference ops that one target op does at once, as a merged product of query, key and
    value does: those that its slices are paired with."""
    graph, theirs = work.graphs
    found = [
        work.to_reference[made]
        for at in graph.consumers.get(slot, ())
        if graph.classes[at] in ("split", "slice")
        for made in graph.outputs(at)
        if made in work.to_reference
    ]
    kind = graph.class_of(graph.root(slot))
    kinds = {kind, *(["matmul", "conv"] if kind == "add" else [])}
    found = [s for s in found if theirs.class_of(s) in kinds]
    return [str(s.op) for s in sorted(found, key=lambda s: theirs.position[s.op])]


def _following(graph: Graph, paired: dict[Slot, Slot]) -> dict[Slot, Slot]:
    """For every slot the next paired one downstream."""
    found: dict[Slot, Slot] = {}
    for at in range(len(graph.ops) - 1, -1, -1):
        for slot in graph.outputs(at):
            for reader in graph.consumers.get(slot, ()):
                made = graph.outputs(reader)
                here = next((s for s in made if s in paired), None)
                here = here or next((found[s] for s in made if s in found), None)
                if here is not None:
                    found[slot] = here
                    break
    return found
