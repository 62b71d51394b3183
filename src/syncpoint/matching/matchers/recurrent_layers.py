"""Matcher: pairs a recurrent op for all layers of a module with the ops for its single layers.

The order of the layers, the axes of the results and the joining of the states follow from what the
ops record. So a layer whose values are wrong is paired, too, and its error shows at the layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.evidence.recurrent_ops import (
    RESULT,
    RecurrentOp,
    chains_of_layers,
    is_recurrent,
    recurrent_ops,
    recurrent_weights,
    result_view,
    state_view,
)
from syncpoint.matching.fingerprints import MARGIN, relative_distance
from syncpoint.matching.graph import Slot
from syncpoint.matching.protocol import EvidenceKind, Matching, SyncPoint
from syncpoint.matching.views import View
from syncpoint.matching.workspace import REFERENCE, SIDES, TARGET, Workspace

_MAX_WEIGHT_ELEMENTS = 1 << 22
"""Maximum size of weights whose elements are sorted."""

_Assignment = tuple[RecurrentOp, list[RecurrentOp], str, float]
"""An op for all layers, its layers, the evidence and the confidence."""


class RecurrentMatcher:
    """Pairs recurrent ops of which one side has one for each layer."""

    name = "recurrent"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair the results and states of both forms."""
        sides = (matching.target, matching.reference)
        if not all(any(map(is_recurrent, side.ops)) for side in sides):
            return ()
        work = Workspace.of(matching)
        ops = [recurrent_ops(graph) for graph in work.graphs]
        for side in (TARGET, REFERENCE):
            stacks = [op for op in ops[side] if op.is_stack]
            layers = [op for op in ops[1 - side] if not op.is_stack]
            for assignment in _assign(work, side, stacks, layers):
                _pair_layers(work, side, *assignment)
        return ()


def _assign(
    work: Workspace, side: int, stacks: Sequence[RecurrentOp], layers: list[RecurrentOp]
) -> list[_Assignment]:
    """The layers of each op of all layers. Of several candidates the module decides, else the
    weights, else the order, which counts only if no layer is left over."""
    chains = chains_of_layers(work.graphs[1 - side], layers)
    assigned: list[_Assignment] = []
    is_order_valid = sum(stack.layers for stack in stacks) == len(layers)
    for stack in stacks:
        candidates = [
            chain
            for chain in chains
            if len(chain) >= stack.layers
            and all(layer.signature == stack.signature for layer in chain[: stack.layers])
        ]
        in_module = [chain for chain in candidates if _is_same_module(stack, chain[0])]
        if len(in_module) == 1:
            chain, evidence, confidence = in_module[0], "the same module and kind", 0.95
        elif not candidates:
            continue
        elif (nearest := _nearest_by_weights(work, side, stack, candidates)) is not None:
            chain, evidence, confidence = nearest, "the same kind, the most similar weights", 0.9
        elif is_order_valid:
            chain, evidence, confidence = candidates[0], "the same kind, in order", 0.85
        else:
            continue
        assigned.append((stack, chain[: stack.layers], evidence, confidence))
        del chain[: stack.layers]
    return assigned


def _is_same_module(stack: RecurrentOp, layer: RecurrentOp) -> bool:
    """Whether both ops record one module, and the layer the name of the other op."""
    is_named = stack.op.key.op in layer.op.origins or layer.op.key.op in stack.op.origins
    return is_named and bool(stack.op.module) and stack.op.module == layer.op.module


def _nearest_by_weights(
    work: Workspace, side: int, stack: RecurrentOp, chains: list[list[RecurrentOp]]
) -> list[RecurrentOp] | None:
    """The chain whose weights are those of the op, in any order of gates; None if several are as
    similar."""
    if len(chains) < 2:
        return None
    own = _sorted_weights(work, side, stack)
    distances: list[tuple[float, int]] = []
    for chain in chains:
        other = _sorted_weights(work, 1 - side, chain[0])
        is_comparable = own is not None and other is not None and own.size == other.size
        distance = relative_distance(other, own) if is_comparable else inf  # type: ignore[arg-type]
        distances.append((distance, len(distances)))
    distances.sort()
    (best, index), (second, _) = distances[:2]
    is_clear = best <= work.fingerprints.tolerance and second > MARGIN * best
    return chains[index] if is_clear else None


def _sorted_weights(work: Workspace, side: int, op: RecurrentOp) -> NDArray[np.float64] | None:
    """The recurrent weights of the first layer, sorted, since each form has its own order of gates;
    None if they cannot be read."""
    tensors = recurrent_weights(work.graphs[side], op)
    if not tensors or sum(t.count for t in tensors) > _MAX_WEIGHT_ELEMENTS:
        return None
    run = work.graphs[side].side.run
    try:
        values = [np.asarray(run.values_for_sampling(t), np.float64).ravel() for t in tensors]
    except (SyncpointError, ValueError, TypeError):
        return None
    return np.sort(np.concatenate(values))


def _pair_layers(
    work: Workspace,
    side: int,
    stack: RecurrentOp,
    layers: list[RecurrentOp],
    evidence: str,
    confidence: float,
) -> None:
    """Pair the result of the last layer and the joined states; other outputs of the layers are
    intermediate values."""
    last = layers[-1]
    target, reference = (stack, last) if side == TARGET else (last, stack)
    partners: list[tuple[Slot, int, View]] = [
        (last.output(RESULT), RESULT, result_view(target, reference))
    ]
    for index in range(RESULT + 1, RESULT + 3):
        slot = _joined_states(work, 1 - side, layers, index)
        if slot is not None:
            partners.append((slot, index, state_view(target, reference)))
        elif not work.graphs[side].consumers.get(stack.output(index)):
            detail = f"no op reads it; {last.op.key} and the layers before it have it in parts"
            work.explain(side, stack.output(index), detail)
            _leave_out(work, side, stack.output(index))
    if len(layers) > 1:
        evidence += f", {len(layers)} layers"
    for slot, index, view in partners:
        slots = (stack.output(index), slot) if side == TARGET else (slot, stack.output(index))
        if view:
            work.view_selector.define_view(*slots, view)
        work.pair(*slots, evidence, confidence, view=view, kind=EvidenceKind.OTHER)
    paired_slots = {slot for slot, _, _ in partners}
    for layer in layers:
        for slot in work.graphs[1 - side].outputs(layer.position):
            if slot not in paired_slots:
                work.explain_inside(1 - side, slot, str(stack.op.key), final=True)
                _leave_out(work, 1 - side, slot)


def _leave_out(work: Workspace, side: int, slot: Slot) -> None:
    """Exclude a slot from the coverage."""
    keys = ((SIDES[side], tensor.key) for tensor in work.graphs[side].slots.get(slot, ()))
    work.matching.uncounted.update(keys)


def _joined_states(
    work: Workspace, side: int, layers: list[RecurrentOp], index: int
) -> Slot | None:
    """The states of all layers after the last step: that of the only layer, or the op that joins
    them in any order. A wrong order is an error that must show there."""
    graph = work.graphs[side]
    states = [layer.output(index) for layer in layers]
    if any(state not in graph.slots for state in states):
        return None
    if len(states) == 1:
        return states[0]
    readers = [
        reader
        for reader in graph.consumers.get(states[0], ())
        if graph.classes[reader] == "concat" and set(graph.reads[reader]) == set(states)
    ]
    outputs = graph.outputs(readers[0]) if readers else []
    return outputs[0] if len(outputs) == 1 else None
