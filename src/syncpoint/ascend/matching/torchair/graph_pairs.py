"""Pair the graphs of two TorchAir dumps, and graphs with their graph files, by the ops that they
share; refuse a folder with several dumps mixed."""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.graph_text import DynamoGraph
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames, fx_nodes
from syncpoint.errors import InputError
from syncpoint.run.model import Op
from syncpoint.run.reader import Run


def ops_by_graph(run: Run) -> dict[str, list[Op]]:
    """The ops of a dump by graph."""
    ops: dict[str, list[Op]] = {}
    for op in run.ops:
        ops.setdefault(op.key.graph, []).append(op)
    return dict(sorted(ops.items(), key=lambda pair: (len(pair[0]), pair[0])))


def assign_graph_files(run: Run, graphs: Sequence[DynamoGraph]) -> dict[str, DynamoGraph]:
    """For each graph of the dump, the graph file with most of its ops; among equals, the file at
    the same position."""
    assigned: dict[str, DynamoGraph] = {}
    names = [GraphNames(graph) for graph in graphs]
    for position, (graph, ops) in enumerate(ops_by_graph(run).items()):
        scores = [sum(each.find(op.key.op) is not None for op in ops) for each in names]
        best = _best_index(scores, position)
        if best is not None:
            assigned[graph] = graphs[best]
    return assigned


def pair_graphs(
    target: Run, reference: Run, graphs: dict[str, DynamoGraph], fx: bool
) -> dict[str, str | None]:
    """For each graph of the target, the graph of the reference that shares most of its ops."""
    reference_ops = ops_by_graph(reference)
    reference_names = {
        graph: {escape_name(op.key.op) for op in ops} for graph, ops in reference_ops.items()
    }
    pairs: dict[str, str | None] = {}
    target_ops = ops_by_graph(target)
    for position, (graph, ops) in enumerate(target_ops.items()):
        graph_file = graphs.get(graph)
        names = {escape_name(op.key.op) for op in ops}
        if graph_file is not None:
            file_ops = graph_file.ops.values()
            names = {
                escape_name(name) for op in file_ops for name in (fx_nodes(op) if fx else [op.name])
            }
        scores = [len(names & others) for others in reference_names.values()]
        best_graphs = [
            name
            for name, score in zip(reference_names, scores, strict=True)
            if score == max(scores)
        ]
        if fx and len(best_graphs) > len(target_ops) and max(scores):
            _refuse_mixed({name: reference_ops[name] for name in best_graphs}, reference)
        best = _best_index(scores, position)
        pairs[graph] = None if best is None else list(reference_names)[best]
    return pairs


def _refuse_mixed(graphs: dict[str, list[Op]], run: Run) -> None:
    """Raise an InputError if several graphs of one token have the same ops: they come from
    several dumps in one folder."""
    graph_by_part: dict[str, str] = {}
    for graph, ops in graphs.items():
        for part in {part for op in ops for part in op.attributes["parts"]}:
            other = graph_by_part.setdefault(part, graph)
            if other != graph:
                raise InputError(
                    f"{run.path} holds several dumps: {other} and {graph} have the same ops in"
                    f" {part or 'one token'}",
                    cure="dump each execution to a path of its own",
                )


def _best_index(scores: Sequence[int], position: int) -> int | None:
    """The index of the highest score, preferably this position; None if all others are 0."""
    if not scores:
        return None
    highest = max(scores)
    if position < len(scores) and scores[position] == highest:
        return position
    return scores.index(highest) if highest else None
