"""A model as one flat FX graph: what is captured and evaluated, and how it is spoken of."""

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
    ancestors,
    arguments,
    attributes,
    frames,
    is_op,
    is_random,
    is_tensor,
    is_uninitialised,
    module_of,
    type_of,
)

AUTOCAST = "syncpoint_autocast"
"""Key in a node's meta: the arguments of the autocast it ran under."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is the same of a node in every run."""

    op: Op
    """As it is recorded in the graph itself; in sub-graphs it has another key and inputs."""
    fixed: bool
    """Whether its attributes are the same in every run."""
    computes: bool
    """Whether it is an op at all."""
    tensors: tuple[Node, ...]
    """The nodes whose tensors it reads, in the order of the schema."""
    fetched: tuple[Node, ...]
    """Those of its arguments that may be graphs of their own."""
    may_nest: bool
    """Whether it is of the kind that takes graphs."""


@dataclass
class Observed:
    """What only a run tells of a program."""

    keeps_forms: bool = False
    """Whether types, shapes and strides are kept: the graph leaves sizes open."""
    learns: set[Edge] = field(default_factory=set)
    """Tensors that required gradients in the last run; export does not know it of all."""
    scalars: dict[str, Any] = field(default_factory=dict)
    """Values of nodes that are numbers, from the last run; `AMBIGUOUS` if runs disagreed."""
    forms: dict[Edge, torch.Tensor | None] = field(default_factory=dict)
    """Tensors without values that have the type, shape and strides of the last run."""


@dataclass(kw_only=True)
class Program:
    """One flat form of a model, for inputs of one shape and type."""

    graph: Graph
    edges: Edges
    attributes: Mapping[str, Any]
    """What the get_attr nodes fetch, by their targets."""
    placeholders: tuple[tuple[str, str], ...]
    """Name of the node and path the user knows, in the order of the flattened inputs."""
    outputs: tuple[str, ...]
    """Path the user knows of every flattened output."""
    originals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node -> names of the nodes it was made from, where functionalising renamed them."""
    notes: tuple[str, ...] = ()
    module: GraphModule | None = None
    """The graph in a form that can be run; None where it was recorded while the model ran."""
    observed: Observed = field(default_factory=Observed)
    nodes: dict[str, Node] = field(default_factory=dict)
    """The nodes that are ops, by name."""

    def __post_init__(self) -> None:
        self.nodes = {node.name: node for node in self.graph.nodes if is_op(node)}
        self._parameters: dict[Edge, torch.Tensor] = {}
        self._values: dict[Edge, Any] = {}
        self._plans: dict[Node, Plan] = {}
        for node in self.graph.nodes:
            edge = self.edges.of(node)
            if edge is None:
                continue
            if node.op == "get_attr":
                self._parameters[edge] = self.attributes[str(node.target)]
            if is_tensor(node):
                self._values[edge] = node.meta.get("val")

    @property
    def states(self) -> frozenset[str]:
        """Names of the buffers that go from step to step; none where there are no steps."""
        return frozenset(e.op.op for e in self._parameters if e.role is Role.STATE)

    def keeping(self, known: Collection[str]) -> Program:
        """The same program with the buffers it writes to, and those that others are known to
        write to, as states."""
        written = {
            self.edges.name(str(node.args[0].target))
            for node in self.graph.nodes
            if node.target is torch.ops.aten.copy_.default
            and isinstance(node.args[0], Node)
            and node.args[0].op == "get_attr"
        }
        fetched = {self.edges.name(target) for target in self.attributes}
        states = frozenset((written | set(known)) & fetched - {""})
        if states == self.states:
            return self
        return replace(self, edges=self.edges.keeping(states))

    @property
    def nests(self) -> bool:
        """Whether it has graphs inside the graph."""
        return any(isinstance(value, GraphModule) for value in self.attributes.values())

    def for_other_inputs(self) -> Program:
        """The same graph, of which nothing has been observed yet."""
        return replace(self, observed=Observed(self.observed.keeps_forms))

    def plan(self, node: Node) -> Plan:
        """How a node is recorded; worked out once."""
        found = self._plans.get(node)
        if found is None:
            found = self._plans[node] = self._planned(node)
        return found

    def _planned(self, node: Node) -> Plan:
        leaves = [
            leaf
            for _, value in arguments(node)
            for leaf in _leaves(value)
            if isinstance(leaf, Node)
        ]
        tensors = tuple(leaf for leaf in leaves if is_tensor(leaf))
        return Plan(
            op=replace(
                describe(node, self.originals.get(node.name, ())),
                key=self.edges.key(node.name),
                inputs=tuple(e for e in map(self.edges.of, tensors) if e is not None),
                attributes=attributes(node, lambda n: n),
            ),
            fixed=all(isinstance(leaf.meta.get("val"), torch.Tensor) for leaf in leaves),
            computes=is_op(node),
            tensors=tensors,
            fetched=tuple(leaf for leaf in leaves if leaf.op == "get_attr"),
            may_nest=isinstance(node.target, torch._ops.HigherOrderOperator),
        )

    def parameters(self) -> Iterator[tuple[Edge, torch.Tensor]]:
        """Each parameter, buffer and constant that an op reads, once; states are none."""
        for edge, value in self._parameters.items():
            if edge.role is Role.PARAMETER:
                yield edge, value

    def started(self, states: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """What the get_attr nodes fetch in a step that begins with these states."""
        held = {target: self.edges.name(target) for target in self.attributes}
        return {t: states.get(held[t], value) for t, value in self.attributes.items()}

    def parameter(self, edge: Edge) -> torch.Tensor:
        """The parameter, buffer or constant behind an edge."""
        return self._parameters[edge]

    def expected(self, edge: Edge) -> torch.Tensor | None:
        """A tensor without values that has the type and shape that was seen at an edge."""
        value = self.observed.forms.get(edge)
        if value is None:
            value = self._values.get(edge)
        return value if isinstance(value, torch.Tensor) else None


def describe(node: Node, originals: tuple[str, ...] = ()) -> Op:
    """An op as its node tells of it, without inputs and attributes."""
    module, module_type = module_of(node)
    return Op(
        OpKey(node.name),
        type_of(node),
        module=module,
        module_type=module_type,
        source=frames(node),
        origins=tuple(dict.fromkeys((node.name, *originals, *ancestors(node)))),
        random=is_random(node) or is_uninitialised(node),
    )


def _leaves(value: Tree) -> list[Any]:
    return [value] if isinstance(value, Node) else pytree.tree_leaves(value)


AMBIGUOUS = object()
"""Stands for a number that differed between two runs of one program."""


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, under every name they have."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def identity(tensor: torch.Tensor) -> object:
    """Equal for two tensors that are the same memory seen in the same way."""
    place = tensor.data_ptr() if tensor.layout is torch.strided and tensor.numel() else 0
    return (place, tensor.dtype, tensor.shape, tensor.stride()) if place else id(tensor)


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
