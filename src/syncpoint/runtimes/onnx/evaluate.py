"""Evaluates regions of an ONNX graph, with all floating-point arithmetic in one type.

In f64 the ops are run one by one in NumPy, in f32 by ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.dtypes import DTYPES, Kind, parse_dtype
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.onnx.arrays import constant_array
from syncpoint.runtimes.onnx.element_types import DTYPE_NAMES
from syncpoint.runtimes.onnx.float32_model import run_in_float32
from syncpoint.runtimes.onnx.float64_ops import check_op, is_float, run_op, widen
from syncpoint.runtimes.onnx.graph import OnnxGraph, Scope
from syncpoint.runtimes.onnx.quantization import QuantizationFinder
from syncpoint.runtimes.onnx.region_ops import find_region_ops
from syncpoint.runtimes.protocol import Array, Region


class OnnxEvaluator:
    """Evaluates regions of one graph."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._opset = graph.original.opset_imports.get("", 20)
        self._quantizations = QuantizationFinder(constant_array)

    def parameters_of(self, region: Region) -> list[OpKey]:
        """List the parameters that the region's ops read, each once."""
        parameters: dict[OpKey, None] = {}
        for key in region.ops:
            node = self._graph.nodes.get(key.op)
            for value in node.inputs if node is not None and not key.path else ():
                edge = self._graph.edge(value, Scope())
                if edge is not None and edge.role is Role.PARAMETER:
                    parameters[edge.op] = None
        return list(parameters)

    def evaluate(
        self,
        region: Region,
        inputs: Mapping[Edge, Array],
        dtype: str,
        parameter_dtype: str | None,
    ) -> list[Array | None]:
        """Compute the region's outputs, in their order."""
        if parse_dtype(dtype).kind is not Kind.FLOAT:
            raise InputError(
                f"{dtype!r} is not a floating-point type", cure="evaluate in f64 or f32"
            )
        if dtype not in ("f64", "f32"):
            raise Unsupported(
                f"an ONNX model cannot be evaluated in {dtype}", cure="evaluate in f64 or f32"
            )
        region_ops = find_region_ops(self._graph, region)
        for node in region_ops.nodes:
            check_op(node)
        values: dict[ir.Value, Array] = {}
        for value, edge in region_ops.inputs.items():
            if edge not in inputs:
                raise InputError(f"the region reads {edge.op}, but no value was passed for it")
            values[value] = self._convert_input(value, inputs[edge])
        for value in region_ops.parameters:
            values[value] = self._fetch_parameter(value, inputs, parameter_dtype)
        if dtype == "f32":
            return run_in_float32(region_ops.nodes, values, region_ops.outputs, self._opset)
        for node in region_ops.nodes:
            operands = [None if v is None or not v.name else values[v] for v in node.inputs]
            values |= zip(node.outputs, run_op(node, operands, self._opset), strict=False)
        return [np.array(values[value]) for value in region_ops.outputs]

    def _convert_input(self, value: ir.Value, array: Array) -> Array:
        """Convert an input of the region to the kind of type that its op expects."""
        dtype = DTYPE_NAMES.get(int(value.dtype)) if value.dtype is not None else None
        if dtype is None or is_float(array) is (DTYPES[dtype].kind is Kind.FLOAT):
            return widen(array)
        expected = DTYPES[dtype]
        if expected.kind is Kind.FLOAT:
            return array.astype(np.float64)
        if expected.kind is Kind.BOOL:
            return np.asarray(array != 0)
        if expected.kind is Kind.INT and self._quantizations.find(value) is None:
            return np.rint(array).astype(expected.numpy)
        # Integers that stand for real numbers are passed as real numbers.
        if any(use.node.op_type in ("MatMulInteger", "ConvInteger") for use in value.uses()):
            raise Unsupported(
                f"an op multiplies the integers of {value.name}, but real numbers were passed"
            )
        return widen(array)

    def _fetch_parameter(
        self, value: ir.Value, inputs: Mapping[Edge, Array], round_to: str | None
    ) -> Array:
        """Return a parameter: the recorded one, else that of the model; rounded if asked."""
        name = self._graph.parameter_name(value)
        array = inputs.get(Edge(OpKey(name), role=Role.PARAMETER))
        if array is None:
            array = constant_array(value)
        if array is None:
            raise Unsupported(f"the parameter {value.name} is not a tensor of numbers")
        if round_to is not None and is_float(array):
            with np.errstate(over="ignore"):
                array = array.astype(DTYPES[round_to].numpy)
        return widen(array)
