"""Which stored integers of an ONNX graph stand for real numbers, and for which.

An op that quantizes says so by its scale and zero point; ops that only move values about hand
them on; a parameter is what the op that reads it takes it for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import Quantization
from syncpoint.runtimes.onnx.arrays import constant
from syncpoint.runtimes.protocol import Array

Lookup = Callable[[ir.Value], Array | None]
"""The values of a scale or zero point: a parameter's, or what was computed in this run."""

_GIVES: dict[str, tuple[int, int]] = {
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
"""Op -> which of its inputs are scale and zero point of what it gives."""
_TAKES: dict[str, tuple[tuple[int, int, int, int | None], ...]] = {
    "DequantizeLinear": ((0, 1, 2, None),),
    "QLinearConv": ((0, 1, 2, None), (3, 4, 5, 0)),
    "QLinearMatMul": ((0, 1, 2, None), (3, 4, 5, -1)),
    "QLinearAdd": ((0, 1, 2, None), (3, 4, 5, None)),
    "QLinearMul": ((0, 1, 2, None), (3, 4, 5, None)),
    "QGemm": ((0, 1, 2, None), (3, 4, 5, -1)),
    "DynamicQuantizeMatMul": ((1, 2, 3, -1),),
    "MatMulIntegerToFloat": ((0, 2, 4, None), (1, 3, 5, -1)),
}
"""Op -> input, its scale, its zero point, and the axis where there are several scales."""
_MOVES = frozenset(
    {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather"}
    | {"Split", "Expand", "Tile", "Concat", "MaxPool", "NhwcMaxPool", "DepthToSpace", "Dropout"}
    | {"SpaceToDepth", "GatherElements", "GatherND", "ReduceMax", "ReduceMin", "Max", "Min"}
)
"""Ops that give no value they were not given."""
_ONE_SOURCE = frozenset({"Concat", "Max", "Min"})
"""Those of them that mix several tensors, which must then mean the same."""


class Quantizations:
    """What the integers of one graph mean in one run."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._known: dict[ir.Value, Quantization | None] = {}

    def of(self, value: ir.Value) -> Quantization | None:
        """What the integers of a value mean; None where it is not said, or said in two ways."""
        if value not in self._known:
            self._known[value] = None
            self._known[value] = self._made(value) or self._read_as(value)
        return self._known[value]

    def _read_as(self, value: ir.Value) -> Quantization | None:
        """What those that read a value take it for, further on where it is only moved."""
        found = set()
        for use in value.uses():
            taken = self._taken(use.node, use.idx)
            if taken is None and use.node.op_type in _MOVES and use.idx == 0:
                taken = self.of(use.node.outputs[0])
                taken = taken if taken is None or taken.axis is None else None
            if taken is not None:
                found.add(taken)
        return found.pop() if len(found) == 1 else None

    def _made(self, value: ir.Value) -> Quantization | None:
        node = value.producer()
        if node is None:
            return None
        if node.op_type == "DynamicQuantizeLinear":
            first = value.index() == 0
            return self._read(node.outputs[1], node.outputs[2], None) if first else None
        if node.op_type in _GIVES:
            scale, zero = (_input(node, at) for at in _GIVES[node.op_type])
            return self._read(
                scale, zero, _axis(node) if node.op_type == "QuantizeLinear" else 1, _block(node)
            )
        if (node.op_type in _MOVES and value.index() == 0) or node.op_type == "Split":
            return self._moved(node)
        return None

    def _moved(self, node: ir.Node) -> Quantization | None:
        sources = [v for v in node.inputs if v is not None]
        sources = sources if node.op_type in _ONE_SOURCE else sources[:1]
        found = {self._given(node, at) for at in range(len(sources))}
        meaning = found.pop() if len(found) == 1 else None
        if meaning is None or meaning.axis is None:
            return meaning
        if node.op_type == "Identity":
            return meaning
        if node.op_type == "Transpose" and meaning.axis >= 0:
            order = list(node.attributes["perm"].as_ints()) if "perm" in node.attributes else []
            if meaning.axis in order:
                return Quantization(
                    meaning.scale, meaning.zero_point, order.index(meaning.axis), meaning.block
                )
        return None

    def _given(self, node: ir.Node, at: int) -> Quantization | None:
        value = node.inputs[at]
        if value is None:
            return None
        return self._known.get(value) or self._made(value)

    def _taken(self, node: ir.Node, at: int) -> Quantization | None:
        for place, scale, zero, axis in _TAKES.get(node.op_type, ()):
            if place == at:
                if node.op_type == "DequantizeLinear":
                    axis = _axis(node)
                elif node.attributes.get_int("transB", 0) and axis == -1:
                    axis = 0  # a Gemm whose weight lies as a linear layer has it
                return self._read(_input(node, scale), _input(node, zero), axis, _block(node))
        return None

    def _read(
        self, scale: ir.Value | None, zero: ir.Value | None, axis: int | None, block: int = 0
    ) -> Quantization | None:
        scales = self._lookup(scale) if scale is not None else None
        if scales is None or scales.size == 0:
            return None
        zeros = self._lookup(zero) if zero is not None else np.zeros((), np.int8)
        if zeros is None or (scales.ndim > 1 and scales.size > 1):
            return None
        if from_numpy(zeros.dtype).kind != "int":
            return None
        return Quantization(
            tuple(float(s) for s in scales.reshape(-1)),
            tuple(int(z) for z in zeros.reshape(-1)) or (0,),
            axis if scales.size > 1 else None,
            block if scales.size > 1 else 0,
        )


def _input(node: ir.Node, at: int) -> ir.Value | None:
    return node.inputs[at] if at < len(node.inputs) else None


def _axis(node: ir.Node) -> int:
    return node.attributes.get_int("axis", 1)


def _block(node: ir.Node) -> int:
    return node.attributes.get_int("block_size", 0)


def multiplies_integers(value: ir.Value) -> bool:
    """Whether the op behind a value works on int8 and does not show it in what it gives."""
    node = value.producer()
    return node is not None and node.op_type in (
        *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulInteger", "ConvInteger"),
        "MatMulNBits",
    )


def one_sided(zero: Array) -> int:
    """1 where a grid with this zero point has no negative numbers, -1 where it has no positive
    ones, else 0."""
    kind = from_numpy(zero.dtype)
    if kind.kind is not Kind.INT or not zero.size:
        return 0
    signed = kind.name.startswith("i")
    lowest = -(1 << (kind.bits - 1)) if signed else 0
    plain = zero.astype(np.int64)
    if (plain == lowest).all():
        return 1
    return -1 if (plain == lowest + (1 << kind.bits) - 1).all() else 0


def begins_at_zero(node: ir.Node) -> bool:
    """Whether the grid that a node quantizes to has no negative numbers."""
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    found = np.zeros((), np.uint8) if zero is None else constant(zero)
    side = 0 if found is None else one_sided(found)
    if side < 0:
        raise Unsupported("a grid that does not end at nought", node.op_type)
    return side > 0
