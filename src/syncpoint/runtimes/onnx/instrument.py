"""Change an ONNX model so that every value is an output; add outputs to loop and branch nodes for
the values inside; open its session.

A value inside a loop becomes an extra output of the loop's body; the loop stacks it, one slice per
iteration. A value inside a branch of an `If` becomes an extra output of both branches. The other
branch returns an empty tensor for it, and a mark shows which branch was executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from syncpoint.errors import SyncpointError
from syncpoint.runtimes.onnx.element_types import DTYPE_NAMES
from syncpoint.runtimes.onnx.graph import sub_graphs
from syncpoint.runtimes.onnx.load_model import ir_from_proto
from syncpoint.runtimes.onnx.node_metadata import is_constant

_LOOPS = {"Loop": "body", "Scan": "body"}
MAX_COPIES = 1 << 14
"""Largest number of copies of values inside sub-graphs. Each copy is an op of the captured graph
and takes 10 to 20 kB of memory."""


@dataclass
class ExposedValues:
    """The outputs of a node that hold the values of its sub-graphs."""

    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    """Sub-graph -> name of a value inside -> name of the output that holds it."""
    mark: str = ""
    """For an `If`: the output that says whether the first branch was executed."""
    inner: dict[str, dict[str, ExposedValues]] = field(default_factory=dict)
    """Sub-graph -> node inside (by its first output) -> the exposed values of that node."""


@dataclass
class Instrumented:
    """A model whose values are outputs."""

    proto: onnx.ModelProto
    exposed: dict[str, ExposedValues]
    """Node at the top, by its first output -> the exposed values of its sub-graphs."""
    hidden: int
    """Number of ops inside sub-graphs whose values are not exposed."""


def instrument(model: ir.Model, deep: bool = True) -> Instrumented:
    """Make all values outputs; `model` itself is changed. Without `deep`, sub-graphs stay."""
    exposer = _Exposer(deep)
    graph = model.graph
    exposed = exposer.expose_top(graph)
    output_names = {o.name for o in graph.outputs}
    for node in graph:
        if is_constant(node):
            continue
        for output in node.outputs:
            if output.name and output.name not in output_names:
                output_names.add(output.name)
                graph.outputs.append(output)
    return Instrumented(ir.to_proto(model), exposed, exposer.hidden)


def open_instrumented(
    executed: onnx.ModelProto,
    top: ir.Graph,
    folder: str,
    open: Callable[[onnx.ModelProto], Any],
    deep: bool = True,
) -> tuple[Instrumented, Any]:
    """Open a session that returns every value, also those inside sub-graphs where possible.

    `top` is the graph of `executed`, `folder` has its weights, and `open` opens a session.
    """
    instrumented = instrument(ir_from_proto(_infer_types(executed, top), folder), deep)
    try:
        return instrumented, open(instrumented.proto)
    except SyncpointError:
        if not instrumented.exposed:
            raise
    return open_instrumented(executed, top, folder, open, deep=False)


def _infer_types(executed: onnx.ModelProto, top: ir.Graph) -> onnx.ModelProto:
    """Infer the types of the values inside sub-graphs, if there are sub-graphs."""
    if not any(sub_graphs(node) for node in top):
        return executed
    return onnx.shape_inference.infer_shapes(executed)


def _count_copies(node: ir.Node) -> tuple[int, int]:
    """Count the copies that exposing the values inside a node takes: those inside its sub-graphs,
    and those out of its sub-graphs."""
    inside, values = 0, 0
    bodies = sub_graphs(node)
    for body in bodies.values():
        for inner in body:
            inner_inside, inner_out = _count_copies(inner)
            inside += inner_inside + inner_out
            # A value exposed by an inner node is one more value of this sub-graph.
            values += len(inner.outputs) + inner_out // max(len(sub_graphs(inner)), 1)
    return inside, values * len(bodies)


def _count_ops_inside(node: ir.Node) -> int:
    """Count the ops in the sub-graphs of a node, at any depth."""
    return sum(
        1 + _count_ops_inside(inner)
        for body in sub_graphs(node).values()
        for inner in body
        if not is_constant(inner)
    )


class _Exposer:
    """Adds the outputs that expose values inside sub-graphs."""

    def __init__(self, deep: bool) -> None:
        self._deep = deep
        self._number = 0
        self._copies_left = MAX_COPIES
        self._empty: dict[tuple[ir.Graph, ir.DataType], ir.Value] = {}
        """Sub-graph and element type -> a value without elements."""
        self.hidden = 0

    def expose_top(self, graph: ir.Graph) -> dict[str, ExposedValues]:
        """Expose the values of all sub-graphs at the top.

        A value inside n sub-graphs is copied n times. Nodes that would exceed `MAX_COPIES` are
        skipped.
        """
        exposed: dict[str, ExposedValues] = {}
        for node in list(graph):
            copies = sum(_count_copies(node))
            if copies > self._copies_left:
                self.hidden += _count_ops_inside(node)
                continue
            self._copies_left -= copies
            exposed |= self._expose_nodes([node])
        return exposed

    def _expose_nodes(self, nodes: Iterable[ir.Node]) -> dict[str, ExposedValues]:
        """Expose the values of the sub-graphs of some nodes in the graph around them."""
        exposed = {}
        for node in list(nodes):
            bodies = sub_graphs(node)
            if not bodies:
                continue
            first = next((o.name for o in node.outputs if o.name), "") or ""
            if not self._deep:
                self.hidden += sum(body.num_nodes() for body in bodies.values())
            elif node.op_type == "If" and len(bodies) == 2:
                exposed[first] = self._expose_branches(node, bodies)
            elif node.op_type in _LOOPS and len(bodies) == 1:
                exposed[first] = self._expose_iterations(node, bodies)
            else:
                self.hidden += sum(body.num_nodes() for body in bodies.values())
        return exposed

    def _expose_iterations(self, node: ir.Node, bodies: dict[str, ir.Graph]) -> ExposedValues:
        exposed = ExposedValues()
        for name, body in bodies.items():
            exposed.inner[name] = self._expose_nodes(body)
            values = self._list_typed_values(body)
            for value in values:
                body.outputs.append(self._copy(body, value))
            exposed.branches[name] = self._add_outputs_for(node, values)
            for attribute in ("scan_output_axes", "scan_output_directions"):
                if attribute in node.attributes:
                    own_entries = list(node.attributes[attribute].as_ints())
                    node.attributes[attribute] = ir.AttrInt64s(
                        attribute, own_entries + [0] * len(values)
                    )
        return exposed

    def _expose_branches(self, node: ir.Node, bodies: dict[str, ir.Graph]) -> ExposedValues:
        exposed = ExposedValues()
        for name, body in bodies.items():
            exposed.inner[name] = self._expose_nodes(body)
        values = {name: self._list_typed_values(body) for name, body in bodies.items()}
        for name, body in bodies.items():
            for branch, branch_values in values.items():
                for value in branch_values:
                    is_own = branch == name
                    output = self._copy(body, value) if is_own else self._empty_like(body, value)
                    body.outputs.append(output)
        for name in bodies:
            exposed.branches[name] = self._add_outputs_for(node, values[name])
        for name, body in bodies.items():
            is_then_branch = np.array(name == "then_branch")
            body.outputs.append(self._add_constant(body, is_then_branch))
        exposed.mark = self._add_outputs(node, [ir.DataType.BOOL])[0]
        return exposed

    def _list_typed_values(self, body: ir.Graph) -> list[ir.Value]:
        """List the values inside that can be exposed: those with a known element type."""
        values = []
        for node in body:
            if is_constant(node):
                continue
            typed = [
                o
                for o in node.outputs
                if o.name and o.dtype is not None and isinstance(o.type, ir.TensorType)
            ]
            values += [o for o in typed if int(o.dtype or 0) in DTYPE_NAMES]
            self.hidden += not typed
        return values

    def _copy(self, body: ir.Graph, value: ir.Value) -> ir.Value:
        """Copy a value to a new name: a graph may not return one value twice."""
        node = ir.node("Identity", [value])
        return self._add_node(body, node, value.dtype)

    def _empty_like(self, body: ir.Graph, value: ir.Value) -> ir.Value:
        """Add a value without elements, of the type of `value`."""
        assert value.dtype is not None
        key = (body, value.dtype)
        if key not in self._empty:
            self._empty[key] = self._add_empty(body, value.dtype)
        return self._copy(body, self._empty[key])

    def _add_empty(self, body: ir.Graph, dtype: ir.DataType) -> ir.Value:
        node = ir.node(
            "ConstantOfShape",
            [self._add_constant(body, np.zeros(1, np.int64))],
            {"value": ir.tensor(np.zeros(1, np.float32))},
        )
        empty = self._add_node(body, node, ir.DataType.FLOAT)
        if dtype == ir.DataType.FLOAT:
            return empty
        return self._add_node(body, ir.node("Cast", [empty], {"to": int(dtype)}), dtype)

    def _add_constant(self, body: ir.Graph, array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(array)
        return self._add_node(body, ir.node("Constant", [], {"value": tensor}), tensor.dtype)

    def _add_node(self, body: ir.Graph, node: ir.Node, dtype: ir.DataType | None) -> ir.Value:
        body.append(node)
        output = node.outputs[0]
        output.name = self._new_name()
        if dtype is not None:
            output.type = ir.TensorType(dtype)
        return output

    def _add_outputs_for(self, node: ir.Node, values: list[ir.Value]) -> dict[str, str]:
        """Add an output to a node for each value inside it; returns value name -> output name."""
        names = self._add_outputs(node, [value.dtype for value in values])
        return {value.name or "": name for value, name in zip(values, names, strict=True)}

    def _add_outputs(self, node: ir.Node, dtypes: list[ir.DataType | None]) -> list[str]:
        own_count = len(node.outputs)
        node.resize_outputs(own_count + len(dtypes))
        for output, dtype in zip(node.outputs[own_count:], dtypes, strict=True):
            output.name = self._new_name()
            # A node inside a sub-graph can be exposed in turn only if its outputs have a type.
            output.type = ir.TensorType(dtype) if dtype is not None else None
        return [output.name or "" for output in node.outputs[own_count:]]

    def _new_name(self) -> str:
        self._number += 1
        return f"syncpoint.{self._number}"
