"""Pairs whose values differ although their readers agree: exchange partners, move to an equal
neighbor, drop a copy or a scaled form (fits scales).

Such a pair is wrong, or the two sides represent the value differently between its producer and its
readers: scaled, or with its elements in another order. It is corrected only if values show which: a
neighbor that is equal, or a relation that holds for every element. Otherwise the pair stays and is
measured, since an error may have no effect on this input.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import inf

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.evidence.downstream_agreement import MIN_DROP, next_sync_points
from syncpoint.matching.fingerprints import FLOOR, MARGIN, choose_by_margin
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.views import View
from syncpoint.matching.workspace import REFERENCE, SIDES, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Role

_MAX_HOPS = 3
"""Maximum distance in the graph of a neighbor that may be the true partner."""
_MAX_NEIGHBORS = 32
_MAX_ELEMENTS = 1 << 20
"""Maximum size of tensors whose elements are sorted."""
_MAX_CONTRADICTED_READERS = 8
"""Maximum number of contradicted pairs to look through on the way to readers that count."""
_MIN_SCALED_SHARE = 0.5
_MIN_VALUES_PER_CHANNEL = 8
"""Values that a channel must have for a fitted scale and offset to be no coincidence."""
_MIN_DISTINCT_VALUES = 2
_MIN_RELATED_VALUES = 6
"""Distinct values that two tensors must have for a relation between them to be no coincidence."""


def correct_contradicted_pairs(work: Workspace) -> int:
    """Exchange the partners of pairs that their readers contradict, move them to an equal neighbor,
    or drop them if the two hold the same values in another representation. Return how many were
    changed."""
    order = work.graphs[TARGET].position
    contradicted: dict[Slot, Slot] = {}
    # The last first, so that a pair is known to be wrong before those that it reads are judged.
    for target, reference in sorted(
        work.to_reference.items(), key=lambda pair: -order.get(pair[0].op, -1)
    ):
        if _is_contradicted(work, target, reference, contradicted):
            contradicted[target] = reference
    changed = _exchange_partners(work, list(contradicted.items()))
    for target, reference in contradicted.items():
        if work.to_reference.get(target) == reference:
            changed += (
                _move_to_neighbor(work, target, reference)
                or _drop_if_copy(work, target, reference)
                or _drop_if_related(work, target, reference)
            )
    return changed


def _exchange_partners(work: Workspace, contradicted: list[tuple[Slot, Slot]]) -> int:
    """Exchange partners among contradicted pairs of one kind and size, where values decide."""
    groups: dict[tuple[str, int], list[tuple[Slot, Slot]]] = {}
    for target, reference in contradicted:
        graph = work.graphs[REFERENCE]
        key = (graph.class_of(reference), graph.count(reference))
        groups.setdefault(key, []).append((target, reference))
    changed = 0
    for pairs in groups.values():
        if not 2 <= len(pairs) <= _MAX_NEIGHBORS:
            continue
        table = [[_distance(work, target, other) for _, other in pairs] for target, _ in pairs]
        cells = choose_by_margin(table, work.fingerprints.tolerance)
        for i, _ in cells:
            work.unpair(pairs[i][0])
        for _, j in cells:
            if pairs[j][0] in work.to_reference:
                work.unpair(pairs[j][0])
        for i, j in cells:
            evidence = f"equal values, exchanged with {pairs[j][0]}, and what reads them agrees"
            changed += work.pair(pairs[i][0], pairs[j][1], evidence, 0.9)
    return changed


def _is_contradicted(
    work: Workspace, target: Slot, reference: Slot, contradicted: Container[Slot]
) -> bool:
    """Whether the values of a pair differ although those of all its readers agree. Readers that are
    contradicted themselves say nothing; those after them count."""
    if target.role is not Role.OUTPUT or work.evidence_kind(target) is EvidenceKind.MAP:
        return False
    ops = [graph.op_of(slot) for graph, slot in zip(work.graphs, (target, reference), strict=True)]
    if ops[0] and ops[1] and (ops[0].key, ops[0].type) == (ops[1].key, ops[1].type):
        return False  # the same op of the same program
    own_distance = _distance(work, target, reference)
    if own_distance <= work.fingerprints.tolerance:
        return False
    if any(_values_of(work, side, slot) is None for side, slot in enumerate((target, reference))):
        return False
    sync_points = _trusted_sync_points(work, target, contradicted)
    distances = [_distance(work, *slots) for slots in sync_points]
    known_distances = [distance for distance in distances if distance < inf]
    limit = min(work.fingerprints.tolerance, own_distance / MIN_DROP)
    return bool(known_distances) and max(known_distances) <= limit


def _trusted_sync_points(
    work: Workspace, target: Slot, contradicted: Container[Slot]
) -> list[tuple[Slot, Slot]]:
    """The next sync points downstream that are not contradicted themselves."""
    trusted: dict[tuple[Slot, Slot], None] = {}
    visited: set[Slot] = set()
    waiting = [target]
    while waiting and len(visited) < _MAX_CONTRADICTED_READERS:
        slot = waiting.pop(0)
        visited.add(slot)
        for reader, partner in next_sync_points(work, slot):
            # A slot that is a model output is a sync point of its own.
            if reader not in contradicted or partner != work.to_reference.get(reader):
                trusted[reader, partner] = None
            elif reader not in visited:
                waiting.append(reader)
    return list(trusted)


def _fingerprint_distance(work: Workspace, target: Slot, reference: Slot) -> float:
    return work.view_selector.find_best_view(target, reference)[0]


def _distance(work: Workspace, target: Slot, reference: Slot) -> float:
    """The distance of two slots; of tensors too plain for a fingerprint, such as positions, 0 if
    they are equal element by element and else infinite."""
    distance = _fingerprint_distance(work, target, reference)
    if distance < inf:
        return distance
    target_values = _values_of(work, TARGET, target)
    reference_values = _values_of(work, REFERENCE, reference)
    if target_values is None or reference_values is None:
        return inf
    if target_values.size != reference_values.size:
        return inf
    tolerance = work.fingerprints.tolerance
    return 0.0 if _are_near(target_values.ravel(), reference_values.ravel(), tolerance) else inf


def _move_to_neighbor(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Pair each of the two with an equal neighbor of the other, if there is one."""
    for_reference = _find_equal_neighbor(work, TARGET, target, reference)
    for_target = _find_equal_neighbor(work, REFERENCE, reference, target)
    if for_reference is None and for_target is None:
        return False
    work.unpair(target)
    if for_reference is not None and work.admit(TARGET, for_reference):
        work.pair(for_reference, reference, f"equal values, next to {target}", 0.85)
    if for_target is not None and work.admit(REFERENCE, for_target):
        work.pair(target, for_target, f"equal values, next to {reference}", 0.85)
    return True


def _find_equal_neighbor(work: Workspace, side: int, start: Slot, other: Slot) -> Slot | None:
    """The unpaired slot near `start`, on its side, that equals `other`; None if none does."""
    paired = (work.to_reference, work.to_target)[side]
    graph = work.graphs[side]
    distances: list[tuple[float, Slot]] = []
    for slot in _neighbors(graph, start):
        if slot in paired or graph.count(slot) != work.graphs[1 - side].count(other):
            continue
        slots = (slot, other) if side == TARGET else (other, slot)
        distance = _distance(work, *slots)
        if distance <= work.fingerprints.tolerance:
            distances.append((distance, slot))
    if not distances:
        return None
    limit = MARGIN * max(min(distances)[0], FLOOR)
    near = [slot for distance, slot in distances if distance <= limit]
    # All of them hold the same numbers: the slot of the same kind, or else the last one.
    kind = work.graphs[1 - side].class_of(other)
    return max(near, key=lambda slot: (graph.class_of(slot) == kind, graph.position[slot.op]))


def _neighbors(graph: SlotGraph, start: Slot) -> Iterator[Slot]:
    """The slots within a few ops of a slot, upstream and downstream."""
    seen = {start}
    border = [start]
    for _ in range(_MAX_HOPS):
        further: list[Slot] = []
        for slot in border:
            position = graph.position.get(slot.op, -1)
            nearby = list(graph.reads[position]) if position >= 0 else []
            for reader in graph.consumers.get(slot, ()):
                nearby += graph.outputs(reader)
            further += [s for s in dict.fromkeys(nearby) if s not in seen]
            seen.update(further)
        for slot in further:
            if slot.role is Role.OUTPUT:
                yield slot
        if len(seen) > _MAX_NEIGHBORS:
            return
        border = further


def _drop_if_copy(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Drop a pair whose target holds the same numbers as another target tensor that is compared
    nearby, such as its copy in another layout; what the reference computes there was folded."""
    near_references = set(_neighbors(work.graphs[REFERENCE], reference))
    for slot in _neighbors(work.graphs[TARGET], target):
        partner = work.to_reference.get(slot)
        if partner is None or partner not in near_references:
            continue
        if max(_distance(work, s, partner) for s in (slot, target)) <= work.fingerprints.tolerance:
            work.unpair(target)
            work.explain(TARGET, target, f"holds the same numbers as {slot}, which is compared")
            work.mark_hidden(TARGET, target)
            work.mark_hidden(REFERENCE, reference)
            return True
    return False


def _drop_if_related(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Drop a pair that holds the same values in another representation."""
    relation = _describe_relation(work, target, reference)
    if not relation:
        return False
    work.unpair(target)
    for side, slot, other in ((TARGET, target, reference), (REFERENCE, reference, target)):
        detail = f"{relation} {other}, and what is computed from both agrees"
        for tensor in work.graphs[side].slots.get(slot, ()):
            reason = Reason(ReasonCode.NO_COUNTERPART, detail)
            work.matching.refuse(SIDES[side], tensor.key, reason)
        work.mark_hidden(side, slot)
    return True


def _describe_relation(work: Workspace, target: Slot, reference: Slot) -> str:
    """How two tensors with other values hold the same information, in words; "" if they do not."""
    view = work.view_selector.find_declared_view(target, reference)
    target_values = _values_of(work, TARGET, target, view)
    reference_values = _values_of(work, REFERENCE, reference)
    if target_values is None or reference_values is None:
        return ""
    if target_values.size != reference_values.size:
        return ""
    if min(len(np.unique(v)) for v in (target_values, reference_values)) < _MIN_RELATED_VALUES:
        return ""
    tolerance = work.fingerprints.tolerance
    sorted_target, sorted_reference = (
        np.sort(values, axis=None) for values in (target_values, reference_values)
    )
    if _are_near(sorted_target, sorted_reference, tolerance):
        return "holds in another order the numbers of"
    if _are_scaled(target_values, reference_values, tolerance):
        return "holds, scaled, the numbers of"
    return ""


def _values_of(
    work: Workspace, side: int, slot: Slot, view: View | None = None
) -> NDArray[np.float64] | None:
    """The values of a slot; None if they are no reals, too many, or of several executions."""
    graph = work.graphs[side]
    tensors = graph.slots.get(slot, [])
    if len(tensors) != 1:
        return None  # several executions may differ in one of them only
    tensor = tensors[0]
    if tensor.count > _MAX_ELEMENTS or tensor.quantization is not None:
        return None
    if DTYPES[tensor.dtype].kind is not Kind.FLOAT:
        return None
    try:
        values = np.asarray(graph.side.run.values_for_sampling(tensor)).astype(np.float64)
        values = view.apply(values) if view else values
    except (SyncpointError, ValueError):
        return None
    is_informative = np.isfinite(values).all() and len(np.unique(values)) >= _MIN_DISTINCT_VALUES
    return values if is_informative else None


def _are_near(one: NDArray[np.float64], other: NDArray[np.float64], tolerance: float) -> bool:
    return bool(np.linalg.norm(one - other) <= tolerance * np.linalg.norm(other))


def _are_scaled(
    target: NDArray[np.float64], reference: NDArray[np.float64], tolerance: float
) -> bool:
    """Whether the target is the reference times one number, or for each channel along one axis
    times a number plus an offset."""
    whole = target.reshape(1, -1), reference.reshape(1, -1)
    scales, fitted = _fit_scales(*whole)
    if _is_representation(scales, tolerance) and _are_near(whole[0], fitted, tolerance):
        return True
    if target.shape != reference.shape:
        return False
    for axis, length in enumerate(target.shape):
        if length < 2 or target.size < length * _MIN_VALUES_PER_CHANNEL:
            continue
        channels = [np.moveaxis(v, axis, 0).reshape(length, -1) for v in (target, reference)]
        scales, fitted = _fit_scales_and_offsets(channels[0], channels[1])
        if _is_representation(scales, tolerance) and _are_near(channels[0], fitted, tolerance):
            return True
    return False


def _is_representation(scales: NDArray[np.float64], tolerance: float) -> bool:
    """Whether most channels are scaled: a few of another scale are an error, and no channel may be
    lost."""
    return bool((scales != 0).all() and (np.abs(scales - 1) > tolerance).mean() > _MIN_SCALED_SHARE)


def _fit_scales(
    target: NDArray[np.float64], reference: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The scale of each row of the reference that fits the target best, and the rows scaled."""
    powers = (reference * reference).sum(1)
    scales = (target * reference).sum(1) / np.where(powers > 0, powers, 1.0)
    return scales, scales[:, None] * reference


def _fit_scales_and_offsets(
    target: NDArray[np.float64], reference: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The same with an offset for each row."""
    means = target.mean(1, keepdims=True), reference.mean(1, keepdims=True)
    scales, fitted = _fit_scales(target - means[0], reference - means[1])
    return scales, fitted + means[0]
