"""Find scale and zero point of integer values in an ONNX graph, from the ops that quantize, move or
read them; sign of an integer grid.

An op that quantizes has them as inputs. Ops that only move values pass them on. A parameter has
those that the op which reads it assumes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import Quantization
from syncpoint.runtimes.onnx.arrays import constant_to_numpy
from syncpoint.runtimes.protocol import Array

Lookup = Callable[[ir.Value], Array | None]
"""Returns the values of a scale or zero point: a parameter, or computed in this run."""

_OUTPUT_SCALES: dict[str, tuple[int, int]] = {
    "QuantizeLinear": (1, 2),
    "QLinearConv": (6, 7),
    "QLinearMatMul": (6, 7),
    "QLinearAdd": (6, 7),
    "QLinearMul": (6, 7),
    "QLinearSigmoid": (3, 4),
    "QLinearLeakyRelu": (3, 4),
    "QLinearSoftmax": (3, 4),
    "QLinearAveragePool": (3, 4),
    "QLinearGlobalAveragePool": (3, 4),
    "QLinearReduceMean": (3, 4),
    "QLinearConcat": (0, 1),
    "QLinearWhere": (7, 8),
    "QGemm": (7, 8),
}
"""Op -> the indices of the inputs that are scale and zero point of its output."""
_INPUT_SCALES: dict[str, tuple[tuple[int, int, int, int | None], ...]] = {
    "DequantizeLinear": ((0, 1, 2, None),),
    "QLinearConv": ((0, 1, 2, None), (3, 4, 5, 0)),
    "QLinearMatMul": ((0, 1, 2, None), (3, 4, 5, -1)),
    "QLinearAdd": ((0, 1, 2, None), (3, 4, 5, None)),
    "QLinearMul": ((0, 1, 2, None), (3, 4, 5, None)),
    "QGemm": ((0, 1, 2, None), (3, 4, 5, -1)),
    "DynamicQuantizeMatMul": ((1, 2, 3, -1),),
    "DynamicQuantizeLSTM": ((1, 8, 9, 0), (2, 10, 11, 0)),
    "MatMulIntegerToFloat": ((0, 2, 4, None), (1, 3, 5, -1)),
}
"""Op -> indices of an input, its scale and its zero point, and the axis if it has many scales."""
_INTEGER_PRODUCTS = {"MatMulInteger": -1, "ConvInteger": 0}
"""Ops that multiply integers and leave the scales to a multiplication that follows -> the axis of
the weight if it has many scales."""
_MOVES = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather"}
    | {"Split", "Expand", "Tile", "Concat", "MaxPool", "NhwcMaxPool", "DepthToSpace", "Dropout"}
    | {"SpaceToDepth", "GatherElements", "GatherND", "ReduceMax", "ReduceMin", "Max", "Min"}
)
"""Ops whose output has only values of their input."""
_MIXES = frozenset({"Concat", "Max", "Min"})
"""Ops of `_MOVES` that mix several tensors, which must then have one quantization."""


class QuantizationFinder:
    """Finds the quantization of the integer values of one graph in one run."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._quantizations: dict[ir.Value, Quantization | None] = {}

    def find(self, value: ir.Value) -> Quantization | None:
        """Find the quantization of a value; None where there is none, or two that differ."""
        if value not in self._quantizations:
            self._quantizations[value] = None  # ends cycles
            self._quantizations[value] = self._from_producer(value) or self._from_readers(value)
        return self._quantizations[value]

    def _from_readers(self, value: ir.Value) -> Quantization | None:
        """The quantization that the readers of a value assume, also behind ops that move it."""
        candidates = set()
        for use in value.uses():
            quantization = self._of_operand(use.node, use.idx)
            if quantization is None and use.node.op_type in _MOVES and use.idx == 0:
                quantization = self.find(use.node.outputs[0])
                if quantization is not None and quantization.axis is not None:
                    quantization = None
            if quantization is not None:
                candidates.add(quantization)
        return candidates.pop() if len(candidates) == 1 else None

    def _from_producer(self, value: ir.Value) -> Quantization | None:
        node = value.producer()
        if node is None:
            return None
        if node.op_type == "DynamicQuantizeLinear":
            is_first = value.index() == 0
            return self._read(node.outputs[1], node.outputs[2], None) if is_first else None
        if node.op_type in _INTEGER_PRODUCTS:
            axis = 1 if node.op_type == "ConvInteger" else -1
            return self._read(_scale_of_product(node), None, axis)
        if node.op_type in _OUTPUT_SCALES:
            scale, zero = (_input(node, index) for index in _OUTPUT_SCALES[node.op_type])
            return self._read(
                scale, zero, _axis(node) if node.op_type == "QuantizeLinear" else 1, _block(node)
            )
        if (node.op_type in _MOVES and value.index() == 0) or node.op_type == "Split":
            return self._through_move(node)
        return None

    def _through_move(self, node: ir.Node) -> Quantization | None:
        """The quantization of the output of an op that only moves values."""
        sources = [v for v in node.inputs if v is not None]
        sources = sources if node.op_type in _MIXES else sources[:1]
        candidates = {self._of_input(node, index) for index in range(len(sources))}
        quantization = candidates.pop() if len(candidates) == 1 else None
        if quantization is None or quantization.axis is None:
            return quantization
        if node.op_type == "Identity":
            return quantization
        if node.op_type == "Transpose" and quantization.axis >= 0:
            order = list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else []
            if quantization.axis in order:
                return Quantization(
                    quantization.scale,
                    quantization.zero_point,
                    order.index(quantization.axis),
                    quantization.block,
                )
        return None

    def _of_input(self, node: ir.Node, index: int) -> Quantization | None:
        value = node.inputs[index]
        if value is None:
            return None
        return self._quantizations.get(value) or self._from_producer(value)

    def _of_operand(self, node: ir.Node, index: int) -> Quantization | None:
        """The quantization that a node assumes for one of its inputs."""
        if node.op_type in _INTEGER_PRODUCTS and index == 1:
            return self._of_weight(node)
        for operand, scale, zero, axis in _INPUT_SCALES.get(node.op_type, ()):
            if operand == index:
                if node.op_type == "DequantizeLinear":
                    axis = _axis(node)
                elif node.attributes.get_int("transB", 0) and axis == -1:
                    axis = 0  # a Gemm whose weight is [out, in], like that of a linear layer
                return self._read(_input(node, scale), _input(node, zero), axis, _block(node))
        return None

    def _of_weight(self, node: ir.Node) -> Quantization | None:
        """The quantization of the second factor of a product of integers: the scale of the product
        is that of the first factor times this one."""
        product = self._from_producer(node.outputs[0])
        first = node.inputs[0]
        activation = self.find(first) if first is not None else None
        zero = _input(node, 3)
        zeros = self._lookup(zero) if zero is not None else np.zeros((), np.int8)
        if product is None or activation is None or zeros is None or len(activation.scale) != 1:
            return None
        scales = np.asarray(product.scale) / activation.scale[0]
        return _make_quantization(scales, zeros, _INTEGER_PRODUCTS[node.op_type])

    def _read(
        self, scale: ir.Value | None, zero: ir.Value | None, axis: int | None, block: int = 0
    ) -> Quantization | None:
        scales = self._lookup(scale) if scale is not None else None
        if scales is None or scales.size == 0:
            return None
        zeros = self._lookup(zero) if zero is not None else np.zeros((), np.int8)
        if zeros is None or (scales.ndim > 1 and scales.size > 1):
            return None
        return _make_quantization(scales, zeros, axis, block)


def _make_quantization(
    scales: Array, zeros: Array, axis: int | None, block: int = 0
) -> Quantization | None:
    if from_numpy(zeros.dtype).kind != "int":
        return None
    return Quantization(
        tuple(float(s) for s in scales.reshape(-1)),
        tuple(int(z) for z in zeros.reshape(-1)) or (0,),
        axis if scales.size > 1 else None,
        block if scales.size > 1 else 0,
    )


def _scale_of_product(node: ir.Node) -> ir.Value | None:
    """The number by which the only reader multiplies a product of integers, after a cast."""
    value = node.outputs[0]
    for op_type in ("Cast", "Mul"):
        uses = list(value.uses())
        if len(uses) != 1 or uses[0].node.op_type != op_type:
            return None
        reader, index = uses[0].node, uses[0].idx
        if op_type == "Mul":
            return reader.inputs[1 - index]
        value = reader.outputs[0]
    return None


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _axis(node: ir.Node) -> int:
    return node.attributes.get_int("axis", 1)


def _block(node: ir.Node) -> int:
    return node.attributes.get_int("block_size", 0)


def has_integer_product(value: ir.Value) -> bool:
    """Whether the op of a value multiplies int8, though its output is not int8."""
    node = value.producer()
    return node is not None and node.op_type in (
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulInteger", "ConvInteger"),
        *("DynamicQuantizeLSTM", "MatMulNBits"),
    )


def grid_sign(zero: Array) -> int:
    """Return 1 if the grid of this zero point has no negative numbers, -1 if it has no positive
    ones, else 0."""
    dtype = from_numpy(zero.dtype)
    if dtype.kind is not Kind.INT or not zero.size:
        return 0
    is_signed = dtype.name.startswith("i")
    lowest = -(1 << (dtype.bits - 1)) if is_signed else 0
    zeros = zero.astype(np.int64)
    if (zeros == lowest).all():
        return 1
    return -1 if (zeros == lowest + (1 << dtype.bits) - 1).all() else 0


def begins_at_zero(node: ir.Node) -> bool:
    """Whether the grid that a node quantizes to has no negative numbers."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    zeros = np.zeros((), np.uint8) if zero is None else constant_to_numpy(zero)
    sign = 0 if zeros is None else grid_sign(zeros)
    if sign < 0:
        raise Unsupported(f"{node.op_type} quantizes to a grid that ends at zero")
    return sign > 0
