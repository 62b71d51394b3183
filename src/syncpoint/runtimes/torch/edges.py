"""Resolves the nodes of an FX graph to edges: the tensors of a run."""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping
from typing import Any

from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.node_metadata import is_tensor, list_arguments


def model_input_edge(name: str) -> Edge:
    """The edge of a model input by the name of its placeholder."""
    return Edge(OpKey(name), role=Role.MODEL_INPUT)


def parameter_edge(name: str) -> Edge:
    """The edge of a parameter, a buffer or a constant."""
    return Edge(OpKey(name), role=Role.PARAMETER)


def state_edge_before(name: str) -> Edge:
    """The edge of a state before a step; the state after the step has index 0."""
    return Edge(OpKey(name), 1, Role.STATE)


class Edges:
    """Resolves the nodes of one graph to edges."""

    def __init__(
        self,
        parameter_names: dict[str, str],
        graph: str = "",
        inputs: Mapping[str, Edge] | None = None,
        states: Container[str] = (),
    ) -> None:
        self._parameter_names = parameter_names
        self._states = states
        """Names of the buffers that go from step to step; they are not parameters."""
        self.graph = graph
        """Name of the graph where a model has several; "" for the only one."""
        self._inputs = inputs or {}
        """Edges of placeholders that are not model inputs under their own names."""
        self._edge_by_node: dict[Node, Edge | None] = {}

    def with_states(self, states: Container[str]) -> Edges:
        """A copy with these buffers as states."""
        return Edges(self._parameter_names, self.graph, self._inputs, states)

    def parameter_name(self, target: str) -> str:
        """The name of the parameter, buffer or constant that a get_attr node fetches."""
        return self._parameter_names.get(target, "")

    def op_key(self, name: str) -> OpKey:
        """The key of the op of that name in this graph."""
        return OpKey(name, graph=self.graph)

    def edge_of(self, node: Node) -> Edge | None:
        """The edge of a node; None where its value is not one tensor."""
        if node not in self._edge_by_node:
            self._edge_by_node[node] = self._resolve(node)
        return self._edge_by_node[node]

    def _resolve(self, node: Node) -> Edge | None:
        if node.op == "placeholder":
            return self._inputs.get(node.name, Edge(OpKey(node.name), role=Role.MODEL_INPUT))
        if node.op == "get_attr":
            name = self._parameter_names.get(str(node.target))
            if name is None:
                return None
            return state_edge_before(name) if name in self._states else parameter_edge(name)
        if node.op != "call_function":
            return None
        producer, index = _unwrap_getitems(node)
        if producer.op != "call_function" or not isinstance(index, int):
            return None
        return Edge(self.op_key(producer.name), index=index)

    def inputs_of(self, node: Node) -> tuple[Edge, ...]:
        """The edges that an op reads, in the order of its schema; repeats are listed again."""
        edges: list[Edge] = []
        for _, value in list_arguments(node):
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, Node) and is_tensor(leaf):
                    edge = self.edge_of(leaf)
                    if edge is not None:
                        edges.append(edge)
        return tuple(edges)


def _unwrap_getitems(node: Node) -> tuple[Node, Any]:
    """The op behind a chain of getitem, and the flattened output that the chain picks."""
    picks: list[Any] = []
    while node.op == "call_function" and node.target is operator.getitem:
        picks.append(node.args[1])
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    positions = _flattened_positions(node)
    for pick in reversed(picks):
        positions = pick if isinstance(positions, int) else positions[pick]
    return node, positions


def _flattened_positions(node: Node) -> Tree:
    """The structure of a node's value with each leaf replaced by its flattened position."""
    leaves, spec = pytree.tree_flatten(node.meta.get("val"))
    return pytree.tree_unflatten(list(range(len(leaves))), spec)
