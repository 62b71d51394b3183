"""Makes every value of a graph an output of it, those inside sub-graphs too.

A value inside a loop becomes one more output of the loop's body, which the loop stacks up, one
slice a round. A value inside one branch of an `If` becomes one more output of both branches; the
branch that does not have it gives nothing in its place, and a mark tells which branch it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from syncpoint.errors import SyncpointError
from syncpoint.runtimes.onnx.element_types import NAMES
from syncpoint.runtimes.onnx.graph import sub_graphs
from syncpoint.runtimes.onnx.load_model import from_proto
from syncpoint.runtimes.onnx.node_metadata import is_constant

_LOOPS = {"Loop": "body", "Scan": "body"}
MAX_COPIES = 1 << 14
"""Copies of values inside sub-graphs, up to which they are made outputs: each is an op of the
captured graph and takes 10 to 20 kB of memory there."""


@dataclass
class Exposed:
    """Where the values of one sub-graph come out."""

    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    """Sub-graph -> name of a value inside -> name of the value outside that holds it."""
    mark: str = ""
    """For an `If`: the value outside that says whether the first branch ran."""
    inner: dict[str, dict[str, Exposed]] = field(default_factory=dict)
    """Sub-graph -> node inside (by its first output) -> what of it comes out of that sub-graph."""


@dataclass
class Instrumented:
    """A model with more outputs than it had."""

    proto: onnx.ModelProto
    exposed: dict[str, Exposed]
    """Node at the top, by its first output -> where the values of its sub-graphs come out."""
    hidden: int
    """Ops inside sub-graphs whose values do not come out."""


def instrument(model: ir.Model, deep: bool = True) -> Instrumented:
    """The model with all values as outputs; `model` itself is changed. Without `deep` the
    sub-graphs are left alone."""
    maker = _Maker(deep)
    graph = model.graph
    exposed = maker.top(graph)
    present = {o.name for o in graph.outputs}
    for node in graph:
        if is_constant(node):
            continue
        for output in node.outputs:
            if output.name and output.name not in present:
                present.add(output.name)
                graph.outputs.append(output)
    return Instrumented(ir.to_proto(model), exposed, maker.hidden)


def open_instrumented(
    executed: onnx.ModelProto,
    top: ir.Graph,
    folder: str,
    open: Callable[[onnx.ModelProto], Any],
    deep: bool = True,
) -> tuple[Instrumented, Any]:
    """The session that gives every value; with those inside sub-graphs where it can be.

    `top` is the graph of `executed`, `folder` has its weights, and `open` opens a session.
    """
    made = instrument(from_proto(_typed(executed, top), folder), deep)
    try:
        return made, open(made.proto)
    except SyncpointError:
        if not made.exposed:
            raise
    return open_instrumented(executed, top, folder, open, deep=False)


def _typed(executed: onnx.ModelProto, top: ir.Graph) -> onnx.ModelProto:
    """The executed graph with the types of what is inside sub-graphs, where there are any."""
    if not any(sub_graphs(node) for node in top):
        return executed
    return onnx.shape_inference.infer_shapes(executed)


def _copies(node: ir.Node) -> tuple[int, int]:
    """Copies of values that it takes to let those inside a node come out of it: on the way up to
    its sub-graphs, and out of those."""
    inside, values = 0, 0
    bodies = sub_graphs(node)
    for body in bodies.values():
        for inner in body:
            before, own = _copies(inner)
            inside += before + own
            # What came out of an inner node is one more value of this sub-graph.
            values += len(inner.outputs) + own // max(len(sub_graphs(inner)), 1)
    return inside, values * len(bodies)


def _ops_inside(node: ir.Node) -> int:
    """How many ops lie in the sub-graphs of a node, at any depth."""
    return sum(
        1 + _ops_inside(inner)
        for body in sub_graphs(node).values()
        for inner in body
        if not is_constant(inner)
    )


class _Maker:
    def __init__(self, deep: bool) -> None:
        self._deep = deep
        self._number = 0
        self._copies_left = MAX_COPIES
        self._empty: dict[tuple[ir.Graph, ir.DataType], ir.Value] = {}
        """Sub-graph and element type -> a value without elements."""
        self.hidden = 0

    def top(self, graph: ir.Graph) -> dict[str, Exposed]:
        """Let the values of all sub-graphs come out at the top. A value inside n sub-graphs is
        copied n times on its way, so what would take more than `MAX_COPIES` stays inside."""
        found: dict[str, Exposed] = {}
        for node in list(graph):
            copies = sum(_copies(node))
            if copies > self._copies_left:
                self.hidden += _ops_inside(node)
                continue
            self._copies_left -= copies
            found |= self.nodes([node])
        return found

    def nodes(self, nodes: Iterable[ir.Node]) -> dict[str, Exposed]:
        """Let the values of the sub-graphs of some nodes come out into the graph around them."""
        found = {}
        for node in list(nodes):
            bodies = sub_graphs(node)
            if not bodies:
                continue
            first = next((o.name for o in node.outputs if o.name), "") or ""
            if not self._deep:
                self.hidden += sum(body.num_nodes() for body in bodies.values())
            elif node.op_type == "If" and len(bodies) == 2:
                found[first] = self._branches(node, bodies)
            elif node.op_type in _LOOPS and len(bodies) == 1:
                found[first] = self._rounds(node, bodies)
            else:
                self.hidden += sum(body.num_nodes() for body in bodies.values())
        return found

    def _rounds(self, node: ir.Node, bodies: dict[str, ir.Graph]) -> Exposed:
        exposed = Exposed()
        for name, body in bodies.items():
            exposed.inner[name] = self.nodes(body)
            values = self._values(body)
            for value in values:
                body.outputs.append(self._copied(body, value))
            exposed.branches[name] = self._outside(node, values)
            for axes in ("scan_output_axes", "scan_output_directions"):
                if axes in node.attributes:
                    before = list(node.attributes[axes].as_ints())
                    node.attributes[axes] = ir.AttrInt64s(axes, before + [0] * len(values))
        return exposed

    def _branches(self, node: ir.Node, bodies: dict[str, ir.Graph]) -> Exposed:
        exposed = Exposed()
        for name, body in bodies.items():
            exposed.inner[name] = self.nodes(body)
        values = {name: self._values(body) for name, body in bodies.items()}
        for name, body in bodies.items():
            for other, made in values.items():
                for value in made:
                    given = (
                        self._copied(body, value) if other == name else self._nothing(body, value)
                    )
                    body.outputs.append(given)
        for name in bodies:
            exposed.branches[name] = self._outside(node, values[name])
        for name, body in bodies.items():
            taken = np.array(name == "then_branch")
            body.outputs.append(self._constant(body, taken))
        exposed.mark = self._add_outputs(node, [ir.DataType.BOOL])[0]
        return exposed

    def _values(self, body: ir.Graph) -> list[ir.Value]:
        """The values inside that can come out: their element type must be known."""
        found = []
        for node in body:
            if is_constant(node):
                continue
            typed = [
                o
                for o in node.outputs
                if o.name and o.dtype is not None and isinstance(o.type, ir.TensorType)
            ]
            found += [o for o in typed if int(o.dtype or 0) in NAMES]
            self.hidden += not typed
        return found

    def _copied(self, body: ir.Graph, value: ir.Value) -> ir.Value:
        """The value under a name of its own: a graph may not give one value twice."""
        node = ir.node("Identity", [value])
        return self._placed(body, node, value.dtype)

    def _nothing(self, body: ir.Graph, value: ir.Value) -> ir.Value:
        assert value.dtype is not None
        key = (body, value.dtype)
        if key not in self._empty:
            self._empty[key] = self._without_elements(body, value.dtype)
        return self._copied(body, self._empty[key])

    def _without_elements(self, body: ir.Graph, dtype: ir.DataType) -> ir.Value:
        node = ir.node(
            "ConstantOfShape",
            [self._constant(body, np.zeros(1, np.int64))],
            {"value": ir.tensor(np.zeros(1, np.float32))},
        )
        empty = self._placed(body, node, ir.DataType.FLOAT)
        if dtype == ir.DataType.FLOAT:
            return empty
        return self._placed(body, ir.node("Cast", [empty], {"to": int(dtype)}), dtype)

    def _constant(self, body: ir.Graph, array: np.ndarray) -> ir.Value:
        tensor = ir.tensor(array)
        return self._placed(body, ir.node("Constant", [], {"value": tensor}), tensor.dtype)

    def _placed(self, body: ir.Graph, node: ir.Node, dtype: ir.DataType | None) -> ir.Value:
        body.append(node)
        output = node.outputs[0]
        output.name = self._fresh()
        if dtype is not None:
            output.type = ir.TensorType(dtype)
        return output

    def _outside(self, node: ir.Node, values: list[ir.Value]) -> dict[str, str]:
        names = self._add_outputs(node, [value.dtype for value in values])
        return {value.name or "": name for value, name in zip(values, names, strict=True)}

    def _add_outputs(self, node: ir.Node, dtypes: list[ir.DataType | None]) -> list[str]:
        before = len(node.outputs)
        node.resize_outputs(before + len(dtypes))
        for output, dtype in zip(node.outputs[before:], dtypes, strict=True):
            output.name = self._fresh()
            # What is inside a sub-graph itself can come out of it only with a type.
            output.type = ir.TensorType(dtype) if dtype is not None else None
        return [output.name or "" for output in node.outputs[before:]]

    def _fresh(self) -> str:
        self._number += 1
        return f"syncpoint.{self._number}"
