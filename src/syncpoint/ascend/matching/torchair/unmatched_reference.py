"""Entries for ops, tensors and tokens of the reference that are not compared."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace

from syncpoint.ascend.dumps.torchair_run import TreeRun
from syncpoint.ascend.matching.torchair.graph_plan import GraphEntry
from syncpoint.ascend.matching.torchair.reference_lookup import ReferenceOps
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.model import Op, Part, Role


def unmatched_ops(graph: str, reference: ReferenceOps) -> Iterator[GraphEntry]:
    """Entries for the ops of which no tensor is compared."""
    for name, op in reference.ops.items():
        tensors = reference.tensors.get(op.key, {})
        if any(tensor.key in reference.used for tensor in tensors.values()):
            continue
        text = reference.why_unused.get(name, "the device's dump has no op for it")
        yield _op_entry(graph, reference.part, name, op, text)


def unmatched_tensors(
    graph: str, reference: ReferenceOps, name: str, role: Role
) -> Iterator[GraphEntry]:
    """Entries for the tensors of an op that the device op does not have."""
    op = reference.op(name)
    if op is None:
        return
    for (tensor_role, index), tensor in reference.tensors.get(op.key, {}).items():
        if tensor_role is role and tensor.key not in reference.used:
            reference.used.add(tensor.key)
            text = f"the device's op has no {role} {index}"
            entry = _op_entry(graph, reference.part, name, op, text)
            yield replace(entry, reference=tensor)


def unmatched_tokens(
    reference: TreeRun, compared: Container[tuple[str, Part]]
) -> Iterator[GraphEntry]:
    """Entries for the tokens that the dump of the device does not have."""
    graphs = dict.fromkeys(op.key.graph for op in reference.run.ops)
    for graph in graphs:
        for part in graph_parts(reference, graph):
            if (graph, part) not in compared:
                token = f"graph {graph}, token {part.step}" if graph else f"token {part.step}"
                yield GraphEntry(
                    index=0,
                    type="",
                    target_names=(),
                    reference_names=(graph or "graph",),
                    reason=ReasonCode.NO_TARGET_VALUE,
                    report_text=f"the device's dump has no {token}",
                    part=part,
                    graph=graph,
                    extra=True,
                )


def _op_entry(graph: str, part: Part, name: str, op: Op, report_text: str) -> GraphEntry:
    return GraphEntry(
        index=0,
        type=op.type,
        target_names=(),
        reference_names=(name,),
        reason=ReasonCode.NO_TARGET_VALUE,
        report_text=report_text,
        part=part,
        graph=graph,
        extra=True,
        file=name,
    )


def graph_parts(dump: TreeRun, graph: str) -> list[Part]:
    """The tokens of a graph, in order."""
    has_graphs = len({op.key.graph for op in dump.run.ops}) > 1
    return sorted(
        {
            Part(step=leaf.token, rank=leaf.rank)
            for leaf in dump.tree.leaves
            if not has_graphs or leaf.graph == graph
        }
    )
