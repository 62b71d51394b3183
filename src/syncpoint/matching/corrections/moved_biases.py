"""Products whose bias was moved: what a bare product is the counterpart of.

A compiler that adds a constant after a product, for a batch norm or to quantize, merges it with
the product's bias. The bare product then has no counterpart in a reference whose product has the
bias in it, and the sum has one only if nothing else went into the constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError
from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.protocol import EvidenceKind
from syncpoint.matching.workspace import REFERENCE, TARGET, Workspace
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Kept, Role, TensorKey

_PRODUCTS = ("matmul", "conv")
_ROUNDINGS = 4
"""A bias that went through a cast or two is still the same."""


def with_bias(work: Workspace, target: Slot, reference: Slot) -> Slot | None:
    """The target's slot that a reference's belongs to, if not the one at hand. Where that is a
    bare product, and what adds a constant to it says it was made from another op, it is the sum,
    if the constant is the bias and nothing else; else there is none. The bare product is then
    out of the matching: were the bias missing, it would show in what follows."""
    moved = _moved(work, target, reference)
    if moved is None:
        return target
    graph = work.graphs[TARGET]
    adding, bias = moved
    work.explain(TARGET, target, f"inside {reference}, before its bias", final=True)
    added = _constant(graph, adding) if graph.classes[adding] == "add" else None
    whole = next(iter(graph.outputs(adding)), None)
    if whole is not None and added is not None and _equal(added, bias):
        return whole
    why = f"no tensor with its bias alone: {graph.ops[adding].key} adds another constant"
    work.explain(REFERENCE, reference, why)
    return None


def settle_biases(work: Workspace) -> bool:
    """Look at all pairs of products again; tells whether any was changed."""
    changed = False
    for target, reference in list(work.to_reference.items()):
        evidence, kind = work.evidence(target), work.evidence_kind(target)
        if kind is EvidenceKind.MAP or _moved(work, target, reference) is None:
            continue
        changed = True
        work.unpair(target)
        whole = with_bias(work, target, reference)
        if whole is not None:
            work.unpair(whole)
            work.pair(whole, reference, f"{evidence}, with its bias", 0.9, kind=kind)
    return changed


def _moved(work: Workspace, target: Slot, reference: Slot) -> tuple[int, NDArray[Any]] | None:
    """What adds a constant to a bare product, and the bias of the product it is paired with."""
    mine, theirs = work.graphs
    at, other = mine.position.get(target.op, -1), theirs.position.get(reference.op, -1)
    if at < 0 or other < 0 or {mine.classes[at], theirs.classes[other]} - set(_PRODUCTS):
        return None
    adding = _adding(mine, target)
    if not adding or not all(mine.foreign(at, i) for i in adding) or _bias(mine, at) is not None:
        return None
    bias = _bias(theirs, other)
    if bias is None:
        return None
    constants = {i: _constant(mine, i) for i in adding if mine.classes[i] == "add"}
    whole = [i for i, added in constants.items() if added is not None and _equal(added, bias)]
    return (whole or adding)[0], bias


def _adding(graph: Graph, slot: Slot) -> list[int]:
    """The ops that read a slot, if all of them add a constant to it or take one away: a constant of
    what follows may have been merged with the bias, beside the bias itself."""
    readers = graph.consumers.get(slot, [])
    adds = all(graph.classes[i] in ("add", "sub") and len(graph.reads[i]) == 1 for i in readers)
    return list(readers) if adds else []


def _bias(graph: Graph, at: int) -> NDArray[Any] | None:
    """The parameter of a product that has one axis."""
    inputs = graph.ops[at].inputs
    for edge in inputs if len(inputs) > 2 else ():
        if edge.role is Role.PARAMETER:
            found = _values(graph, TensorKey(edge.op, edge.role, edge.index))
            if found is not None and found.ndim == 1:
                return found
    return None


def _constant(graph: Graph, at: int) -> NDArray[Any] | None:
    edges = [e for e in graph.ops[at].inputs if e.role is Role.PARAMETER]
    if len(edges) != 1:
        return None
    return _values(graph, TensorKey(edges[0].op, edges[0].role, edges[0].index))


def _values(graph: Graph, key: TensorKey) -> NDArray[Any] | None:
    tensor = graph.side.run.tensor(key)
    if tensor is None or tensor.kept is not Kept.VALUES or tensor.quantization is not None:
        return None
    try:
        return graph.side.run.values(tensor)
    except SyncpointError:
        return None


def _equal(added: NDArray[Any], bias: NDArray[Any]) -> bool:
    if added.size != bias.size:
        return False
    mine, theirs = (a.astype(np.float64).reshape(-1) for a in (added, bias))
    allowed = _ROUNDINGS * max(from_numpy(a.dtype).unit for a in (added, bias))
    with np.errstate(invalid="ignore"):
        gap = np.abs(mine - theirs).max(initial=0.0)
    return bool(gap <= allowed * np.abs(theirs).max(initial=0.0))
