"""TorchProgram, a model as one flat FX graph: edges of its ops, parameters, states, and how each
node is recorded."""

from __future__ import annotations

import operator
from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.node_metadata import (
    collect_attributes,
    describe_op,
    is_op,
    is_tensor,
    list_arguments,
)


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


@dataclass(frozen=True, kw_only=True)
class NodePlan:
    """How a node is recorded: what is the same in every run."""

    op: Op
    """The op as recorded in the graph itself; in sub-graphs it has another key and inputs."""
    has_fixed_attributes: bool
    """Whether its attributes are the same in every run."""
    is_op: bool
    """Whether the node is an op."""
    tensor_nodes: tuple[Node, ...]
    """The nodes whose tensors it reads, in the order of the schema."""
    attribute_nodes: tuple[Node, ...]
    """The get_attr nodes among its arguments: they may be sub-graphs."""
    may_have_subgraphs: bool
    """Whether it is a higher-order op, which takes sub-graphs."""


@dataclass
class Observations:
    """Facts about a program that only a run shows."""

    keeps_meta_tensors: bool = False
    """Whether meta tensors are kept, because the graph has dynamic sizes."""
    requires_grad: set[Edge] = field(default_factory=set)
    """Edges that required gradients in the last run; export does not know all of them."""
    scalars: dict[str, Any] = field(default_factory=dict)
    """Values of scalar nodes, from the last run; `AMBIGUOUS` if runs disagree."""
    meta_tensors: dict[Edge, torch.Tensor | None] = field(default_factory=dict)
    """Meta tensors with the dtype, shape and strides of the last run."""


@dataclass(kw_only=True)
class TorchProgram:
    """One flat graph of a model, for inputs of one shape and dtype."""

    graph: Graph
    edges: Edges
    attributes: Mapping[str, Any]
    """The values that get_attr nodes fetch, by target."""
    placeholders: tuple[tuple[str, str], ...]
    """Name of each input node and its path for the user, in the order of the flattened inputs."""
    outputs: tuple[str, ...]
    """Path for the user of every flattened output."""
    originals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node -> names of the nodes it was made from, where functionalisation renamed them."""
    notes: tuple[str, ...] = ()
    module: GraphModule | None = None
    """The graph as an executable module; None if it was recorded while the model ran."""
    observed: Observations = field(default_factory=Observations)
    nodes: dict[str, Node] = field(default_factory=dict)
    """The nodes that are ops, by name."""

    def __post_init__(self) -> None:
        self.nodes = {node.name: node for node in self.graph.nodes if is_op(node)}
        self._parameters: dict[Edge, torch.Tensor] = {}
        self._meta_tensors: dict[Edge, Any] = {}
        self._plans: dict[Node, NodePlan] = {}
        for node in self.graph.nodes:
            edge = self.edges.edge_of(node)
            if edge is None:
                continue
            if node.op == "get_attr":
                self._parameters[edge] = self.attributes[str(node.target)]
            if is_tensor(node):
                self._meta_tensors[edge] = node.meta.get("val")

    @property
    def states(self) -> frozenset[str]:
        """Names of the buffers that go from step to step; empty without steps."""
        return frozenset(e.op.op for e in self._parameters if e.role is Role.STATE)

    def with_states(self, known_states: Collection[str]) -> TorchProgram:
        """A copy with the buffers that it writes to, and the known states, as states."""
        written_names = {
            self.edges.parameter_name(str(node.args[0].target))
            for node in self.graph.nodes
            if node.target is torch.ops.aten.copy_.default
            and isinstance(node.args[0], Node)
            and node.args[0].op == "get_attr"
        }
        fetched_names = {self.edges.parameter_name(target) for target in self.attributes}
        states = frozenset((written_names | set(known_states)) & fetched_names - {""})
        if states == self.states:
            return self
        return replace(self, edges=self.edges.with_states(states))

    @property
    def has_subgraphs(self) -> bool:
        """Whether the graph has sub-graphs."""
        return any(isinstance(value, GraphModule) for value in self.attributes.values())

    def for_other_inputs(self) -> TorchProgram:
        """A copy with the same graph and no observations."""
        return replace(self, observed=Observations(self.observed.keeps_meta_tensors))

    def plan_of(self, node: Node) -> NodePlan:
        """How a node is recorded; computed once."""
        plan = self._plans.get(node)
        if plan is None:
            plan = self._plans[node] = self._make_plan(node)
        return plan

    def _make_plan(self, node: Node) -> NodePlan:
        leaves = [
            leaf
            for _, value in list_arguments(node)
            for leaf in _leaves(value)
            if isinstance(leaf, Node)
        ]
        tensors = tuple(leaf for leaf in leaves if is_tensor(leaf))
        return NodePlan(
            op=replace(
                describe_op(node, self.originals.get(node.name, ())),
                key=self.edges.op_key(node.name),
                inputs=tuple(e for e in map(self.edges.edge_of, tensors) if e is not None),
                attributes=collect_attributes(node, lambda n: n),
            ),
            has_fixed_attributes=all(
                isinstance(leaf.meta.get("val"), torch.Tensor) for leaf in leaves
            ),
            is_op=is_op(node),
            tensor_nodes=tensors,
            attribute_nodes=tuple(leaf for leaf in leaves if leaf.op == "get_attr"),
            may_have_subgraphs=isinstance(node.target, torch._ops.HigherOrderOperator),
        )

    def parameters(self) -> Iterator[tuple[Edge, torch.Tensor]]:
        """Each parameter, buffer and constant that an op reads, once; without states."""
        for edge, value in self._parameters.items():
            if edge.role is Role.PARAMETER:
                yield edge, value

    def attributes_at_start(self, states: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """The values that get_attr nodes fetch in a step that begins with these states."""
        name_by_target = {target: self.edges.parameter_name(target) for target in self.attributes}
        return {
            target: states.get(name_by_target[target], value)
            for target, value in self.attributes.items()
        }

    def parameter(self, edge: Edge) -> torch.Tensor:
        """The parameter, buffer or constant behind an edge."""
        return self._parameters[edge]

    def expected_tensor(self, edge: Edge) -> torch.Tensor | None:
        """A meta tensor with the dtype and shape of the tensor at an edge."""
        value = self.observed.meta_tensors.get(edge)
        if value is None:
            value = self._meta_tensors.get(edge)
        return value if isinstance(value, torch.Tensor) else None


def _leaves(value: Tree) -> list[Any]:
    return [value] if isinstance(value, Node) else pytree.tree_leaves(value)


AMBIGUOUS = object()
"""Marks a number that differed between two runs of one program."""
