"""Pieces of an ONNX graph on given values, with all floating-point arithmetic in one type.

In f64 the ops are run one by one in NumPy, in f32 by ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.dtypes import parse_dtype as named
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.onnx.arrays import constant
from syncpoint.runtimes.onnx.element_types import NAMES
from syncpoint.runtimes.onnx.float32_model import run_in_float32
from syncpoint.runtimes.onnx.float64_ops import call, check, is_real, wide
from syncpoint.runtimes.onnx.graph import Graph, Scope
from syncpoint.runtimes.onnx.quantization import Quantizations
from syncpoint.runtimes.onnx.region_ops import region_piece
from syncpoint.runtimes.protocol import Array, Region


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
        piece = region_piece(self._graph, region)
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
