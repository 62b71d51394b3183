"""Matcher: pairs the ops of one kind that compute paired model outputs (before views, casts and
bias)."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.matching.evidence.biased_products import class_of_product_with_bias
from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import is_classified, op_class
from syncpoint.matching.protocol import Matching, Side, SyncPoint
from syncpoint.matching.workspace import Workspace
from syncpoint.run.model import OpKey, Role, Tensor

_RESULT_ROLES = frozenset({Role.MODEL_OUTPUT, Role.STATE})
"""Roles of what an execution leaves behind."""


class OutputOpMatcher:
    """Pairs the ops whose outputs are paired model outputs.

    This is the only evidence in runs with their own op names and types, such as those of a runtime
    that fuses ops.
    """

    name = "output-ops"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Pair ops whose types may be the same. If the target lacks its last op, the op before it
        produces the output and is not a partner."""
        producers = _OutputProducers(matching.target), _OutputProducers(matching.reference)
        for pair in list(matching.pairs):
            if not {pair.target.role, pair.reference.role} <= _RESULT_ROLES:
                continue
            target = producers[0].of(matching.target.run.tensor(pair.target))
            reference = producers[1].of(matching.reference.run.tensor(pair.reference))
            if target is None or reference is None or target.shape != reference.shape:
                continue
            if producers[0].can_equal(target, producers[1], reference):
                evidence = "ops that produce the same model output"
                yield SyncPoint(target.key, reference.key, evidence, confidence=pair.confidence)


def pair_by_model_output(work: Workspace) -> bool:
    """Pair ops of one kind that produce the same model output; return whether any was paired. This
    works even if all tensors before the output are wrong or fused."""
    is_paired = False
    for pair in list(work.matching.pairs):
        if pair.target.role is not Role.MODEL_OUTPUT or pair.reference.role is not pair.target.role:
            continue
        target, reference = (
            _producer_of(graph, key.op)
            for graph, key in zip(work.graphs, (pair.target, pair.reference), strict=True)
        )
        if target is None or reference is None:
            continue
        if target[1:] != reference[1:] and not _have_same_bias(work, target[0], reference[0]):
            continue
        evidence = "same kind, producing the same model output"
        is_paired |= work.pair(target[0], reference[0], evidence, 0.85)
    return is_paired


def _producer_of(graph: SlotGraph, op: OpKey) -> tuple[Slot, str, int] | None:
    """The only output of an op, the kind of op that computes it (before views; `matmul` or `conv`
    for the add of its bias), and its number of elements."""
    position = graph.position.get(op, -1)
    outputs = graph.outputs(position) if position >= 0 else []
    if len(outputs) != 1:
        return None
    return outputs[0], graph.kind_of(graph.root(outputs[0])), graph.count(outputs[0])


def _have_same_bias(work: Workspace, target: Slot, reference: Slot) -> bool:
    """Whether one of two slots is a product that includes its bias, and the other a product of that
    class to which an op of its own adds the bias."""
    slots = [graph.root(slot) for graph, slot in zip(work.graphs, (target, reference), strict=True)]
    one, other = (
        class_of_product_with_bias(graph, slot)
        for graph, slot in zip(work.graphs, slots, strict=True)
    )
    counts = [graph.count(slot) for graph, slot in zip(work.graphs, slots, strict=True)]
    return bool(one[0]) and one[0] == other[0] and one[1] != other[1] and counts[0] == counts[1]


class _OutputProducers:
    """The op outputs of one side that are model outputs under another name."""

    def __init__(self, side: Side) -> None:
        self._run = side.run
        names = {t.alias_of for t in side.others if t.key.role in _RESULT_ROLES and t.alias_of}
        tensors = (t for op in side.ops for t in side.outputs[op.key]) if names else ()
        self._by_text = {str(t.key): t for t in tensors if str(t.key) in names}

    def of(self, output: Tensor | None) -> Tensor | None:
        """The op output that a model output is an alias of."""
        return self._by_text.get(output.alias_of) if output is not None else None

    def can_equal(self, output: Tensor, others: _OutputProducers, other_output: Tensor) -> bool:
        """Whether the ops of two outputs may be the same: of one class, or one of them without a
        type or with a type of its own, which may belong to any class."""
        types = self._type(output), others._type(other_output)
        if not all(types) or op_class(types[0]) == op_class(types[1]):
            return True
        return sum(map(is_classified, types)) == 1

    def _type(self, tensor: Tensor) -> str:
        op = self._run.op(tensor.key.op)
        return op.type if op is not None else ""
