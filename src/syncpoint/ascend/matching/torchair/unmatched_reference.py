"""Entries for what the reference has and nothing was compared with: ops, tensors and tokens."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

from syncpoint.ascend.dumps.torchair_run import TreeRun
from syncpoint.ascend.matching.torchair.graph_plan import GraphEntry
from syncpoint.ascend.matching.torchair.reference_lookup import Others
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Op, Part, Role


def unmatched_ops(graph: str, others: Others) -> Iterator[GraphEntry]:
    """Ops of the other side that nothing was compared with."""
    for name, op in others.ops.items():
        tensors = others.tensors.get(op.key, {})
        if any(t.key in others.used for t in tensors.values()):
            continue
        words = others.explained.get(name, "the device's dump has no op for it")
        yield _reference_line(graph, others.part, name, op, words)


def unmatched_tensors(graph: str, others: Others, name: str, role: Role) -> Iterator[GraphEntry]:
    """Tensors of an op of the other side beyond those of the device's op."""
    op = others.op(name)
    for (r, index), tensor in others.tensors.get(op.key, {}).items() if op else ():
        if r is role and tensor.key not in others.used and op is not None:
            others.used.add(tensor.key)
            words = f"the device's op has no {role} {index}"
            line = _reference_line(graph, others.part, name, op, words)
            yield replace(line, reference=tensor)


def unmatched_tokens(reference: TreeRun, seen: Container[tuple[str, Part]]) -> Iterator[GraphEntry]:
    """Tokens of the other side that the device's dump does not have."""
    graphs = dict.fromkeys(op.key.graph for op in reference.run.ops)
    for graph in graphs:
        for part in graph_parts(reference, graph):
            if (graph, part) not in seen:
                what = f"graph {graph}, token {part.step}" if graph else f"token {part.step}"
                words = f"the device's dump has no {what}"
                yield GraphEntry(
                    index=0,
                    type="",
                    target_names=(),
                    reference_names=(graph or "graph",),
                    reason=ReasonCode.NO_TARGET_VALUE,
                    words=words,
                    part=part,
                    graph=graph,
                    extra=True,
                )


def _reference_line(graph: str, part: Part, name: str, op: Op, words: str) -> GraphEntry:
    return GraphEntry(
        index=0,
        type=op.type,
        target_names=(),
        reference_names=(name,),
        reason=ReasonCode.NO_TARGET_VALUE,
        words=words,
        part=part,
        graph=graph,
        extra=True,
        place=name,
    )


def graph_parts(side: TreeRun, graph: str) -> list[Part]:
    """The tokens of a graph, in order."""
    named = len({op.key.graph for op in side.run.ops}) > 1
    return sorted(
        {
            Part(step=leaf.token, rank=leaf.rank)
            for leaf in side.tree.leaves
            if not named or leaf.graph == graph
        }
    )
