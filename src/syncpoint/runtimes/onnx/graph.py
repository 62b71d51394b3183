"""Names (after the first output), keys and edges of the ops, parameters, values of a captured ONNX
graph; sub-graphs and what they read from outside."""

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
    read_metadata,
    type_of,
)

_FOLDED_SUFFIX = ".folded"
"""Suffix of a parameter into which others were folded: it keeps its name, but not its values."""
_WIDENED_PREFIX = "FusedBack_"
"""Prefix that ONNX Runtime gives to a parameter that it casts to float32 beforehand."""


@dataclass(frozen=True)
class Scope:
    """Where the ops of a graph are: at the top, or in one iteration of a sub-graph."""

    path: str = ""
    iteration: int = 0
    edges: dict[ir.Value, Edge | None] = field(default_factory=dict)
    """The edges of the values that the graph reads from outside."""


class OnnxGraph:
    """The captured graph of a model: names, keys and edges of its ops, parameters and values.

    `model` is the graph that is executed, `original` that of the file.
    """

    def __init__(self, model: ir.Model, original: ir.Model) -> None:
        self.model = model
        self.original = original
        self.provenance = Provenance(model.graph, original.graph)
        self._folded = _find_folded_parameters(original.graph)
        self._names: dict[ir.Node, str] = {}
        self.nodes: dict[str, ir.Node] = {}
        """The ops at the top, by name."""
        used_names = {o.name for node in model.graph for o in node.outputs}
        for node in model.graph:
            if is_constant(node):
                continue
            name = self._choose_name(node, used_names)
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
        """The nodes at the top, in an order of execution."""
        self.inputs = [v for v in model.graph.inputs if v not in self._parameters]

    def key(self, node: ir.Node, scope: Scope) -> OpKey:
        """Return the key under which an op is recorded."""
        name = self._names.get(node) or first_output_name(node)
        return OpKey(name, path=scope.path, iteration=scope.iteration)

    def edge(self, value: ir.Value | None, scope: Scope) -> Edge | None:
        """Return the edge of a value; None for what is not a recorded tensor."""
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
        """Return the value at the top that an edge stands for."""
        if edge.op.path or edge.op.graph:
            return None
        if edge.role is Role.PARAMETER:
            return self.parameters.get(edge.op.op)
        if edge.role is Role.MODEL_INPUT:
            return next((v for v in self.inputs if v.name == edge.op.op), None)
        node = self.nodes.get(edge.op.op)
        return node.outputs[edge.index] if node and edge.index < len(node.outputs) else None

    def describe(self, node: ir.Node, scope: Scope) -> Op:
        """Describe an op as it is recorded."""
        is_inside = bool(scope.path)
        provenance = self.provenance
        group = [] if is_inside else provenance.find_group(node)
        metadata = read_metadata(node) if is_inside else provenance.read_metadata(node, group)
        if not (metadata.module or metadata.source) and not is_inside:
            metadata = provenance.metadata_of_source(node) or provenance.metadata_of_reader(node)
        edges = [self.edge(v, scope) for v in (*node.inputs, *captured_values(node))]
        return Op(
            self.key(node, scope),
            type_of(node),
            tuple(e for e in edges if e is not None),
            attributes=attributes_of(node),
            module=metadata.module,
            module_type=metadata.module_type,
            source=metadata.source,
            origins=provenance.list_origins(node, [node] if is_inside else group),
            random=is_random(node),
        )

    def _choose_name(self, node: ir.Node, used_names: set[str | None]) -> str:
        """Name an op after its first output, which is unique and survives most rewriting.

        An output that ONNX Runtime renamed gets its name in the file.
        """
        own_name = first_output_name(node)
        file_name = self.provenance.name_in_file(own_name)
        is_misleading = any(o.name == own_name and is_before_activation(o) for o in node.outputs)
        if (not file_name or file_name == own_name) and not is_misleading:
            return own_name
        is_exact = own_name in self.provenance.exact_names
        name = file_name if is_exact and file_name not in used_names else ""
        name = name or f"{file_name or own_name}_{node.op_type.lower()}"
        if name in used_names:
            return own_name
        used_names.add(name)
        return name

    def parameter_name(self, value: ir.Value) -> str:
        """Return the name under which a parameter is recorded."""
        name = value.name or ""
        plain_name = name.removeprefix(_WIDENED_PREFIX)
        if plain_name not in self.model.graph.initializers:
            name = plain_name
        return name + _FOLDED_SUFFIX if name in self._folded else name


def captured_values(node: ir.Node) -> list[ir.Value]:
    """List the values that the sub-graphs of a node read from the graphs around them."""
    captured: dict[ir.Value, None] = {}
    for graph in sub_graphs(node).values():
        own = {*graph.inputs, *graph.initializers.values()}
        for inner in graph:
            own |= set(inner.outputs)
            for value in (*inner.inputs, *captured_values(inner)):
                if value is not None and value not in own:
                    captured[value] = None
        for value in graph.outputs:
            if value not in own:
                captured[value] = None
    return list(captured)


def sub_graphs(node: ir.Node) -> dict[str, ir.Graph]:
    """Return the graphs among a node's attributes, by name."""
    return {
        name: attribute.as_graph()
        for name, attribute in node.attributes.items()
        if attribute.type == ir.AttributeType.GRAPH
    }


def first_output_name(node: ir.Node) -> str:
    """Return the name of a node's first output."""
    return next((o.name for o in node.outputs if o.name), "") or node.name or node.op_type


def _find_folded_parameters(graph: ir.Graph) -> set[str]:
    """Find the parameters into which others were folded under their own name.

    A convolution's are changed when a batch norm is folded into it. Compared by name alone they
    would look wrong.
    """
    return {
        value.name
        for node in graph
        if "BatchNorm" in read_metadata(node).rule
        for value in node.inputs
        if value is not None and value.name and value.is_initializer()
    }
