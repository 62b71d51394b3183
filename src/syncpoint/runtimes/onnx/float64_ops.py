"""Compute one ONNX op in float64 with onnx's reference implementation or own functions (quantizing
becomes identity); refuse ops that cannot run alone.

Ops that the reference computes in a narrower type, or on integers that stand for real numbers, are
implemented here. Quantizing and casting between floats are identity.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper
from onnx.reference import ReferenceEvaluator

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES, FLOATS, Kind, from_numpy
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.element_types import DTYPE_NAMES
from syncpoint.runtimes.onnx.graph import sub_graphs
from syncpoint.runtimes.onnx.node_metadata import is_random, type_of
from syncpoint.runtimes.onnx.quantization import grid_sign
from syncpoint.runtimes.protocol import Array

Operands = Sequence[Array | None]

_MOVES = frozenset(
    {"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather"}
    | {"GatherElements", "GatherND", "Concat", "Split", "Expand", "Tile", "Pad", "Where", "Shape"}
    | {"ScatterElements", "ScatterND", "DepthToSpace", "SpaceToDepth", "Size", "Compress"}
    | {"NonZero", "Trilu", "ReverseSequence", "TopK", "ArgMax", "ArgMin", "Max", "Min", "OneHot"}
    | {"ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "Relu", "Abs", "Neg", "Sign", "Clip"}
    | {"Floor", "Ceil", "Round", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}
    | {"IsNaN", "IsInf", "Not", "And", "Or", "Xor", "Mod", "Range", "Add", "Sub", "Mul", "Div"}
)
"""Ops that round at most their output, in any type."""
EXACT = frozenset(
    {"Pow", "Sqrt", "Exp", "Log", "Reciprocal", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan"}
    | {"Sinh", "Cosh", "Tanh", "Sigmoid", "Softplus", "Softsign", "Elu", "Celu", "Mish"}
    | {"LeakyRelu", "PRelu", "HardSigmoid", "ThresholdedRelu", "Softmax", "LogSoftmax", "MatMul"}
    | {"Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "ReduceMean", "ReduceL1"}
    | {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ReduceProd", "Sum"}
    | {"Mean", "CumSum", "LayerNormalization", "BatchNormalization", "InstanceNormalization"}
    | {"GlobalAveragePool"}
)
"""Ops whose reference was tested to compute completely in float64. Others do not: that of Erf, for
one, returns the values of float32."""


def is_float(array: Array) -> bool:
    """Whether the elements of an array are floats, including those of ml_dtypes."""
    return from_numpy(array.dtype).kind is Kind.FLOAT


def widen(array: Array) -> Array:
    """Convert floats to float64 and complex numbers to complex128; other types stay."""
    kind = from_numpy(array.dtype).kind
    if kind is Kind.FLOAT:
        return array.astype(np.float64)
    return array.astype(np.complex128) if kind is Kind.COMPLEX else array


def check_op(node: ir.Node) -> None:
    """Refuse ops that cannot run alone in float64."""
    if is_random(node):
        raise Unsupported(f"{_label(node)} is random, so it cannot be evaluated")
    if sub_graphs(node):
        raise Unsupported(f"{_label(node)} has a sub-graph, so it cannot be computed on its own")
    if node.domain not in ("", "ai.onnx"):
        raise Unsupported(f"{_label(node)} is not an op that ONNX defines")
    if node.op_type not in _OWN_OPS and node.op_type not in _MOVES and node.op_type not in EXACT:
        raise Unsupported(f"onnx's reference of {_label(node)} does not compute in float64")


def run_op(node: ir.Node, operands: Operands, opset: int) -> list[Array]:
    """Compute the outputs of a node on these operands, with every float in float64."""
    own_op = _OWN_OPS.get(node.op_type)
    try:
        outputs = own_op(node, operands) if own_op else _run_reference(node, operands, opset)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(
            f"{_label(node)} cannot be computed on its own in float64: {one_line(error)}"
        ) from error
    for array in outputs:
        if isinstance(array, np.ndarray | np.generic) and from_numpy(array.dtype).name in (
            FLOATS - {"f64"}
        ):
            raise Unsupported(f"{_label(node)} computes in {array.dtype}, not in float64")
    return [np.asarray(array) for array in outputs]


def _label(node: ir.Node) -> str:
    return f"{node.outputs[0].name or node.name} ({type_of(node)})"


def _run_reference(node: ir.Node, operands: Operands, opset: int) -> list[Any]:
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    names = [f"i{index}" if array is not None else "" for index, array in enumerate(operands)]
    del proto.input[:]
    proto.input.extend(names)
    feeds = {n: a for n, a in zip(names, operands, strict=True) if a is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    output_names = [name for name in proto.output if name]
    graph = helper.make_graph(
        [proto], "one_op", inputs, [helper.make_empty_tensor_value_info(n) for n in output_names]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        # Ops that are defined by other ops are expanded by the types of their operands.
        model = onnx.shape_inference.infer_shapes(model)
    outputs = dict(zip(output_names, ReferenceEvaluator(model).run(None, feeds), strict=True))
    return [outputs[name] if name else np.zeros(0) for name in proto.output]


def _cast(node: ir.Node, operands: Operands) -> list[Array]:
    value = _operand(operands, 0)
    if node.op_type == "CastLike":
        dtype = from_numpy(_operand(operands, 1).dtype).name
    else:
        dtype = DTYPE_NAMES.get(node.attributes.get_int("to", 0), "")
    if not dtype:
        raise Unsupported(f"{_label(node)} is not a cast from one numeric type to another")
    if dtype in FLOATS:
        return [widen(value) if is_float(value) else value.astype(np.float64)]
    numpy_dtype = DTYPES[dtype].numpy
    if not is_float(value) or numpy_dtype == np.bool_:
        return [value.astype(numpy_dtype)]
    with np.errstate(invalid="ignore"):
        return [np.trunc(value).astype(numpy_dtype)]


def _quantize(node: ir.Node, operands: Operands) -> list[Array]:
    """Identity, except for a grid that begins or ends at zero: it has the effect of the ReLU that
    the quantizer removed."""
    value = widen(_operand(operands, 0))
    zero = operands[2] if len(operands) > 2 else None
    sign = grid_sign(np.zeros((), np.uint8) if zero is None else zero)
    if sign:
        value = np.maximum(value, 0) if sign > 0 else np.minimum(value, 0)
    return [value]


def _dequantize(node: ir.Node, operands: Operands) -> list[Array]:
    """Convert stored integers to the real numbers they stand for; floats stay."""
    value = _operand(operands, 0)
    if is_float(value):
        return [widen(value)]
    scale = widen(_operand(operands, 1))
    zero = operands[2] if len(operands) > 2 else None
    axis = node.attributes.get_int("axis", 1)
    block = node.attributes.get_int("block_size", 0)
    zero = np.zeros_like(scale) if zero is None else zero.astype(np.float64)
    if block:
        scale, zero = (np.repeat(a, block, axis) for a in (scale, zero))
        selection = [slice(None)] * value.ndim
        selection[axis] = slice(0, value.shape[axis])
        scale, zero = scale[tuple(selection)], zero[tuple(selection)]
    elif scale.size > 1:
        shape = [1] * value.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return [(value.astype(np.float64) - zero) * scale]


def _dynamic_quantize(node: ir.Node, operands: Operands) -> list[Array]:
    """Identity: real numbers with a scale of one and a zero point of zero."""
    return [widen(_operand(operands, 0)), np.array(1.0), np.array(0, np.uint8)]


def _integer_product(node: ir.Node, operands: Operands) -> list[Array]:
    a_stored, b_stored = _operand(operands, 0), _operand(operands, 1)
    zeros = [operands[index] if len(operands) > index else None for index in (2, 3)]
    a = a_stored.astype(np.float64) - (0 if zeros[0] is None else _to_column(zeros[0]))
    b = b_stored.astype(np.float64) - (0 if zeros[1] is None else zeros[1].astype(np.float64))
    if not is_float(a_stored) and not is_float(b_stored):
        return [(a @ b).astype(np.int32)]
    return [a @ b]


def _to_column(zero: Array) -> Array:
    return zero.astype(np.float64).reshape(-1, 1) if zero.ndim == 1 else zero.astype(np.float64)


def _constant_of_shape(node: ir.Node, operands: Operands) -> list[Array]:
    value = node.attributes["value"].as_tensor().numpy() if "value" in node.attributes else None
    filled = np.zeros(1, np.float64) if value is None else widen(value.reshape(-1)[:1])
    return [np.full(tuple(int(n) for n in _operand(operands, 0)), filled[0], filled.dtype)]


def _dropout(node: ir.Node, operands: Operands) -> list[Array]:
    value = _operand(operands, 0)
    outputs = [value]
    if len(node.outputs) > 1:
        outputs.append(np.ones(value.shape, bool))
    return outputs


def _erf(node: ir.Node, operands: Operands) -> list[Array]:
    return [erf(_operand(operands, 0))]


def erf(array: Array) -> Array:
    """Compute the error function in float64, which NumPy does not have."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(array), np.float64)


def _gelu(node: ir.Node, operands: Operands) -> list[Array]:
    x = _operand(operands, 0)
    if node.attributes.get_string("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return [0.5 * x * (1 + np.tanh(inner))]
    return [0.5 * x * (1 + erf(x / math.sqrt(2)))]


def _hard_swish(node: ir.Node, operands: Operands) -> list[Array]:
    x = _operand(operands, 0)
    return [x * np.clip(x / 6 + 0.5, 0, 1)]


def _average_pool(node: ir.Node, operands: Operands) -> list[Array]:
    """Average pooling. The reference loops over elements, which takes minutes for a real net."""
    value = _operand(operands, 0)
    window = list(node.attributes["kernel_shape"].as_ints())
    rank = len(window)
    steps = _ints(node, "strides", [1] * rank)
    pads = _ints(node, "pads", [0] * 2 * rank)
    dilations = _ints(node, "dilations", [1] * rank)
    has_explicit_pads = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
    rounds_up = node.attributes.get_int("ceil_mode", 0) == 1
    if not has_explicit_pads or rounds_up or any(d != 1 for d in dilations):
        raise Unsupported(
            f"{_label(node)} uses auto_pad, ceil_mode or dilations, which have no float64 form"
        )
    padding = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    axes = tuple(range(2, 2 + rank))
    selection = (slice(None), slice(None), *(slice(None, None, s) for s in steps))

    def sum_windows(array: Array) -> Array:
        padded = np.pad(array, padding)
        windows: Array = np.lib.stride_tricks.sliding_window_view(padded, window, axis=axes)
        total: Array = windows[selection].sum(axis=tuple(range(-rank, 0)))
        return total

    counts_padding = node.attributes.get_int("count_include_pad", 0) == 1
    ones = np.ones((1, 1, *value.shape[2:]))
    return [sum_windows(value) / (np.prod(window) if counts_padding else sum_windows(ones))]


def _ints(node: ir.Node, name: str, default: list[int]) -> list[int]:
    return list(node.attributes[name].as_ints()) if name in node.attributes else default


def _operand(operands: Operands, index: int) -> Array:
    value = operands[index] if index < len(operands) else None
    if value is None:
        raise Unsupported(f"the op lacks its operand {index}")
    return value


_OWN_OPS: dict[str, Callable[[ir.Node, Operands], list[Array]]] = {
    "Cast": _cast,
    "CastLike": _cast,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _integer_product,
    "ConstantOfShape": _constant_of_shape,
    "Dropout": _dropout,
    "AveragePool": _average_pool,
    "Erf": _erf,
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
}
