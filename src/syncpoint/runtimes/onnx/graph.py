"""The graph that is captured: what its ops, parameters and values are called, and who made them."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.runtimes.onnx.executed_to_file import (
    Provenance,
    is_before_activation,
)
from syncpoint.runtimes.onnx.node_metadata import (
    attributes_of,
    is_constant,
    is_random,
    said,
    type_of,
)

_FOLDED = ".folded"
"""End of the name of a parameter into which others were folded: it has the name of the one it
was, and other values."""
_WIDENED = "FusedBack_"
"""What ONNX Runtime puts before the name of a parameter that it casts to float32 beforehand."""


@dataclass(frozen=True)
class Scope:
    """Where the ops of a graph are: the top, or one round of a sub-graph."""

    path: str = ""
    iteration: int = 0
    edges: dict[ir.Value, Edge | None] = field(default_factory=dict)
    """What the values that the graph is given stand for, with those of the graphs around it."""


class Graph:
    """One graph of a model, with the graph of its file behind it."""

    def __init__(self, model: ir.Model, original: ir.Model) -> None:
        self.model = model
        self.original = original
        self.provenance = Provenance(model.graph, original.graph)
        self._folded = _folded(original.graph)
        self._names: dict[ir.Node, str] = {}
        self.nodes: dict[str, ir.Node] = {}
        """The ops at the top, by name."""
        taken = {o.name for node in model.graph for o in node.outputs}
        for node in model.graph:
            if is_constant(node):
                continue
            name = self._name(node, taken)
            self._names[node] = name
            self.nodes[name] = node
        self._parameters = {
            v: self.parameter_name(v)
            for v in (
                *model.graph.initializers.values(),
                *(n.outputs[0] for n in model.graph if is_constant(n)),
            )
        }
        self.parameters = {name: value for value, name in self._parameters.items()}
        """The parameters and constants at the top, by the names they are recorded under."""
        self.order = self.provenance.order_as_in_file()
        """The nodes at the top in an order of execution."""
        self.inputs = [v for v in model.graph.inputs if v not in self._parameters]

    def key(self, node: ir.Node, scope: Scope) -> OpKey:
        """What an op is recorded under."""
        name = self._names.get(node) or first_output(node)
        return OpKey(name, path=scope.path, iteration=scope.iteration)

    def edge(self, value: ir.Value | None, scope: Scope) -> Edge | None:
        """What a value is known by; None for what is no recorded tensor."""
        if value is None or not value.name:
            return None
        if value in scope.edges:
            return scope.edges[value]
        if value in self._parameters:
            return Edge(OpKey(self._parameters[value]), role=Role.PARAMETER)
        producer = value.producer()
        if producer is not None and not is_constant(producer):
            return Edge(self.key(producer, scope), value.index() or 0)
        if producer is None and value in self.inputs:
            return Edge(OpKey(value.name), role=Role.MODEL_INPUT)
        return Edge(OpKey(value.name, path=scope.path), role=Role.PARAMETER)

    def value(self, edge: Edge) -> ir.Value | None:
        """The value at the top that an edge means."""
        if edge.op.path or edge.op.graph:
            return None
        if edge.role is Role.PARAMETER:
            return self.parameters.get(edge.op.op)
        if edge.role is Role.MODEL_INPUT:
            return next((v for v in self.inputs if v.name == edge.op.op), None)
        node = self.nodes.get(edge.op.op)
        return node.outputs[edge.index] if node and edge.index < len(node.outputs) else None

    def describe(self, node: ir.Node, scope: Scope) -> Op:
        """The op as it is recorded."""
        inside = bool(scope.path)
        group = [] if inside else self.provenance.group(node)
        known = said(node) if inside else self.provenance.said(node, group)
        if not (known.module or known.source) and not inside:
            known = self.provenance.of_quantizing_op(node) or self.provenance.of_reader(node)
        reads = [self.edge(v, scope) for v in (*node.inputs, *captured(node))]
        return Op(
            self.key(node, scope),
            type_of(node),
            tuple(e for e in reads if e is not None),
            attributes=attributes_of(node),
            module=known.module,
            module_type=known.module_type,
            source=known.source,
            origins=self.provenance.origins(node, [node] if inside else group),
            random=is_random(node),
        )

    def _name(self, node: ir.Node, taken: set[str | None]) -> str:
        """The name of the first value that the op gives: a graph has it once, and it outlives
        most rewriting. A value that got a new name is called by that of the file."""
        own = first_output(node)
        known = self.provenance.original(own)
        before = any(o.name == own and is_before_activation(o) for o in node.outputs)
        if (not known or known == own) and not before:
            return own
        name = known if own in self.provenance.same and known not in taken else ""
        name = name or f"{known or own}_{node.op_type.lower()}"
        if name in taken:
            return own
        taken.add(name)
        return name

    def parameter_name(self, value: ir.Value) -> str:
        """What a parameter is recorded under."""
        name = value.name or ""
        plain = name.removeprefix(_WIDENED)
        if plain not in self.model.graph.initializers:
            name = plain
        return name + _FOLDED if name in self._folded else name


def captured(node: ir.Node) -> list[ir.Value]:
    """What the sub-graphs of a node read from the graphs around them."""
    found: dict[ir.Value, None] = {}
    for graph in sub_graphs(node).values():
        own = {*graph.inputs, *graph.initializers.values()}
        for inner in graph:
            own |= set(inner.outputs)
            for value in (*inner.inputs, *captured(inner)):
                if value is not None and value not in own:
                    found[value] = None
        for value in graph.outputs:
            if value not in own:
                found[value] = None
    return list(found)


def sub_graphs(node: ir.Node) -> dict[str, ir.Graph]:
    """The graphs among a node's attributes, by name."""
    return {
        name: attribute.as_graph()
        for name, attribute in node.attributes.items()
        if attribute.type == ir.AttributeType.GRAPH
    }


def first_output(node: ir.Node) -> str:
    """The name of the first value a node gives."""
    return next((o.name for o in node.outputs if o.name), "") or node.name or node.op_type


def _folded(graph: ir.Graph) -> set[str]:
    """Parameters that took in others under their own name, as those of a convolution do when a
    batch norm is folded into it: whoever compares them by name would find them wrong."""
    return {
        value.name
        for node in graph
        if "BatchNorm" in said(node).rule
        for value in node.inputs
        if value is not None and value.name and value.is_initializer()
    }
