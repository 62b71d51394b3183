"""Which two dumps these are, which graphs of them belong together, and what is paired in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from syncpoint.dumps.ascend.file_names import escaped
from syncpoint.dumps.ascend.graph_text import Graph
from syncpoint.dumps.ascend.torchair_run import TreeRun, tree_run
from syncpoint.dumps.ascend.torchair_tree import Kind, Tree, find_tree
from syncpoint.errors import InputError
from syncpoint.matching.ascend.by_graph import GraphPlanner
from syncpoint.matching.ascend.by_graph_fx import FxPlanner
from syncpoint.matching.ascend.by_graph_ge import GePlanner
from syncpoint.matching.ascend.graph_names import GraphNames, fx_nodes, outside_inputs
from syncpoint.matching.ascend.graph_plan import GraphPlan
from syncpoint.matching.ascend.logical import logical
from syncpoint.offline.torchair.asked import Asked
from syncpoint.offline.torchair.sides import shrunk, with_derived
from syncpoint.run.model import Edge, Op, OpKey, RunInfo
from syncpoint.run.reader import Run, in_memory


@dataclass(frozen=True)
class Case:
    """One rank of two dumps, and what in it belongs together."""

    rank: int
    """-1 where the folders say none."""
    target: Run
    reference: Run
    stored: tuple[TreeRun, TreeRun]
    """Both as they lie on disk."""
    plan: GraphPlan
    fx: bool
    warnings: tuple[str, ...] = ()


def opened(asked: Asked) -> Iterable[Case]:
    """One case after the other, for every rank of the target."""
    target = find_tree(asked.target, "--target_path")
    golden = find_tree(asked.golden, "--golden_path")
    if target.kind is Kind.FX:
        raise InputError(
            "a GE dump as --target_path",
            f"an FX dump in {asked.target}",
            "swap them" if golden.kind is Kind.GE else "dump the model in GE mode",
        )
    if not target.graphs and not golden.graphs:
        raise InputError(
            f"a graph dynamo_original_graph_*.txt in {asked.target}",
            "none",
            "dump with graph_dump.type = txt, or copy the file into the folder of the dump",
        )
    golden = _same_ranks(target, golden)
    absent = [rank for rank in golden.ranks if rank not in target.ranks]
    warnings = [f"rank {rank} is in the golden dump only" for rank in absent]
    return (_case(target, golden, rank, tuple(warnings)) for rank in target.ranks)


def _same_ranks(target: Tree, golden: Tree) -> Tree:
    """Folders of one side may name the only rank there is, and those of the other none."""
    if len(target.ranks) == 1 == len(golden.ranks) and -1 in (target.ranks + golden.ranks):
        leaves = [replace(leaf, rank=target.ranks[0]) for leaf in golden.leaves]
        graphs = [replace(graph, rank=-1) for graph in golden.graphs]
        return replace(golden, leaves=tuple(leaves), graphs=tuple(graphs))
    if not set(target.ranks) & set(golden.ranks):
        raise InputError(
            "the same ranks in both dumps",
            f"{_ranks(target)} in {target.root} and {_ranks(golden)} in {golden.root}",
            "name the folder of one rank on each side",
        )
    return golden


def _ranks(tree: Tree) -> str:
    named = [str(rank) for rank in tree.ranks if rank >= 0]
    return f"rank {', '.join(named)}" if named else "no rank"


def _case(target: Tree, golden: Tree, rank: int, warnings: tuple[str, ...]) -> Case:
    stored = (tree_run(target, rank), tree_run(golden, rank))
    mine = replace(stored[0], run=logical(stored[0].run))
    fx = golden.kind is Kind.FX
    theirs = stored[1] if fx else replace(stored[1], run=logical(stored[1].run))
    own = [Graph.load(target.root / g.path) for g in stored[0].tree.graphs]
    others = [Graph.load(golden.root / g.path) for g in stored[1].tree.graphs]
    graphs = _graphs_of(mine.run, own or others)
    partners = _partners(mine.run, theirs.run, graphs, fx)
    kind: type[GraphPlanner] = FxPlanner if fx else GePlanner
    said = graphs if fx else _graphs_of(mine.run, others or own)
    plan = kind(mine, theirs, said, partners).plan()
    run = _with_edges(mine.run, graphs)
    reference = with_derived(theirs.run, mine.run, plan)
    if not theirs.run.ops:
        reference = in_memory(RunInfo(model=str(golden.root)), [], [])
    return Case(rank, shrunk(run, plan.shrunk), reference, stored, plan, fx, warnings)


def _graphs(run: Run) -> dict[str, list[Op]]:
    found: dict[str, list[Op]] = {}
    for op in run.ops:
        found.setdefault(op.key.graph, []).append(op)
    return dict(sorted(found.items(), key=lambda item: (len(item[0]), item[0])))


def _graphs_of(run: Run, graphs: Sequence[Graph]) -> dict[str, Graph]:
    """For each graph of the dump the file that knows most of its ops; of those that know as many,
    the one in the same place of their order."""
    found: dict[str, Graph] = {}
    names = [GraphNames(graph) for graph in graphs]
    for at, (graph, ops) in enumerate(_graphs(run).items()):
        scores = [sum(n.find(op.key.op) is not None for op in ops) for n in names]
        best = _best(scores, at)
        if best is not None:
            found[graph] = graphs[best]
    return found


def _partners(mine: Run, theirs: Run, graphs: dict[str, Graph], fx: bool) -> dict[str, str | None]:
    """For each graph of the target the one of the other side that shares most of its ops."""
    sides = _graphs(theirs)
    names = {graph: {escaped(op.key.op) for op in ops} for graph, ops in sides.items()}
    found: dict[str, str | None] = {}
    own = _graphs(mine)
    for at, (graph, ops) in enumerate(own.items()):
        known = graphs.get(graph)
        wanted = {escaped(op.key.op) for op in ops}
        if known is not None:
            every = known.ops.values()
            wanted = {escaped(n) for op in every for n in (fx_nodes(op) if fx else [op.name])}
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


def _with_edges(run: Run, graphs: dict[str, Graph]) -> Run:
    """The run with what its ops read, as the graph has it: so it can be told where an error came
    in and where it was only passed on."""
    last: dict[tuple[str, str], OpKey] = {}
    for op in run.ops:
        last[op.key.graph, op.key.op] = op.key
    parts = {}
    maker: dict[tuple[str, str], OpKey] = {}
    names = {graph: GraphNames(said) for graph, said in graphs.items()}
    for (graph, name), key in last.items():
        found = names[graph].parts(name) if graph in names else ()
        parts[key] = found
        for part in found:
            maker[graph, part.name] = key
    inputs: dict[OpKey, tuple[Edge, ...]] = {}
    for key, found in parts.items():
        edges = []
        for outside in outside_inputs(found):
            producer, index = outside.op.inputs[outside.place]
            made = maker.get((key.graph, producer))
            if made is not None and made != key:
                edges.append(Edge(made, index))
        inputs[key] = tuple(edges)
    known = [replace(op, inputs=inputs[op.key]) if op.key in inputs else op for op in run.ops]
    return run.with_ops(known)
