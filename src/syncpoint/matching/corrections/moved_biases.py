"""Repair pairs of products (matmul, convolution) whose bias a compiler moved into another op:
positions of two products, a constant equal to a bias.

A compiler that adds a constant after a product, for a batch norm or to quantize, merges it with
the bias of the product. The bare product then has no partner in a reference whose product includes
the bias, and the sum has one only if the constant is the bias alone. A compiler that fuses the
sum into every op that reads the product leaves no tensor with the bias at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.evidence.biased_products import PRODUCTS, bias_edge, constant_added_to
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import TRANSPARENT
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Kept, Role, TensorKey

_MAX_ROUNDINGS = 4
"""Unit roundoffs by which a bias may differ after casts."""


def find_slot_with_bias(work: Workspace, target: Slot, reference: Slot) -> Slot | None:
    """The target slot that equals the reference with its bias: `target` itself, the sum after it,
    or None.

    If the target is a bare product and an op with another origin adds a constant, the partner is
    the sum if the constant is the bias alone; else there is none. The bare product is then excluded
    from the matching: a missing bias would show downstream.
    """
    positions = _product_positions(work, target, reference)
    completing = _free_completing_slot(work, TARGET, *positions) if positions else None
    if completing is not None:
        work.explain(TARGET, target, f"inside {reference}, before its bias", final=True)
        work.mark_hidden(TARGET, target)
        return completing
    if _is_bias_in_readers(work, target, reference):
        work.explain(TARGET, target, f"inside {reference}, before its bias", final=True)
        work.explain(REFERENCE, reference, f"the ops that read {target} add the bias themselves")
        for side, slot in ((TARGET, target), (REFERENCE, reference)):
            work.mark_hidden(side, slot)
        return None
    moved_bias = _find_moved_bias(work, target, reference)
    if moved_bias is None:
        return target
    graph = work.graphs[TARGET]
    adding_position, bias = moved_bias
    work.explain(TARGET, target, f"inside {reference}, before its bias", final=True)
    constant = (
        _read_constant(graph, adding_position) if graph.classes[adding_position] == "add" else None
    )
    biased = next(iter(graph.outputs(adding_position)), None)
    if biased is not None and constant is not None and _are_equal(constant, bias):
        return biased
    adding_op = graph.ops[adding_position].key
    detail = f"no tensor with only its bias added: {adding_op} adds another constant"
    work.explain(REFERENCE, reference, detail)
    return None


def repair_moved_biases(work: Workspace) -> bool:
    """Repair all pairs of products whose bias was moved; return whether any pair changed."""
    has_changed = _pair_completed_products(work)
    for target, reference in list(work.to_reference.items()):
        evidence, kind = work.evidence(target), work.evidence_kind(target)
        if kind is EvidenceKind.MAP or not (
            _is_bias_in_readers(work, target, reference)
            or _find_moved_bias(work, target, reference)
        ):
            continue
        has_changed = True
        work.unpair(target)
        biased = find_slot_with_bias(work, target, reference)
        if biased is not None:
            work.unpair(biased)
            work.pair(biased, reference, f"{evidence}, with its bias", 0.9, kind=kind)
    return has_changed


def _pair_completed_products(work: Workspace) -> bool:
    """Where one side computes a product and adds its bias in an op of its own, pair that op with
    the other side's product, which includes its bias; return whether any pair changed.

    No values are compared: an error in the weight or the bias leaves the structure as it is.
    """
    has_changed = False
    for target, reference in list(work.to_reference.items()):
        kind = work.evidence_kind(target)
        positions = _product_positions(work, target, reference)
        if kind is EvidenceKind.MAP or positions is None:
            continue
        completing = [
            _free_completing_slot(work, side, positions[side], positions[1 - side])
            for side in (TARGET, REFERENCE)
        ]
        completed_target, completed_reference = completing
        if completed_target is None and completed_reference is None:
            continue
        evidence = work.evidence(target)
        work.unpair(target)
        work.pair(
            completed_target or target,
            completed_reference or reference,
            f"{evidence}, with its bias",
            0.9,
            kind=kind,
        )
        for side, slot in ((TARGET, target), (REFERENCE, reference)):
            if completing[side] is not None:
                other = (reference, target)[side]
                work.explain(side, slot, f"inside {other}, before its bias", final=True)
                work.mark_hidden(side, slot)
        has_changed = True
    return has_changed


def _free_completing_slot(work: Workspace, side: int, position: int, other: int) -> Slot | None:
    """The unpaired output of the op that adds a constant to a bare product, if the product of the
    other side includes a bias of that size and no such op follows it."""
    graph, other_graph = work.graphs[side], work.graphs[1 - side]
    bias = bias_edge(other_graph, other)
    if bias is None or bias_edge(graph, position) is not None:
        return None
    if constant_added_to(other_graph, other) is not None:
        return None  # It is the partner of the constant on this side.
    added = constant_added_to(graph, position)
    if added is None or graph.parameter_count(added[1]) != other_graph.parameter_count(bias):
        return None
    if _may_hold_another_constant(graph, position, added[0]):
        constant, bias_values = _read_constant(graph, added[0]), _read_bias(other_graph, other)
        if constant is None or bias_values is None or not _are_equal(constant, bias_values):
            return None
    outputs = graph.outputs(added[0])
    return outputs[0] if len(outputs) == 1 and work.is_free(side, outputs[0]) else None


def _may_hold_another_constant(graph: SlotGraph, position: int, adding_position: int) -> bool:
    """Whether a compiler may have merged the added constant with the bias: the op that adds it was
    made from another op than the product, and it is no op of the original program."""
    op = graph.ops[adding_position]
    return graph.has_other_origin(position, adding_position) and op.origins != (op.key.op,)


def _is_bias_in_readers(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Whether the target is a bare product, and every op that reads it also reads the parameter
    that is the bias of the reference's product."""
    positions = _product_positions(work, target, reference)
    if positions is None:
        return False
    position, reference_position = positions
    graph, reference_graph = work.graphs
    bias = bias_edge(reference_graph, reference_position)
    if bias is None or bias_edge(graph, position) is not None:
        return False
    names = {
        pair.target.op
        for pair in work.matching.pairs
        if pair.target.role is Role.PARAMETER and pair.reference.op == bias.op
    }
    readers = _readers_of_values(graph, target)
    return bool(readers) and all(
        any(edge.role is Role.PARAMETER and edge.op in names for edge in graph.ops[reader].inputs)
        for reader in readers
    )


def _readers_of_values(graph: SlotGraph, slot: Slot) -> list[int]:
    """The ops that compute with a slot, also behind ops that only dequantize or reorder it."""
    readers: list[int] = []
    waiting = list(graph.consumers.get(slot, ()))
    visited: set[int] = set()
    while waiting:
        position = waiting.pop()
        if position in visited:
            continue
        visited.add(position)
        if graph.classes[position] in TRANSPARENT:
            for output in graph.outputs(position):
                waiting += graph.consumers.get(output, ())
        else:
            readers.append(position)
    return readers


def _product_positions(work: Workspace, target: Slot, reference: Slot) -> tuple[int, int] | None:
    """The positions of two ops that are products; None if one of them is none."""
    positions = [
        graph.position.get(slot.op, -1)
        for graph, slot in zip(work.graphs, (target, reference), strict=True)
    ]
    are_products = all(
        position >= 0 and graph.classes[position] in PRODUCTS
        for graph, position in zip(work.graphs, positions, strict=True)
    )
    return (positions[0], positions[1]) if are_products else None


def _find_moved_bias(
    work: Workspace, target: Slot, reference: Slot
) -> tuple[int, NDArray[Any]] | None:
    """The position of the op that adds a constant to a bare product, and the reference's bias."""
    target_graph, reference_graph = work.graphs
    positions = _product_positions(work, target, reference)
    if positions is None:
        return None
    position, reference_position = positions
    adding_positions = _find_adding_ops(target_graph, target)
    if not adding_positions:
        return None
    if not all(target_graph.has_other_origin(position, i) for i in adding_positions):
        return None
    if _read_bias(target_graph, position) is not None:
        return None
    bias = _read_bias(reference_graph, reference_position)
    if bias is None:
        return None
    constants = {
        i: _read_constant(target_graph, i)
        for i in adding_positions
        if target_graph.classes[i] == "add"
    }
    exact = [
        i
        for i, constant in constants.items()
        if constant is not None and _are_equal(constant, bias)
    ]
    return (exact or adding_positions)[0], bias


def _find_adding_ops(graph: SlotGraph, slot: Slot) -> list[int]:
    """The ops that read a slot, if all of them add or subtract a constant. A later constant may
    have been merged with the bias in one of several readers."""
    readers = graph.consumers.get(slot, [])
    all_add = all(graph.classes[i] in ("add", "sub") and len(graph.reads[i]) == 1 for i in readers)
    return list(readers) if all_add else []


def _read_bias(graph: SlotGraph, position: int) -> NDArray[Any] | None:
    """The values of the bias of a product."""
    edge = bias_edge(graph, position)
    return None if edge is None else _read_values(graph, TensorKey(edge.op, edge.role, edge.index))


def _read_constant(graph: SlotGraph, position: int) -> NDArray[Any] | None:
    edges = [e for e in graph.ops[position].inputs if e.role is Role.PARAMETER]
    if len(edges) != 1:
        return None
    return _read_values(graph, TensorKey(edges[0].op, edges[0].role, edges[0].index))


def _read_values(graph: SlotGraph, key: TensorKey) -> NDArray[Any] | None:
    tensor = graph.side.run.tensor(key)
    if tensor is None or tensor.kept is not Kept.VALUES or tensor.quantization is not None:
        return None
    try:
        return graph.side.run.values(tensor)
    except SyncpointError:
        return None


def _are_equal(constant: NDArray[Any], bias: NDArray[Any]) -> bool:
    """Whether a constant equals a bias up to a few roundings."""
    if constant.size != bias.size:
        return False
    constant_values, bias_values = (a.astype(np.float64).reshape(-1) for a in (constant, bias))
    allowed = _MAX_ROUNDINGS * max(from_numpy(a.dtype).unit for a in (constant, bias))
    with np.errstate(invalid="ignore"):
        gap = np.abs(constant_values - bias_values).max(initial=0.0)
    return bool(gap <= allowed * np.abs(bias_values).max(initial=0.0))
