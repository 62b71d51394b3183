"""Open two TorchAir dumps, match their ranks, pair their graphs, plan the comparison of each rank,
and give ops their inputs as edges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from syncpoint.ascend.dumps.graph_text import DynamoGraph
from syncpoint.ascend.dumps.torchair_run import TreeRun, tree_run
from syncpoint.ascend.dumps.torchair_tree import DumpKind, Tree, find_tree
from syncpoint.ascend.matching.logical_run import logical_run
from syncpoint.ascend.matching.torchair.fused_ops import GraphNames, external_inputs
from syncpoint.ascend.matching.torchair.graph_pairs import assign_graph_files, pair_graphs
from syncpoint.ascend.matching.torchair.plan_against_fx import FxPlanner
from syncpoint.ascend.matching.torchair.plan_against_unfused_ge import GePlanner
from syncpoint.ascend.matching.torchair.planner import GraphPlan, GraphPlanner
from syncpoint.ascend.mode.torchair.derived_tensors import add_derived, reduce_to_min_max
from syncpoint.ascend.mode.torchair.options import TorchairFlags
from syncpoint.dumps.environment_file import add_environment
from syncpoint.errors import InputError
from syncpoint.run.model import Edge, OpKey, RunInfo
from syncpoint.run.reader import Run, in_memory


@dataclass(frozen=True, kw_only=True)
class TorchairCase:
    """One rank of two dumps, and the plan of its comparison."""

    rank: int
    """-1 if the folders name no rank."""
    target: Run
    reference: Run
    stored: tuple[TreeRun, TreeRun]
    """Both dumps as they are on disk."""
    plan: GraphPlan
    fx: bool
    warnings: tuple[str, ...] = ()


def open_cases(flags: TorchairFlags) -> Iterable[TorchairCase]:
    """The case of every rank of the target, one after the other."""
    target = find_tree(flags.target, "--target_path")
    golden = find_tree(flags.golden, "--golden_path")
    if target.kind is DumpKind.FX:
        raise InputError(
            f"--target_path must be a GE dump; {flags.target} is an FX dump",
            cure="swap the two paths"
            if golden.kind is DumpKind.GE
            else "dump the model in GE mode",
        )
    if not target.graphs and not golden.graphs:
        raise InputError(
            f"there is no graph file dynamo_original_graph_*.txt in {flags.target}",
            cure="dump with graph_dump.type = txt, or copy the file into the folder of the dump",
        )
    golden = _match_ranks(target, golden)
    golden_only = [rank for rank in golden.ranks if rank not in target.ranks]
    warnings = [f"rank {rank} is in the golden dump only" for rank in golden_only]
    return (_open_case(target, golden, rank, tuple(warnings)) for rank in target.ranks)


def _match_ranks(target: Tree, golden: Tree) -> Tree:
    """The golden dump with the ranks of the target. If both have one rank, one may be unnamed."""
    if len(target.ranks) == 1 == len(golden.ranks) and -1 in (target.ranks + golden.ranks):
        leaves = [replace(leaf, rank=target.ranks[0]) for leaf in golden.leaves]
        graphs = [replace(graph, rank=-1) for graph in golden.graphs]
        return replace(golden, leaves=tuple(leaves), graphs=tuple(graphs))
    if not set(target.ranks) & set(golden.ranks):
        raise InputError(
            f"the dumps have no rank in common: {_ranks_text(target)} in {target.root},"
            f" {_ranks_text(golden)} in {golden.root}",
            cure="give the path of one rank on each side",
        )
    return golden


def _ranks_text(tree: Tree) -> str:
    ranks = [str(rank) for rank in tree.ranks if rank >= 0]
    return f"rank {', '.join(ranks)}" if ranks else "no rank"


def _open_case(target: Tree, golden: Tree, rank: int, warnings: tuple[str, ...]) -> TorchairCase:
    stored = (_read_rank(target, rank), _read_rank(golden, rank))
    target_dump = replace(stored[0], run=logical_run(stored[0].run))
    fx = golden.kind is DumpKind.FX
    golden_dump = stored[1] if fx else replace(stored[1], run=logical_run(stored[1].run))
    target_graphs = [DynamoGraph.load(target.root / graph.path) for graph in stored[0].tree.graphs]
    golden_graphs = [DynamoGraph.load(golden.root / graph.path) for graph in stored[1].tree.graphs]
    graphs = assign_graph_files(target_dump.run, target_graphs or golden_graphs)
    partners = pair_graphs(target_dump.run, golden_dump.run, graphs, fx)
    planner: type[GraphPlanner] = FxPlanner if fx else GePlanner
    planner_graphs = graphs
    if not fx:
        planner_graphs = assign_graph_files(target_dump.run, golden_graphs or target_graphs)
    plan = planner(target_dump, golden_dump, planner_graphs, partners).plan()
    run = _add_edges(target_dump.run, graphs)
    reference = add_derived(golden_dump.run, target_dump.run, plan)
    if not golden_dump.run.ops:
        reference = in_memory(RunInfo(model=str(golden.root)), [], [])
    return TorchairCase(
        rank=rank,
        target=reduce_to_min_max(run, plan.min_max_only),
        reference=reference,
        stored=stored,
        plan=plan,
        fx=fx,
        warnings=warnings,
    )


def _read_rank(tree: Tree, rank: int) -> TreeRun:
    """One rank of a dump, with the environment from the `env.json` of the dump."""
    dump = tree_run(tree, rank)
    return replace(dump, run=add_environment(dump.run, tree.root))


def _add_edges(run: Run, graphs: dict[str, DynamoGraph]) -> Run:
    """The run with the inputs of its ops by the graph. Edges tell where an error arises and where
    it is only passed on."""
    last_key: dict[tuple[str, str], OpKey] = {}
    for op in run.ops:
        last_key[op.key.graph, op.key.op] = op.key
    parts_by_op = {}
    op_by_part: dict[tuple[str, str], OpKey] = {}
    names = {graph: GraphNames(graph_file) for graph, graph_file in graphs.items()}
    for (graph, name), key in last_key.items():
        parts = names[graph].parts(name) if graph in names else ()
        parts_by_op[key] = parts
        for part in parts:
            op_by_part[graph, part.name] = key
    inputs: dict[OpKey, tuple[Edge, ...]] = {}
    for key, parts in parts_by_op.items():
        edges = []
        for external in external_inputs(parts):
            producer_name, index = external.op.inputs[external.index]
            producer = op_by_part.get((key.graph, producer_name))
            if producer is not None and producer != key:
                edges.append(Edge(producer, index))
        inputs[key] = tuple(edges)
    return run.with_ops(
        [replace(op, inputs=inputs[op.key]) if op.key in inputs else op for op in run.ops]
    )
