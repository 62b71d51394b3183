"""Export a model with torch.export to one flat FX graph without in-place ops and `no_grad`
sub-graphs; original nodes; form (signature) of its inputs.

torch.export gives every node its file:line and module path. Regions under `no_grad` and
`autocast` are sub-graphs; they are unfolded here, and a node under autocast is marked. A graph
with in-place ops is functionalised first, so that no later write changes a recorded input.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.in_place_writes import is_in_place
from syncpoint.runtimes.torch.inputs import Args, Kwargs
from syncpoint.runtimes.torch.node_metadata import (
    AUTOCAST,
    fetch_attribute,
    find_source_frames,
    is_op,
)
from syncpoint.runtimes.torch.program import Edges, Observations, TorchProgram
from syncpoint.runtimes.torch.silence import silence_torch
from syncpoint.runtimes.torch.states_and_steps import named_tensors, tensor_identity
from syncpoint.runtimes.torch.tree_paths import input_path, output_paths


def export_program(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: tuple[str, ...],
    strict: bool = False,
) -> TorchProgram:
    """The program of a model for these inputs; `names` are the positional parameters."""
    with silence_torch():
        exported = torch.export.export(model, args, kwargs, strict=strict)
    return make_program(exported, (args, kwargs), names, named_tensors(model))


def make_program(
    exported: ExportedProgram,
    inputs: Tree,
    names: tuple[str, ...],
    tensors: Iterable[tuple[str, torch.Tensor]],
) -> TorchProgram:
    """The program of an exported model.

    `inputs` is (args, kwargs) or anything of the same structure. `tensors` are the parameters and
    buffers in the order of the model: a tensor with several names gets the first one.
    """
    notes: list[str] = []
    with silence_torch():
        originals: dict[str, tuple[str, ...]] = {}
        if any(is_in_place(node) for node in _iterate_nodes(exported.graph_module)):
            nodes_before = [node for node in _iterate_nodes(exported.graph_module) if is_op(node)]
            exported = exported.run_decompositions({})
            originals = _map_to_originals(nodes_before, exported.graph_module)
            notes.append("in-place ops were made functional before capture")
        module = _flatten_graph(exported.module(check_guards=False))
    leaves_with_paths, _ = pytree.tree_flatten_with_path(inputs)
    input_names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    paths = [input_path(path, names) for path, _ in leaves_with_paths]
    assert len(input_names) == len(paths), (input_names, paths)
    attributes = {
        str(node.target): fetch_attribute(module, str(node.target))
        for node in module.graph.nodes
        if node.op == "get_attr"
    }
    return TorchProgram(
        graph=module.graph,
        edges=Edges(_parameter_names(tensors, attributes)),
        attributes=attributes,
        placeholders=tuple(zip(input_names, paths, strict=True)),
        outputs=output_paths(exported.call_spec.out_spec),
        originals=originals,
        notes=tuple(notes),
        module=module,
        observed=Observations(keeps_meta_tensors=bool(exported.range_constraints)),
    )


def _iterate_nodes(module: torch.nn.Module) -> Iterator[Node]:
    for inner in module.modules():
        if isinstance(inner, GraphModule):
            yield from inner.graph.nodes


def _flatten_graph(module: GraphModule) -> GraphModule:
    """A copy of the graph with the sub-graphs of `no_grad` and `autocast` unfolded into it."""
    graph = Graph()
    outputs = _unfold(graph, module, module, "", {}, None)
    graph.output(outputs)
    graph.eliminate_dead_code(lambda node: node.op != "get_attr" or bool(node.users))
    flat = GraphModule(module, graph)
    return flat


def _unfold(
    graph: Graph,
    root: GraphModule,
    owner: GraphModule,
    prefix: str,
    env: dict[Node, Any],
    autocast: tuple[Any, ...] | None,
) -> Tree:
    """Copy the nodes of `owner` to the end of `graph`; returns the outputs of `owner`."""
    hops = torch.ops.higher_order
    for node in owner.graph.nodes:
        if node in env:
            continue
        if node.op == "output":
            return pytree.tree_map(lambda a: env[a] if isinstance(a, Node) else a, node.args[0])
        if node.op == "call_module":
            continue
        if node.op == "call_function" and node.target in (
            hops.wrap_with_set_grad_enabled,
            hops.wrap_with_autocast,
        ):
            graph_position = 1 if node.target is hops.wrap_with_set_grad_enabled else 4
            context = autocast if graph_position == 1 else tuple(node.args[:4])
            inner_name = str(node.args[graph_position].target)
            inner = fetch_attribute(owner, inner_name)
            operands = [
                env[a] if isinstance(a, Node) else a for a in node.args[graph_position + 1 :]
            ]
            inner_placeholders = [n for n in inner.graph.nodes if n.op == "placeholder"]
            inner_env: dict[Node, Any] = dict(zip(inner_placeholders, operands, strict=True))
            env[node] = _unfold(graph, root, inner, f"{prefix}{inner_name}.", inner_env, context)
            continue
        if node.op == "call_function" and node.target is operator.getitem:
            source = env[node.args[0]]
            if not isinstance(source, Node):
                env[node] = source[node.args[1]]
                continue
        copy = graph.node_copy(node, lambda a, env=env: env[a])  # type: ignore[misc]
        if node.op == "get_attr":
            copy.target = f"{prefix}{node.target}"
        if autocast is not None:
            copy.meta[AUTOCAST] = autocast
        env[node] = copy
    return None


def _map_to_originals(before: list[Node], after: GraphModule) -> dict[str, tuple[str, ...]]:
    """Map each node after functionalisation to the nodes it was made from.

    Both carry the call they come from (`torch_fn`). Where one call made several nodes, those of
    the same op, in place or not, belong together. Nodes that were unfolded from a sub-graph carry
    no call; they are matched by op and order. The casts that autocast put before an op get the
    source lines of that op.
    """
    by_call: dict[Any, list[Node]] = {}
    for node in before:
        by_call.setdefault(node.meta.get("torch_fn"), []).append(node)
    top = before[0].graph if before else None
    subgraph_nodes = [node for node in before if node.graph is not top]
    originals: dict[str, tuple[str, ...]] = {}
    nodes_without_source: list[Node] = []
    for node in after.graph.nodes:
        if node.op != "call_function":
            continue
        if find_source_frames(node):
            nodes_of_call = by_call.get(node.meta.get("torch_fn"), [])
            same_op = [n for n in nodes_of_call if _op_name(n) == _op_name(node)]
            originals[node.name] = tuple(n.name for n in same_op or nodes_of_call)
            continue
        nodes_without_source.append(node)
        source = next((n for n in subgraph_nodes if _op_name(n) == _op_name(node)), None)
        if source is not None:
            subgraph_nodes.remove(source)
            for other in nodes_without_source:
                for key in ("stack_trace", "nn_module_stack"):
                    other.meta[key] = source.meta.get(key)
            originals[node.name] = (source.name,)
            nodes_without_source = []
    return originals


def _op_name(node: Node) -> str:
    target = node.target
    return target._schema.name.rstrip("_") if isinstance(target, torch._ops.OpOverload) else ""


def _parameter_names(
    tensors: Iterable[tuple[str, torch.Tensor]], attributes: Mapping[str, Any]
) -> dict[str, str]:
    """Target of a get_attr node -> the first name of that tensor in the model."""
    first_names: dict[Any, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors:
        aliases[name] = first_names.setdefault(tensor_identity(tensor), name)
    return {
        target: aliases.get(target, target)
        for target, value in attributes.items()
        if isinstance(value, torch.Tensor)
    }


def input_signature(args: Args, kwargs: Kwargs, more: Tree) -> Tree:
    """The form of the inputs that a program depends on: structure, dtypes, shapes, strides."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return (str(spec), tuple(_leaf_signature(leaf) for leaf in leaves), more)


def _leaf_signature(leaf: Tree) -> Tree:
    """The form of one input that a program depends on."""
    if isinstance(leaf, torch.Tensor):
        return (leaf.dtype, tuple(leaf.shape), tuple(leaf.stride()))
    return repr(leaf)
