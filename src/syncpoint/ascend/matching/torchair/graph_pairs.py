"""Which graph of one dump of TorchAir is which graph of the other."""

from __future__ import annotations

from collections.abc import Sequence

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.graph_text import DynamoGraph
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames, fx_nodes
from syncpoint.errors import InputError
from syncpoint.run.model import Op
from syncpoint.run.reader import Run


def ops_by_graph(run: Run) -> dict[str, list[Op]]:
    """The ops of a dump by the graph that they belong to."""
    found: dict[str, list[Op]] = {}
    for op in run.ops:
        found.setdefault(op.key.graph, []).append(op)
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def graphs_of(run: Run, graphs: Sequence[DynamoGraph]) -> dict[str, DynamoGraph]:
    """For each graph of the dump the file that knows most of its ops; of those that know as many,
    the one in the same place of their order."""
    found: dict[str, DynamoGraph] = {}
    names = [GraphNames(graph) for graph in graphs]
    for at, (graph, ops) in enumerate(ops_by_graph(run).items()):
        scores = [sum(n.find(op.key.op) is not None for op in ops) for n in names]
        best = _best(scores, at)
        if best is not None:
            found[graph] = graphs[best]
    return found


def find_partners(
    mine: Run, theirs: Run, graphs: dict[str, DynamoGraph], fx: bool
) -> dict[str, str | None]:
    """For each graph of the target the one of the other side that shares most of its ops."""
    sides = ops_by_graph(theirs)
    names = {graph: {escape_name(op.key.op) for op in ops} for graph, ops in sides.items()}
    found: dict[str, str | None] = {}
    own = ops_by_graph(mine)
    for at, (graph, ops) in enumerate(own.items()):
        known = graphs.get(graph)
        wanted = {escape_name(op.key.op) for op in ops}
        if known is not None:
            every = known.ops.values()
            wanted = {escape_name(n) for op in every for n in (fx_nodes(op) if fx else [op.name])}
        scores = [len(wanted & there) for there in names.values()]
        alike = [name for name, score in zip(names, scores, strict=True) if score == max(scores)]
        if fx and len(alike) > len(own) and max(scores):
            _refuse_mixed({name: sides[name] for name in alike}, theirs)
        best = _best(scores, at)
        found[graph] = None if best is None else list(names)[best]
    return found


def _refuse_mixed(graphs: dict[str, list[Op]], run: Run) -> None:
    """Several graphs of one token that have the same ops are of several dumps in one folder."""
    seen: dict[str, str] = {}
    for graph, ops in graphs.items():
        for part in {part for op in ops for part in op.attributes["parts"]}:
            other = seen.setdefault(part, graph)
            if other != graph:
                raise InputError(
                    f"one dump of each graph in {run.path}",
                    f"{other} and {graph} with the same ops in {part or 'one token'}",
                    "dump each execution to a path of its own",
                )


def _best(scores: Sequence[int], at: int) -> int | None:
    if not scores:
        return None
    most = max(scores)
    if at < len(scores) and scores[at] == most:
        return at
    return scores.index(most) if most else None
