"""Which two dumps these are, which graphs of them belong together, and what is paired in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from syncpoint.ascend.dumps.graph_text import DynamoGraph
from syncpoint.ascend.dumps.torchair_run import TreeRun, tree_run
from syncpoint.ascend.dumps.torchair_tree import DumpKind, Tree, find_tree
from syncpoint.ascend.matching.logical_run import logical
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames, outside_inputs
from syncpoint.ascend.matching.torchair.fx_planner import FxPlanner
from syncpoint.ascend.matching.torchair.ge_planner import GePlanner
from syncpoint.ascend.matching.torchair.graph_pairs import find_partners, graphs_of
from syncpoint.ascend.matching.torchair.graph_plan import GraphPlan
from syncpoint.ascend.matching.torchair.planner import GraphPlanner
from syncpoint.ascend.mode.torchair.derived_tensors import shrunk, with_derived
from syncpoint.ascend.mode.torchair.options import Asked
from syncpoint.dumps.environment_file import add_environment
from syncpoint.errors import InputError
from syncpoint.run.model import Edge, OpKey, RunInfo
from syncpoint.run.reader import Run, in_memory


@dataclass(frozen=True, kw_only=True)
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
    if target.kind is DumpKind.FX:
        raise InputError(
            "a GE dump as --target_path",
            f"an FX dump in {asked.target}",
            "swap them" if golden.kind is DumpKind.GE else "dump the model in GE mode",
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
    stored = (_read_rank(target, rank), _read_rank(golden, rank))
    mine = replace(stored[0], run=logical(stored[0].run))
    fx = golden.kind is DumpKind.FX
    theirs = stored[1] if fx else replace(stored[1], run=logical(stored[1].run))
    own = [DynamoGraph.load(target.root / g.path) for g in stored[0].tree.graphs]
    others = [DynamoGraph.load(golden.root / g.path) for g in stored[1].tree.graphs]
    graphs = graphs_of(mine.run, own or others)
    partners = find_partners(mine.run, theirs.run, graphs, fx)
    kind: type[GraphPlanner] = FxPlanner if fx else GePlanner
    said = graphs if fx else graphs_of(mine.run, others or own)
    plan = kind(mine, theirs, said, partners).plan()
    run = _with_edges(mine.run, graphs)
    reference = with_derived(theirs.run, mine.run, plan)
    if not theirs.run.ops:
        reference = in_memory(RunInfo(model=str(golden.root)), [], [])
    return Case(
        rank=rank,
        target=shrunk(run, plan.shrunk),
        reference=reference,
        stored=stored,
        plan=plan,
        fx=fx,
        warnings=warnings,
    )


def _read_rank(tree: Tree, rank: int) -> TreeRun:
    """One rank of a dump, with what `env.json` says of the whole."""
    read = tree_run(tree, rank)
    return replace(read, run=add_environment(read.run, tree.root))


def _with_edges(run: Run, graphs: dict[str, DynamoGraph]) -> Run:
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
