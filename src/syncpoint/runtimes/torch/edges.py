"""Resolves the nodes of an FX graph to the tensors (edges) they stand for."""

from __future__ import annotations

import operator
from collections.abc import Container, Mapping
from typing import Any

from torch.fx import Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.node_metadata import arguments, is_tensor


def model_input(name: str) -> Edge:
    """The edge of a model input by the name of its placeholder."""
    return Edge(OpKey(name), role=Role.MODEL_INPUT)


def parameter(name: str) -> Edge:
    """The edge of a parameter, a buffer or a constant."""
    return Edge(OpKey(name), role=Role.PARAMETER)


def state_before(name: str) -> Edge:
    """The edge of what a state holds before a step; what it holds afterwards has index 0."""
    return Edge(OpKey(name), 1, Role.STATE)


class Edges:
    """Resolves the nodes of one graph to the tensors they stand for."""

    def __init__(
        self,
        parameter_names: dict[str, str],
        graph: str = "",
        inputs: Mapping[str, Edge] | None = None,
        states: Container[str] = (),
    ) -> None:
        self._parameter_names = parameter_names
        self._states = states
        """Names of those that go from step to step, and are no parameters."""
        self.graph = graph
        """Which of several graphs of a model it is; "" for the only one."""
        self._inputs = inputs or {}
        """Placeholders that are not known by their own names."""
        self._found: dict[Node, Edge | None] = {}

    def keeping(self, states: Container[str]) -> Edges:
        """The same with these as states."""
        return Edges(self._parameter_names, self.graph, self._inputs, states)

    def name(self, target: str) -> str:
        """What the parameter, buffer or constant is called that a get_attr node fetches."""
        return self._parameter_names.get(target, "")

    def key(self, name: str) -> OpKey:
        """The key of the op of that name in this graph."""
        return OpKey(name, graph=self.graph)

    def of(self, node: Node) -> Edge | None:
        """The tensor that `node` is; None where it is not one tensor."""
        if node not in self._found:
            self._found[node] = self._of(node)
        return self._found[node]

    def _of(self, node: Node) -> Edge | None:
        if node.op == "placeholder":
            return self._inputs.get(node.name, Edge(OpKey(node.name), role=Role.MODEL_INPUT))
        if node.op == "get_attr":
            name = self._parameter_names.get(str(node.target))
            if name is None:
                return None
            return state_before(name) if name in self._states else parameter(name)
        if node.op != "call_function":
            return None
        producer, positions = _unwrapped(node)
        if producer.op != "call_function":
            return None
        found = positions
        if not isinstance(found, int):
            return None
        return Edge(self.key(producer.name), index=found)

    def inputs(self, node: Node) -> tuple[Edge, ...]:
        """The tensors an op reads, in the order of its schema; one read twice is there twice."""
        found: list[Edge] = []
        for _, value in arguments(node):
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, Node) and is_tensor(leaf):
                    edge = self.of(leaf)
                    if edge is not None:
                        found.append(edge)
        return tuple(found)


def _unwrapped(node: Node) -> tuple[Node, Any]:
    """The op behind a chain of getitem, and which of its flattened outputs the chain picks."""
    picks: list[Any] = []
    while node.op == "call_function" and node.target is operator.getitem:
        picks.append(node.args[1])
        inner = node.args[0]
        assert isinstance(inner, Node)
        node = inner
    positions = _positions(node)
    for pick in reversed(picks):
        positions = pick if isinstance(positions, int) else positions[pick]
    return node, positions


def _positions(node: Node) -> Tree:
    """The structure of a node's value with each leaf replaced by its flattened position."""
    leaves, spec = pytree.tree_flatten(node.meta.get("val"))
    return pytree.tree_unflatten(list(range(len(leaves))), spec)
