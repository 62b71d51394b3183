"""Unpair weights that a fold has changed, such as one multiplied by a batch norm: paired, other
values, but everything computed from them agrees."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.evidence.downstream_agreement import MIN_DROP, next_sync_points
from syncpoint.matching.fingerprints import relative_distance
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import AFFINE
from syncpoint.matching.protocol import EvidenceKind, SyncPoint
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Op, OpKey, Role

_MIN_FOLDED_SHARE = 0.5
"""Share of elements that a fold changes: a few wrong rows are an error."""
_MAX_ELEMENTS = 1 << 22
"""Maximum size of a parameter that is compared whole."""
_MAX_OPS = 12
"""Maximum number of ops to follow back to the reader of a parameter."""


def unpair_folded_parameters(work: Workspace) -> None:
    """Unpair parameters if other reference ops were folded into the target's parameter. An error
    in the fold shows in the output of the op that reads it."""
    pairs = {
        p.target.op: p
        for p in work.matching.pairs
        if p.target.role is Role.PARAMETER and p.reference.role is Role.PARAMETER
    }
    removed: dict[SyncPoint, SyncPoint | None] = {}
    for slot, reference in work.to_reference.items():
        op = work.graphs[TARGET].op_of(slot)
        if op is None:
            continue
        for name in _read_parameters(work.graphs[TARGET], op):
            pair = pairs.get(name)
            if pair is None or pair in removed:
                continue
            folded_ops = _find_folded_ops(work, reference.op, pair.reference.op)
            if _is_changed_by(work, folded_ops, pair):
                removed[pair] = None
                folded_op = work.graphs[REFERENCE].ops[folded_ops[0]].key
                detail = f"holds {folded_op} too, folded into {op.key}"
                reason = Reason(ReasonCode.NO_COUNTERPART, detail)
                for side, key in (("target", pair.target), ("reference", pair.reference)):
                    work.matching.explain(side, key, reason)
    for pair in _find_contradicted(work, [p for p in pairs.values() if p not in removed]):
        removed[pair] = None
        detail = "holds other numbers, and what is computed from it agrees: ops were folded into it"
        for side, key in (("target", pair.target), ("reference", pair.reference)):
            work.matching.explain(side, key, Reason(ReasonCode.NO_COUNTERPART, detail))
    work.matching.exchange(removed)
    work.refresh()


def _find_contradicted(work: Workspace, pairs: list[SyncPoint]) -> Iterator[SyncPoint]:
    """The pairs of parameters whose values differ although everything computed from the target's
    parameter agrees."""
    readers: dict[OpKey, list[int]] = {}
    graph = work.graphs[TARGET]
    for position, op in enumerate(graph.ops):
        if graph.live[position]:
            for name in dict.fromkeys(_read_parameters(graph, op)):
                readers.setdefault(name, []).append(position)
    for pair in pairs:
        positions = readers.get(pair.target.op, [])
        if not positions or pair.kind is EvidenceKind.MAP:
            continue
        if not _has_absorbed_ops(work, positions, pair.reference.op):
            continue
        own_distance = _parameter_distance(work, pair)
        if own_distance <= work.fingerprints.tolerance:
            continue
        limit = min(work.fingerprints.tolerance, own_distance / MIN_DROP)
        if all(_agrees(work, slot, limit) for i in positions for slot in graph.outputs(i)):
            yield pair


def _has_absorbed_ops(work: Workspace, positions: list[int], parameter: OpKey) -> bool:
    """Whether the ops that read a parameter are paired with none of the reference ops that read it,
    but with later ones."""
    graph = work.graphs[REFERENCE]
    slots = [slot for position in positions for slot in work.graphs[TARGET].outputs(position)]
    partners = [graph.op_of(work.to_reference[slot]) for slot in slots if slot in work.to_reference]
    return not any(
        op is not None and any(name == parameter for name in _read_parameters(graph, op))
        for op in partners
    )


def _is_changed_by(work: Workspace, folded_ops: list[int], pair: SyncPoint) -> bool:
    """Whether a fold of these reference ops changes a parameter. What is added goes into the bias,
    and the weight stays as it is."""
    graph = work.graphs[REFERENCE]
    if not folded_ops or _are_identical(work, pair):
        return False
    tensor = graph.side.run.tensor(pair.reference)
    is_weight = tensor is not None and sum(n > 1 for n in tensor.shape) > 1
    return not (is_weight and all(graph.classes[i] in ("add", "sub") for i in folded_ops))


def _are_identical(work: Workspace, pair: SyncPoint) -> bool:
    """Whether two parameters are the same to the last bit: then nothing was folded into them."""
    values = _values_of_parameters(work, pair)
    return values is not None and np.array_equal(*values)


def _parameter_distance(work: Workspace, pair: SyncPoint) -> float:
    """The distance of two parameters relative to the reference; 0 if it cannot be measured, or if
    too few elements differ for a fold."""
    values = _values_of_parameters(work, pair)
    if values is None:
        return 0.0
    scale = float(np.sqrt(np.mean(values[1] ** 2))) if values[1].size else 0.0
    is_changed = np.abs(values[0] - values[1]) > work.fingerprints.tolerance * scale
    if is_changed.mean() < _MIN_FOLDED_SHARE:
        return 0.0
    return relative_distance(values[0], values[1])


def _values_of_parameters(
    work: Workspace, pair: SyncPoint
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The values of two paired parameters in a row; None if they are no reals, too many, or not of
    the same number."""
    values = []
    for side, key in ((TARGET, pair.target), (REFERENCE, pair.reference)):
        run = work.graphs[side].side.run
        tensor = run.tensor(key)
        if tensor is None or tensor.quantization is not None or tensor.count > _MAX_ELEMENTS:
            return None
        if tensor.kept is not Kept.VALUES or DTYPES[tensor.dtype].kind is not Kind.FLOAT:
            return None
        try:
            values.append(np.asarray(run.values_for_sampling(tensor)).astype(np.float64).ravel())
        except SyncpointError:
            return None
    return (values[0], values[1]) if values[0].size == values[1].size else None


def _agrees(work: Workspace, slot: Slot, limit: float) -> bool:
    """Whether the next sync points from a slot on, or its own, hold equal values."""
    reference = work.to_reference.get(slot)
    sync_points = [(slot, reference)] if reference is not None else next_sync_points(work, slot)
    distances = [work.view_selector.find_best_view(*slots)[0] for slots in sync_points]
    return bool(distances) and max(distances) <= limit


def _read_parameters(graph: SlotGraph, op: Op) -> Iterator[OpKey]:
    """The parameters of an op, also behind casts and transpositions of constants."""
    waiting = list(op.inputs)
    for _ in range(_MAX_OPS):
        if not waiting:
            return
        edge = waiting.pop()
        if edge.role is Role.PARAMETER:
            yield edge.op
        position = graph.position.get(edge.op, -1) if edge.role is Role.OUTPUT else -1
        if position >= 0 and not graph.live[position]:
            waiting += graph.ops[position].inputs


def _find_folded_ops(work: Workspace, last: OpKey, parameter: OpKey) -> list[int]:
    """The reference ops that were folded into the reader of a parameter, the last first: they lie
    between that reader and the op `last` that the target is paired with."""
    graph = work.graphs[REFERENCE]
    waiting = [graph.position.get(last, -1)]
    visited: set[int] = set()
    folded_ops: list[int] = []
    reader = -1
    while waiting and len(visited) < _MAX_OPS:
        position = waiting.pop(0)
        if position < 0 or position in visited:
            continue
        visited.add(position)
        if any(e.op == parameter and e.role is Role.PARAMETER for e in graph.ops[position].inputs):
            reader = position
            continue
        if graph.classes[position] in AFFINE and len(graph.reads[position]) == 1:
            folded_ops.append(position)
        for slot in graph.reads[position]:
            if slot not in work.to_target:
                waiting.append(graph.position.get(slot.op, -1))
    return folded_ops if reader >= 0 else []
