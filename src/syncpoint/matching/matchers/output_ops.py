"""The ops that give the model outputs: they belong together as the outputs do."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.matching.graph import Graph, Slot
from syncpoint.matching.op_kinds import is_classified, op_class
from syncpoint.matching.protocol import Matching, Side, SyncPoint
from syncpoint.matching.workspace import Workspace
from syncpoint.run.model import OpKey, Role, Tensor


class OutputOpMatcher:
    """Pairs the ops that paired model outputs come from.

    It matters to runs whose ops have names and types of their own, such as those of a runtime
    that fuses: there nothing else speaks for the pair.
    """

    name = "output-ops"

    def match(self, matching: Matching) -> Iterable[SyncPoint]:
        """Only ops that can be the same by their types: where the target lacks its last op, the
        op before it gives the output and is not that op."""
        makers = _Makers(matching.target), _Makers(matching.reference)
        for pair in list(matching.pairs):
            if pair.target.role is not Role.MODEL_OUTPUT:
                continue
            mine = makers[0].of(matching.target.run.tensor(pair.target))
            other = makers[1].of(matching.reference.run.tensor(pair.reference))
            if mine is None or other is None or mine.shape != other.shape:
                continue
            if makers[0].can_be(mine, makers[1], other):
                evidence = "ops that give the same model output"
                yield SyncPoint(mine.key, other.key, evidence, confidence=pair.confidence)


def pair_by_model_output(work: Workspace) -> bool:
    """Ops of one kind that make the same output of the model. Where everything before an output
    is off and fused beyond recognition, the output is still what it is."""
    done = False
    for pair in list(work.matching.pairs):
        if pair.target.role is not Role.MODEL_OUTPUT or pair.reference.role is not pair.target.role:
            continue
        mine, theirs = (
            _end(graph, key.op)
            for graph, key in zip(work.graphs, (pair.target, pair.reference), strict=True)
        )
        if mine is None or theirs is None or mine[1:] != theirs[1:]:
            continue
        said = "same kind, making the same output of the model"
        done |= work.pair(mine[0], theirs[0], said, 0.85)
    return done


def _end(graph: Graph, op: OpKey) -> tuple[Slot, str, int] | None:
    """The only result of an op with its number of elements, and what kind of op computed it:
    behind views, and a product where it adds the bias of one."""
    at = graph.position.get(op, -1)
    made = graph.outputs(at) if at >= 0 else []
    if len(made) != 1:
        return None
    return made[0], graph.kind_of(graph.root(made[0])), graph.count(made[0])


class _Makers:
    """The op outputs of one side that model outputs are other names of."""

    def __init__(self, side: Side) -> None:
        self._run = side.run
        names = {t.alias_of for t in side.others if t.key.role is Role.MODEL_OUTPUT and t.alias_of}
        tensors = (t for op in side.ops for t in side.outputs[op.key]) if names else ()
        self._by_text = {str(t.key): t for t in tensors if str(t.key) in names}

    def of(self, output: Tensor | None) -> Tensor | None:
        """The op output that a model output is another name of."""
        return self._by_text.get(output.alias_of) if output is not None else None

    def can_be(self, mine: Tensor, others: _Makers, other: Tensor) -> bool:
        """Whether an op of this side may be one of the other side: of the same class, or one of
        them without a type, or of a type of its own that may stand for any class."""
        types = self._type(mine), others._type(other)
        if not all(types) or op_class(types[0]) == op_class(types[1]):
            return True
        return sum(map(is_classified, types)) == 1

    def _type(self, tensor: Tensor) -> str:
        op = self._run.op(tensor.key.op)
        return op.type if op is not None else ""
