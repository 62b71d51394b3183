"""The graph that inductor compiled, as a program that can be run op by op and in pieces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.torch.edges import Edges
from syncpoint.runtimes.torch.node_metadata import attribute
from syncpoint.runtimes.torch.program import Observed, Program

aten = torch.ops.aten


@dataclass(frozen=True)
class Given:
    """What a placeholder of a compiled graph stood for when the graph was called."""

    edge: Edge | None
    """None where it is no tensor."""
    path: str = ""
    """How the user knows a model input."""


def program_of(
    module: GraphModule, inputs: list[Any], given: Mapping[str, Given], graph: str
) -> Program:
    """The program of a lowered graph. Parameters, which inductor is given as inputs, become
    attributes again, so that they are known by the names the model has for them."""
    copy = Graph()
    owner = torch.nn.Module()
    fetched: dict[str, Any] = {}
    env: dict[Node, Node] = {}
    placeholders: list[tuple[str, str]] = []
    parameters: dict[str, str] = {}
    edges: dict[str, Edge] = {}
    values = dict(zip(_placeholders(module), inputs, strict=True))
    for node in module.graph.nodes:
        known = given[node.name] if node.op == "placeholder" else None
        if known is not None and known.edge is not None and known.edge.role is Role.PARAMETER:
            # Attributes have names of their own, since a dot in a name is a step.
            name = f"given_{node.name}"
            owner.register_buffer(name, values[node.name], persistent=False)
            env[node] = copy.get_attr(name)
            env[node].meta = dict(node.meta)
            parameters[name] = known.edge.op.op
            fetched[name] = values[node.name]
            continue
        if node.op == "output":
            copy.output(torch.fx.map_arg(node.args[0], lambda n: env[n]))
            continue
        made = copy.node_copy(node, lambda n: env[n])
        env[node] = made
        if known is not None:
            placeholders.append((made.name, known.path))
            if known.edge is not None:
                edges[made.name] = known.edge
        if node.op == "get_attr":
            value = attribute(module, str(node.target))
            name = str(node.target).replace(".", "_")
            setattr(owner, name, value)
            fetched[name] = value
            made.target = name
            if isinstance(value, torch.Tensor):
                parameters[name] = f"{graph}.{name}" if graph else name
    flat = GraphModule(owner, copy)
    outputs = tuple(f"out[{i}]" for i in range(len(list(flat.graph.nodes)[-1].args[0])))
    return Program(
        graph=flat.graph,
        edges=Edges(parameters, graph, edges),
        attributes=fetched,
        placeholders=tuple(placeholders),
        outputs=outputs,
        module=flat,
        observed=Observed(),
    )


def _placeholders(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.nodes if node.op == "placeholder"]


def graph_input(name: str, graph: str) -> Edge:
    """The edge of what one compiled graph is given by the Python code between graphs."""
    return Edge(OpKey(name, graph=graph), role=Role.INPUT)
