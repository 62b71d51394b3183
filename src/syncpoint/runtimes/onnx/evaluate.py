"""Pieces of an ONNX graph on given values, with all floating-point arithmetic in one type.

A piece of the graph that is executed is looked up in the graph of the file wherever both have the
values at its ends: there the ops are ONNX's own, with a meaning that does not depend on ONNX
Runtime. In f64 the ops are run one by one in NumPy, in f32 by ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.dtypes import dtype as named
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.onnx.element_types import NAMES
from syncpoint.runtimes.onnx.float32_model import run_in_float32
from syncpoint.runtimes.onnx.float64_ops import call, check, is_real, wide
from syncpoint.runtimes.onnx.graph import Graph, Scope, constant, is_constant
from syncpoint.runtimes.onnx.quantization import Quantizations
from syncpoint.runtimes.protocol import Array, Region


@dataclass(frozen=True)
class Piece:
    """The ops between some values of one graph."""

    nodes: tuple[ir.Node, ...]
    """In the order of execution."""
    inputs: Mapping[ir.Value, Edge]
    outputs: tuple[ir.Value, ...]
    parameters: tuple[ir.Value, ...]


class Evaluator:
    """Runs regions of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._opset = graph.original.opset_imports.get("", 20)
        self._quantizations = Quantizations(constant)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """The parameters that the region's ops read, each once."""
        found: dict[OpKey, None] = {}
        for key in region.ops:
            node = self._graph.nodes.get(key.op)
            for value in node.inputs if node is not None and not key.path else ():
                edge = self._graph.edge(value, Scope())
                if edge is not None and edge.role is Role.PARAMETER:
                    found[edge.op] = None
        return list(found)

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None,
    ) -> list[Array | None]:
        """The region's outputs in their order."""
        if named(dtype).kind is not Kind.FLOAT:
            raise InputError("a floating-point type to evaluate in", repr(dtype))
        if dtype not in ("f64", "f32"):
            raise Unsupported("f64 or f32 to evaluate an ONNX model in", dtype)
        piece = self._piece(region)
        for node in piece.nodes:
            check(node)
        values: dict[ir.Value, Array] = {}
        for value, edge in piece.inputs.items():
            if edge not in inputs:
                raise InputError(f"values for {edge.op}, which the region reads", "none")
            values[value] = self._given(value, inputs[edge])
        for value in piece.parameters:
            values[value] = self._parameter(value, inputs, parameter_dtype)
        if dtype == "f32":
            return run_in_float32(piece.nodes, values, piece.outputs, self._opset)
        for node in piece.nodes:
            operands = [None if v is None or not v.name else values[v] for v in node.inputs]
            found = call(node, operands, self._opset)
            values |= zip(node.outputs, found, strict=False)
        return [np.array(values[value]) for value in piece.outputs]

    def _piece(self, region: Region) -> Piece:
        """The ops to run: those of the file where it has the ends of the region, else the
        region's own."""
        self._refuse_other_ops(region)
        inputs = {self._value(edge): edge for edge in region.inputs}
        outputs = [self._value(edge) for edge in region.outputs]
        piece = self._piece_of_file(inputs, outputs)
        if piece is not None:
            return piece
        layouts = self._graph.provenance.layouts
        moved = [value.name for value in (*inputs, *outputs) if value.name in layouts]
        if moved:
            # It was recorded in the order of the model, which is not what the op reads.
            raise Unsupported("values in the layout of the model", f"{moved[0]}, which is not")
        return _slice(inputs, outputs)

    def _refuse_other_ops(self, region: Region) -> None:
        """Only ops at the top of this graph can be run on their own."""
        for key in region.ops:
            if key.path or key.graph:
                raise Unsupported("an op that can be run on its own", f"{key}, inside a sub-graph")
            if key.op not in self._graph.nodes:
                raise Unsupported(
                    "an op that can be run on its own", f"{key}, which the model does not have"
                )

    def _value(self, edge: Edge) -> ir.Value:
        value = self._graph.value(edge)
        if value is None:
            raise InputError("a region of this model", "tensors that it does not have")
        return value

    def _piece_of_file(
        self, inputs: Mapping[ir.Value, Edge], outputs: Sequence[ir.Value]
    ) -> Piece | None:
        """The piece in the graph of the file; None where that lacks an end of it."""
        starts = {self._in_file(value): edge for value, edge in inputs.items()}
        ends = [self._in_file(value) for value in outputs]
        if None in starts or None in ends:
            return None
        try:
            return _slice(
                {value: edge for value, edge in starts.items() if value is not None},
                [value for value in ends if value is not None],
            )
        except InputError:
            # The file's ops need a value that the executed graph has under another name.
            return None

    def _in_file(self, value: ir.Value) -> ir.Value | None:
        """The same value in the graph of the file."""
        original = self._graph.original.graph
        if value.producer() is None:
            return next((v for v in original.inputs if v.name == value.name), None)
        name = self._graph.provenance.same.get(value.name or "")
        return self._graph.provenance.made.get(name) if name else None

    def _given(self, value: ir.Value, array: Array) -> Array:
        """A value from outside in the kind of type that the op is used to."""
        kind = NAMES.get(int(value.dtype)) if value.dtype is not None else None
        if kind is None or is_real(array) is (DTYPES[kind].kind is Kind.FLOAT):
            return wide(array)
        expected = DTYPES[kind]
        if expected.kind is Kind.FLOAT:
            return array.astype(np.float64)
        if expected.kind is Kind.BOOL:
            return np.asarray(array != 0)
        if expected.kind is Kind.INT and self._quantizations.of(value) is None:
            return np.rint(array).astype(expected.numpy)
        # Integers that stand for real numbers are given as those.
        if any(use.node.op_type in ("MatMulInteger", "ConvInteger") for use in value.uses()):
            raise Unsupported(
                "integers where an op multiplies them", f"real numbers for {value.name}"
            )
        return wide(array)

    def _parameter(
        self, value: ir.Value, inputs: Mapping[Edge, Array], rounded_to: str | None
    ) -> Array:
        """A parameter as it was recorded, else the model's own; rounded before if asked."""
        name = self._graph.parameter_name(value)
        array = inputs.get(Edge(OpKey(name), role=Role.PARAMETER))
        if array is None:
            array = constant(value)
        if array is None:
            raise Unsupported("parameters of numbers", f"{value.name}")
        if rounded_to is not None and is_real(array):
            with np.errstate(over="ignore"):
                array = array.astype(DTYPES[rounded_to].numpy)
        return wide(array)


def _slice(given: Mapping[ir.Value, Edge], wanted: list[ir.Value]) -> Piece:
    """All ops between the given values and the wanted ones."""
    nodes: dict[ir.Node, None] = {}
    parameters: dict[ir.Value, None] = {}
    waiting = list(wanted)
    read: dict[ir.Value, Edge] = {}
    while waiting:
        value = waiting.pop()
        if value in given:
            read[value] = given[value]
            continue
        producer = value.producer()
        if value.is_initializer() or (producer is not None and is_constant(producer)):
            parameters[value] = None
        elif producer is None:
            raise InputError(f"values for {value.name}, which the region reads", "none")
        elif producer not in nodes:
            nodes[producer] = None
            waiting += [v for v in producer.inputs if v is not None and v.name]
    graph = wanted[0].producer().graph if wanted and wanted[0].producer() else None  # type: ignore[union-attr]
    order = [node for node in graph or () if node in nodes]
    if len(order) != len(nodes):
        raise InputError("ops of one graph", "ops of several")
    return Piece(tuple(order), read, tuple(wanted), tuple(parameters))
