"""A model through torch.export, as one flat FX graph that is free of mutation.

torch.export gives the graph with file:line and module path on every node. Regions under
`no_grad` and `autocast` come as sub-graphs; they are unfolded here, and a node that ran under
autocast remembers so. A graph that writes in place is functionalised first, so that a recorded
input is never the value from before a later write.
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
from syncpoint.runtimes.torch.edges import Edges
from syncpoint.runtimes.torch.in_place_writes import mutates
from syncpoint.runtimes.torch.model_tensors import identity, named_tensors
from syncpoint.runtimes.torch.node_metadata import AUTOCAST, attribute, frames, is_op
from syncpoint.runtimes.torch.program import Observed, Program
from syncpoint.runtimes.torch.silence import silence_torch
from syncpoint.runtimes.torch.tree_paths import input_path, output_paths


def export(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: tuple[str, ...],
    strict: bool = False,
) -> Program:
    """The program of a model for these inputs; `names` are its parameters' names by position."""
    with silence_torch():
        exported = torch.export.export(model, args, kwargs, strict=strict)
    return program_of(exported, (args, kwargs), names, named_tensors(model))


def program_of(
    exported: ExportedProgram,
    given: Tree,
    names: tuple[str, ...],
    tensors: Iterable[tuple[str, torch.Tensor]],
) -> Program:
    """The program of an exported model.

    `given` is (args, kwargs) or anything of the same structure; `tensors` are the parameters
    and buffers in the order in which the model has them, for what is there under two names.
    """
    notes: list[str] = []
    with silence_torch():
        originals: dict[str, tuple[str, ...]] = {}
        if any(mutates(node) for node in _all_nodes(exported.graph_module)):
            before = [node for node in _all_nodes(exported.graph_module) if is_op(node)]
            exported = exported.run_decompositions({})
            originals = _trace_back(before, exported.graph_module)
            notes.append("in-place ops were made functional before capture")
        module = _flat(exported.module(check_guards=False))
    leaves_with_paths, _ = pytree.tree_flatten_with_path(given)
    inputs = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    paths = [input_path(path, names) for path, _ in leaves_with_paths]
    assert len(inputs) == len(paths), (inputs, paths)
    fetched = {
        str(node.target): attribute(module, str(node.target))
        for node in module.graph.nodes
        if node.op == "get_attr"
    }
    return Program(
        graph=module.graph,
        edges=Edges(_parameter_names(tensors, fetched)),
        attributes=fetched,
        placeholders=tuple(zip(inputs, paths, strict=True)),
        outputs=output_paths(exported.call_spec.out_spec),
        originals=originals,
        notes=tuple(notes),
        module=module,
        observed=Observed(keeps_forms=bool(exported.range_constraints)),
    )


def _all_nodes(module: torch.nn.Module) -> Iterator[Node]:
    for inner in module.modules():
        if isinstance(inner, GraphModule):
            yield from inner.graph.nodes


def _flat(module: GraphModule) -> GraphModule:
    """The same graph with the sub-graphs of `no_grad` and `autocast` unfolded into it."""
    graph = Graph()
    result = _unfold(graph, module, module, "", {}, None)
    graph.output(result)
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
    """Copy the nodes of `owner` to the end of `graph`; gives what its output node returns."""
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
            split = 1 if node.target is hops.wrap_with_set_grad_enabled else 4
            context = autocast if split == 1 else tuple(node.args[:4])
            inner_name = str(node.args[split].target)
            inner = attribute(owner, inner_name)
            operands = [env[a] if isinstance(a, Node) else a for a in node.args[split + 1 :]]
            formal = [n for n in inner.graph.nodes if n.op == "placeholder"]
            inside: dict[Node, Any] = dict(zip(formal, operands, strict=True))
            env[node] = _unfold(graph, root, inner, f"{prefix}{inner_name}.", inside, context)
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


def _trace_back(before: list[Node], after: GraphModule) -> dict[str, tuple[str, ...]]:
    """Which nodes of the graph before functionalising each node after it was made from.

    Both carry the call they come from (`torch_fn`); where one call made several nodes, the
    nodes of the same operation, in place or not, belong together. What was unfolded from a
    sub-graph carries nothing any more and is told by operation and order; the casts that
    autocast put before an op get the place of that op.
    """
    by_call: dict[Any, list[Node]] = {}
    for node in before:
        by_call.setdefault(node.meta.get("torch_fn"), []).append(node)
    top = before[0].graph if before else None
    inner = [node for node in before if node.graph is not top]
    found: dict[str, tuple[str, ...]] = {}
    homeless: list[Node] = []
    for node in after.graph.nodes:
        if node.op != "call_function":
            continue
        if frames(node):
            made_by = by_call.get(node.meta.get("torch_fn"), [])
            same = [n for n in made_by if _operation(n) == _operation(node)]
            found[node.name] = tuple(n.name for n in same or made_by)
            continue
        homeless.append(node)
        source = next((n for n in inner if _operation(n) == _operation(node)), None)
        if source is not None:
            inner.remove(source)
            for other in homeless:
                for key in ("stack_trace", "nn_module_stack"):
                    other.meta[key] = source.meta.get(key)
            found[node.name] = (source.name,)
            homeless = []
    return found


def _operation(node: Node) -> str:
    target = node.target
    return target._schema.name.rstrip("_") if isinstance(target, torch._ops.OpOverload) else ""


def _parameter_names(
    tensors: Iterable[tuple[str, torch.Tensor]], attributes: Mapping[str, Any]
) -> dict[str, str]:
    """Target of a get_attr node -> the first name the model itself has for that tensor."""
    first: dict[Any, str] = {}
    aliases: dict[str, str] = {}
    for name, tensor in tensors:
        aliases[name] = first.setdefault(identity(tensor), name)
    return {
        target: aliases.get(target, target)
        for target, value in attributes.items()
        if isinstance(value, torch.Tensor)
    }
