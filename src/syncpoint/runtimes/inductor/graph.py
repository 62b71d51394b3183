"""Convert compiled graphs to TorchProgram; name each call of a graph; where each placeholder of a
call comes from, by memory address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.inductor.compile import Compilation, CompiledGraph
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.evaluate import TorchEvaluator
from syncpoint.runtimes.torch.node_metadata import fetch_attribute
from syncpoint.runtimes.torch.program import Edges, Observations, TorchProgram
from syncpoint.runtimes.torch.tree_paths import input_path

aten = torch.ops.aten

_CONTROL_DEPS = "control_deps"
"""The op of inductor that wraps an op to fix the order of execution."""


@dataclass(frozen=True)
class PlaceholderSource:
    """What a placeholder of a compiled graph is in one call: input, parameter or other value."""

    edge: Edge | None
    """None where it is not a tensor."""
    path: str = ""
    """The path of a model input for the user."""


def make_graph_program(
    module: GraphModule, inputs: list[Any], sources: Mapping[str, PlaceholderSource], graph: str
) -> TorchProgram:
    """The program of a lowered graph.

    Inductor passes parameters as inputs. They become attributes again, to get their names in the
    model.
    """
    copy = Graph()
    owner = torch.nn.Module()
    attributes: dict[str, Any] = {}
    copied_nodes: dict[Node, Node] = {}
    placeholders: list[tuple[str, str]] = []
    parameters: dict[str, str] = {}
    edges: dict[str, Edge] = {}
    values = dict(zip(_placeholders(module), inputs, strict=True))
    ordered_ops = {node: _find_ordered_op(node, module) for node in module.graph.nodes}
    inlined_bodies = {node.args[1] for node, inner_op in ordered_ops.items() if inner_op}
    for node in module.graph.nodes:
        if node in inlined_bodies:
            continue
        inner_op = ordered_ops[node]
        if inner_op is not None:
            copied_nodes[node] = _inline_ordered_op(copy, node, inner_op, copied_nodes)
            continue
        source = sources[node.name] if node.op == "placeholder" else None
        if source is not None and source.edge is not None and source.edge.role is Role.PARAMETER:
            # Attributes get new names, since a dot would mean a nested attribute.
            name = f"given_{node.name}"
            owner.register_buffer(name, values[node.name], persistent=False)
            copied_nodes[node] = copy.get_attr(name)
            copied_nodes[node].meta = dict(node.meta)
            parameters[name] = source.edge.op.op
            attributes[name] = values[node.name]
            continue
        if node.op == "output":
            copy.output(torch.fx.map_arg(node.args[0], lambda n: copied_nodes[n]))
            continue
        copied_node = copy.node_copy(node, lambda n: copied_nodes[n])
        copied_nodes[node] = copied_node
        if source is not None:
            placeholders.append((copied_node.name, source.path))
            if source.edge is not None:
                edges[copied_node.name] = source.edge
        if node.op == "get_attr":
            value = fetch_attribute(module, str(node.target))
            name = str(node.target).replace(".", "_")
            setattr(owner, name, value)
            attributes[name] = value
            copied_node.target = name
            if isinstance(value, torch.Tensor):
                parameters[name] = f"{graph}.{name}" if graph else name
    graph_module = GraphModule(owner, copy)
    outputs = tuple(f"out[{i}]" for i in range(len(list(graph_module.graph.nodes)[-1].args[0])))
    return TorchProgram(
        graph=graph_module.graph,
        edges=Edges(parameters, graph, edges),
        attributes=attributes,
        placeholders=tuple(placeholders),
        outputs=outputs,
        module=graph_module,
        observed=Observations(),
    )


def _find_ordered_op(node: Node, module: GraphModule) -> Node | None:
    """The op that inductor wrapped to fix the order of execution; None if a node is no wrapper.

    The arguments of the wrapper are the tensors that must be computed before, a sub-graph of the
    op alone, and the operands of the op.
    """
    is_higher_order = isinstance(node.target, torch._ops.HigherOrderOperator)
    if not is_higher_order or str(node.target) != _CONTROL_DEPS:
        return None
    body = node.args[1]
    assert isinstance(body, Node)
    *others, inner_op, output = fetch_attribute(module, str(body.target)).graph.nodes
    is_single_op = inner_op.op == "call_function" and output.args[0] is inner_op
    return inner_op if is_single_op and all(n.op == "placeholder" for n in others) else None


def _inline_ordered_op(
    graph: Graph, wrapper: Node, inner_op: Node, copied_nodes: Mapping[Node, Node]
) -> Node:
    """Copy an op that is wrapped for the order of execution, under the name of the wrapper. It is
    then an op like any other: it can be recorded, paired and run in float64."""
    placeholders = inner_op.graph.find_nodes(op="placeholder")
    operands = dict(zip(placeholders, wrapper.args[2:], strict=True))

    def copied_operand(placeholder: Node) -> Node:
        operand = operands[placeholder]
        assert isinstance(operand, Node)
        return copied_nodes[operand]

    args, kwargs = torch.fx.map_arg((inner_op.args, inner_op.kwargs), copied_operand)
    copied_op = graph.create_node(inner_op.op, inner_op.target, args, kwargs, name=wrapper.name)
    copied_op.meta = dict(wrapper.meta)
    return copied_op


def _placeholders(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.nodes if node.op == "placeholder"]


def graph_input_edge(name: str, graph: str) -> Edge:
    """The edge of an input that the Python code between graphs passes to a graph."""
    return Edge(OpKey(name, graph=graph), role=Role.INPUT)


@dataclass(frozen=True)
class WatchedModel:
    """The model whose execution is watched."""

    model: nn.Module
    names: tuple[str, ...]
    """Names of its positional inputs."""
    compilation: Compilation
    evaluator: TorchEvaluator


@dataclass(frozen=True)
class GraphCall:
    """One call of a compiled graph."""

    graph: CompiledGraph
    inputs: list[Any]
    """The list that the compiled code takes; it may empty the list."""
    program: TorchProgram
    sources: Mapping[str, PlaceholderSource]
    """The source of each placeholder, in order."""

    def arguments(self) -> Iterator[tuple[PlaceholderSource, Any]]:
        """The source of each placeholder, with its value."""
        return zip(self.sources.values(), self.inputs, strict=True)


class GraphWatch:
    """Watches one execution: names each call of a graph and finds the sources of its inputs."""

    def __init__(self, watched: WatchedModel) -> None:
        self.watched = watched
        self.programs: dict[str, TorchProgram] = {}
        """Programs of the graphs, by name of the call, in the order of the calls."""
        self._has_several_graphs = len(watched.compilation.graphs) > 1
        self._call_counts: Counter[CompiledGraph] = Counter()
        self._parameters: dict[int, tuple[str, torch.Tensor]] = {}
        self._inputs: dict[int, tuple[str, torch.Tensor]] = {}

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Register the parameters and the inputs of the model."""
        model = self.watched.model
        for source in (model.named_parameters, model.named_buffers):
            for name, tensor in source():
                self._parameters.setdefault(tensor.data_ptr(), (name, tensor))
        for path, value in pytree.tree_flatten_with_path((args, dict(kwargs)))[0]:
            if isinstance(value, torch.Tensor):
                self._inputs[value.data_ptr()] = (input_path(path, self.watched.names), value)

    def on_graph_call(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """Find the sources of the inputs, then run the graph."""
        label = self._name_call(graph)
        names = [n.name for n in graph.module.graph.nodes if n.op == "placeholder"]
        sources = {n: self._find_source(n, v, label) for n, v in zip(names, inputs, strict=True)}
        program = make_graph_program(graph.module, inputs, sources, label)
        self.programs[label] = program
        return self.execute(GraphCall(graph, inputs, program, sources))

    def execute(self, call: GraphCall) -> Tree:
        """Run the graph and return its outputs."""
        return call.graph.run_plain(call.inputs)

    def _name_call(self, graph: CompiledGraph) -> str:
        """The name of this call; "" where the model has one graph that is called once."""
        calls = self._call_counts[graph]
        number = list(self._call_counts).index(graph) if calls else len(self._call_counts)
        self._call_counts[graph] += 1
        if calls:
            return f"graph{number}.{calls}"
        return f"graph{number}" if self._has_several_graphs or number else ""

    def _find_source(self, name: str, value: Any, label: str) -> PlaceholderSource:
        """The source of a placeholder: a parameter, a model input, or an input of the graph."""
        if not isinstance(value, torch.Tensor):
            return PlaceholderSource(None)
        named_tensor = self._parameters.get(value.data_ptr())
        if named_tensor is not None and named_tensor[1].shape == value.shape and value.numel():
            return PlaceholderSource(Edge(OpKey(named_tensor[0]), role=Role.PARAMETER))
        named_tensor = self._inputs.get(value.data_ptr())
        if named_tensor is not None and named_tensor[1].shape == value.shape:
            return PlaceholderSource(
                Edge(OpKey(named_tensor[0]), role=Role.MODEL_INPUT), named_tensor[0]
            )
        return PlaceholderSource(graph_input_edge(name, label))


def storage_address(value: torch.Tensor) -> int:
    """The address of the memory of a tensor."""
    return value.untyped_storage().data_ptr()
