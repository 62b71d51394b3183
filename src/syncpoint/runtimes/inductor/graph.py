"""Converts a compiled graph to a TorchProgram, which can be run op by op and in regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.torch.edges import Edges
from syncpoint.runtimes.torch.node_metadata import fetch_attribute
from syncpoint.runtimes.torch.program import Observations, TorchProgram

aten = torch.ops.aten


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
    for node in module.graph.nodes:
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


def _placeholders(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.nodes if node.op == "placeholder"]


def graph_input_edge(name: str, graph: str) -> Edge:
    """The edge of an input that the Python code between graphs passes to a graph."""
    return Edge(OpKey(name, graph=graph), role=Role.INPUT)
