"""A model as one flat FX graph: what is captured and evaluated, and how it is spoken of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, Op, Role
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.edges import Edges
from syncpoint.runtimes.torch.node_metadata import (
    arguments,
    attributes,
    describe,
    is_op,
    is_tensor,
)


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


def _leaves(value: Tree) -> list[Any]:
    return [value] if isinstance(value, Node) else pytree.tree_leaves(value)


AMBIGUOUS = object()
"""Stands for a number that differed between two runs of one program."""
