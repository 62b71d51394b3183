"""A model as one flat FX graph that is free of mutation: what is captured and evaluated.

torch.export gives the graph with file:line and module path on every node. Regions under
`no_grad` and `autocast` come as sub-graphs; they are unfolded here, and a node that ran under
autocast remembers so. A graph that writes in place is functionalised first, so that a recorded
input is never the value from before a later write.
"""

from __future__ import annotations

import contextlib
import io
import logging
import operator
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch_names import Edges, frames, is_op, is_tensor, mutates, path_text

AUTOCAST = "syncpoint_autocast"
"""Key in a node's meta: the arguments of the autocast it ran under."""


@dataclass
class Program:
    """One exported form of a model, for inputs of one shape and type."""

    module: GraphModule
    edges: Edges
    placeholders: tuple[tuple[str, str], ...]
    """Name of the node and path the user knows, in the order of the flattened inputs."""
    outputs: tuple[str, ...]
    """Path the user knows of every flattened output."""
    originals: Mapping[str, tuple[str, ...]]
    """Node -> names of the nodes it was made from, where functionalising renamed them."""
    notes: tuple[str, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict)
    """The nodes that are ops, by name."""
    learns: set[Edge] = field(default_factory=set)
    """Tensors that required gradients in the last run; export does not know it of all."""
    scalars: dict[str, Any] = field(default_factory=dict)
    """Values of nodes that are numbers, from the last run; `AMBIGUOUS` if runs disagreed."""

    def __post_init__(self) -> None:
        self.nodes = {node.name: node for node in self.module.graph.nodes if is_op(node)}
        self._parameters: dict[Edge, torch.Tensor] = {
            edge: attribute(self.module, str(node.target))
            for node in self.module.graph.nodes
            if node.op == "get_attr" and (edge := self.edges.of(node)) is not None
        }
        self._values = {
            edge: node.meta.get("val")
            for node in self.module.graph.nodes
            if (edge := self.edges.of(node)) is not None and is_tensor(node)
        }

    def parameters(self) -> Iterator[tuple[Edge, torch.Tensor]]:
        """Each parameter, buffer and constant that an op reads, once."""
        yield from self._parameters.items()

    def parameter(self, edge: Edge) -> torch.Tensor:
        """The parameter, buffer or constant behind an edge."""
        return self._parameters[edge]

    def expected(self, edge: Edge) -> torch.Tensor | None:
        """A tensor without values that has the type and shape the export saw at an edge."""
        value = self._values.get(edge)
        return value if isinstance(value, torch.Tensor) else None


AMBIGUOUS = object()
"""Stands for a number that differed between two runs of one program."""


def attribute(module: torch.nn.Module, target: str) -> Tree:
    """What a get_attr node fetches."""
    found: Any = module
    for name in target.split("."):
        found = getattr(found, name)
    return found


def export(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: tuple[str, ...],
    strict: bool = False,
) -> Program:
    """The program of a model for these inputs; `names` are its parameters' names by position."""
    notes: list[str] = []
    with quiet():
        exported = torch.export.export(model, args, kwargs, strict=strict)
        originals: dict[str, tuple[str, ...]] = {}
        if any(mutates(node) for node in _all_nodes(exported.graph_module)):
            before = [node for node in _all_nodes(exported.graph_module) if is_op(node)]
            exported = exported.run_decompositions({})
            originals = _trace_back(before, exported.graph_module)
            notes.append("in-place ops were made functional before capture")
        module = _flat(exported.module(check_guards=False))
    leaves_with_paths, _ = pytree.tree_flatten_with_path((args, kwargs))
    inputs = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    paths = [input_path(path, names) for path, _ in leaves_with_paths]
    assert len(inputs) == len(paths), (inputs, paths)
    return Program(
        module,
        Edges(_parameter_names(model, module)),
        tuple(zip(inputs, paths, strict=True)),
        _output_paths(exported.call_spec.out_spec),
        originals,
        tuple(notes),
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Export tells of its troubles on every channel there is; we tell of them in our own words."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


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


def _parameter_names(model: torch.nn.Module, module: GraphModule) -> dict[str, str]:
    """Target of a get_attr node -> the first name the model itself has for that tensor."""
    first: dict[int, str] = {}
    for source in (model.named_parameters, model.named_buffers):
        for name, tensor in source(remove_duplicate=False):
            first.setdefault(id(tensor), name)
    aliases: dict[str, str] = {}
    for source in (model.named_parameters, model.named_buffers):
        for name, tensor in source(remove_duplicate=False):
            aliases[name] = first[id(tensor)]
    found = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and isinstance(attribute(module, str(node.target)), torch.Tensor):
            found[str(node.target)] = aliases.get(str(node.target), str(node.target))
    return found


def input_path(path: tuple[Any, ...], names: tuple[str, ...]) -> str:
    """A leaf of (args, kwargs) as the user knows it: by the name of the parameter."""
    side, which, rest = path[0].idx, path[1], path[2:]
    if side == 1:
        root = str(which.key)
    else:
        root = names[which.idx] if which.idx < len(names) else f"args[{which.idx}]"
    return path_text(root, rest)


def _output_paths(spec: pytree.TreeSpec) -> tuple[str, ...]:
    places = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    return tuple(path_text("out", path) for path, _ in pytree.tree_flatten_with_path(places)[0])


def model_input(name: str) -> Edge:
    """The edge of a model input by the name of its placeholder."""
    return Edge(OpKey(name), role=Role.MODEL_INPUT)
