"""Single ONNX ops in double precision: by onnx's own reference, which is plain NumPy.

What the reference does in a narrower type, or would do with integers that stand for real numbers,
is done here. Quantizing and casting between floats count as identity.
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
from syncpoint.runtimes.onnx.element_types import NAMES
from syncpoint.runtimes.onnx.graph import sub_graphs
from syncpoint.runtimes.onnx.node_metadata import is_random, type_of
from syncpoint.runtimes.onnx.quantization import one_sided
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
"""Ops that round at most their result, whatever they are made of."""
EXACT = frozenset(
    {"Pow", "Sqrt", "Exp", "Log", "Reciprocal", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan"}
    | {"Sinh", "Cosh", "Tanh", "Sigmoid", "Softplus", "Softsign", "Elu", "Celu", "Mish"}
    | {"LeakyRelu", "PRelu", "HardSigmoid", "ThresholdedRelu", "Softmax", "LogSoftmax", "MatMul"}
    | {"Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "ReduceMean", "ReduceL1"}
    | {"ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ReduceProd", "Sum"}
    | {"Mean", "CumSum", "LayerNormalization", "BatchNormalization", "InstanceNormalization"}
    | {"GlobalAveragePool"}
)
"""Ops whose reference was tested to compute in float64 all through. That of others does not:
of Erf, for one, it gives the values of float32."""


def is_real(array: Array) -> bool:
    """Whether an array is of floats, those of ml_dtypes too."""
    return from_numpy(array.dtype).kind is Kind.FLOAT


def wide(array: Array) -> Array:
    """Floats as float64, complex ones as complex128; all else as it is."""
    kind = from_numpy(array.dtype).kind
    if kind is Kind.FLOAT:
        return array.astype(np.float64)
    return array.astype(np.complex128) if kind is Kind.COMPLEX else array


def check(node: ir.Node) -> None:
    """Refuse what cannot be run on its own in double precision."""
    if is_random(node):
        raise Unsupported(
            "an op that gives the same every time", f"{_named(node)}, which is random"
        )
    if sub_graphs(node):
        raise Unsupported("an op without sub-graphs", _named(node))
    if node.domain not in ("", "ai.onnx"):
        raise Unsupported("an op that ONNX defines", _named(node))
    if node.op_type not in _OWN and node.op_type not in _MOVES and node.op_type not in EXACT:
        raise Unsupported("an op whose reference computes in f64", _named(node))


def call(node: ir.Node, operands: Operands, opset: int) -> list[Array]:
    """What a node gives for these operands, with every float in double precision."""
    own = _OWN.get(node.op_type)
    try:
        found = own(node, operands) if own else _reference(node, operands, opset)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"{_named(node)} to run on its own in f64", one_line(error)) from error
    for array in found:
        if isinstance(array, np.ndarray | np.generic) and from_numpy(array.dtype).name in (
            FLOATS - {"f64"}
        ):
            raise Unsupported(f"{_named(node)} to compute in f64", f"a result in {array.dtype}")
    return [np.asarray(array) for array in found]


def _named(node: ir.Node) -> str:
    return f"{node.outputs[0].name or node.name} ({type_of(node)})"


def _reference(node: ir.Node, operands: Operands, opset: int) -> list[Any]:
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    names = [f"i{at}" if array is not None else "" for at, array in enumerate(operands)]
    del proto.input[:]
    proto.input.extend(names)
    feeds = {n: a for n, a in zip(names, operands, strict=True) if a is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    wanted = [name for name in proto.output if name]
    graph = helper.make_graph(
        [proto], "one", inputs, [helper.make_empty_tensor_value_info(n) for n in wanted]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with contextlib.suppress(onnx.shape_inference.InferenceError):
        # Ops that are defined by others are unfolded by the types of their operands.
        model = onnx.shape_inference.infer_shapes(model)
    found = dict(zip(wanted, ReferenceEvaluator(model).run(None, feeds), strict=True))
    return [found[name] if name else np.zeros(0) for name in proto.output]


def _cast(node: ir.Node, operands: Operands) -> list[Array]:
    value = _given(operands, 0)
    if node.op_type == "CastLike":
        kind = from_numpy(_given(operands, 1).dtype).name
    else:
        kind = NAMES.get(node.attributes.get_int("to", 0), "")
    if not kind:
        raise Unsupported("a cast between numbers", _named(node))
    if kind in FLOATS:
        return [wide(value) if is_real(value) else value.astype(np.float64)]
    numpy = DTYPES[kind].numpy
    if not is_real(value) or numpy == np.bool_:
        return [value.astype(numpy)]
    with np.errstate(invalid="ignore"):
        return [np.trunc(value).astype(numpy)]


def _quantize(node: ir.Node, operands: Operands) -> list[Array]:
    """Identity, but for a grid that begins or ends at nought: it has the effect of the ReLU that
    a quantizer left out for its sake."""
    value = wide(_given(operands, 0))
    zero = operands[2] if len(operands) > 2 else None
    side = one_sided(np.zeros((), np.uint8) if zero is None else zero)
    if side:
        value = np.maximum(value, 0) if side > 0 else np.minimum(value, 0)
    return [value]


def _dequantize(node: ir.Node, operands: Operands) -> list[Array]:
    """Stored integers as what they stand for; what was never quantized, as it is."""
    value = _given(operands, 0)
    if is_real(value):
        return [wide(value)]
    scale = wide(_given(operands, 1))
    zero = operands[2] if len(operands) > 2 else None
    axis = node.attributes.get_int("axis", 1)
    block = node.attributes.get_int("block_size", 0)
    zero = np.zeros_like(scale) if zero is None else zero.astype(np.float64)
    if block:
        scale, zero = (np.repeat(a, block, axis) for a in (scale, zero))
        places = [slice(None)] * value.ndim
        places[axis] = slice(0, value.shape[axis])
        scale, zero = scale[tuple(places)], zero[tuple(places)]
    elif scale.size > 1:
        shape = [1] * value.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return [(value.astype(np.float64) - zero) * scale]


def _dynamic_quantize(node: ir.Node, operands: Operands) -> list[Array]:
    """Real numbers stay real: a scale of one and a zero point of nought say the same."""
    return [wide(_given(operands, 0)), np.array(1.0), np.array(0, np.uint8)]


def _integer_product(node: ir.Node, operands: Operands) -> list[Array]:
    left, right = _given(operands, 0), _given(operands, 1)
    zeros = [operands[at] if len(operands) > at else None for at in (2, 3)]
    a = left.astype(np.float64) - (0 if zeros[0] is None else _rows(zeros[0]))
    b = right.astype(np.float64) - (0 if zeros[1] is None else zeros[1].astype(np.float64))
    if not is_real(left) and not is_real(right):
        return [(a @ b).astype(np.int32)]
    return [a @ b]


def _rows(zero: Array) -> Array:
    return zero.astype(np.float64).reshape(-1, 1) if zero.ndim == 1 else zero.astype(np.float64)


def _constant_of_shape(node: ir.Node, operands: Operands) -> list[Array]:
    value = node.attributes["value"].as_tensor().numpy() if "value" in node.attributes else None
    filled = np.zeros(1, np.float64) if value is None else wide(value.reshape(-1)[:1])
    return [np.full(tuple(int(n) for n in _given(operands, 0)), filled[0], filled.dtype)]


def _dropout(node: ir.Node, operands: Operands) -> list[Array]:
    value = _given(operands, 0)
    found = [value]
    if len(node.outputs) > 1:
        found.append(np.ones(value.shape, bool))
    return found


def _erf(node: ir.Node, operands: Operands) -> list[Array]:
    return [erf(_given(operands, 0))]


def erf(array: Array) -> Array:
    """The error function in double precision, which NumPy does not have."""
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(array), np.float64)


def _gelu(node: ir.Node, operands: Operands) -> list[Array]:
    x = _given(operands, 0)
    if node.attributes.get_string("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return [0.5 * x * (1 + np.tanh(inner))]
    return [0.5 * x * (1 + erf(x / math.sqrt(2)))]


def _hard_swish(node: ir.Node, operands: Operands) -> list[Array]:
    x = _given(operands, 0)
    return [x * np.clip(x / 6 + 0.5, 0, 1)]


def _average_pool(node: ir.Node, operands: Operands) -> list[Array]:
    """The reference goes element by element here, which takes minutes for a real net."""
    value = _given(operands, 0)
    window = list(node.attributes["kernel_shape"].as_ints())
    rank = len(window)
    steps = _ints(node, "strides", [1] * rank)
    pads = _ints(node, "pads", [0] * 2 * rank)
    dilations = _ints(node, "dilations", [1] * rank)
    plain = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET"
    rounds_up = node.attributes.get_int("ceil_mode", 0) == 1
    if not plain or rounds_up or any(d != 1 for d in dilations):
        raise Unsupported("an average over plain windows", _named(node))
    around = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    axes = tuple(range(2, 2 + rank))
    places = (slice(None), slice(None), *(slice(None, None, s) for s in steps))

    def summed(array: Array) -> Array:
        padded = np.pad(array, around)
        seen: Array = np.lib.stride_tricks.sliding_window_view(padded, window, axis=axes)
        total: Array = seen[places].sum(axis=tuple(range(-rank, 0)))
        return total

    counted = node.attributes.get_int("count_include_pad", 0) == 1
    ones = np.ones((1, 1, *value.shape[2:]))
    return [summed(value) / (np.prod(window) if counted else summed(ones))]


def _ints(node: ir.Node, name: str, default: list[int]) -> list[int]:
    return list(node.attributes[name].as_ints()) if name in node.attributes else default


def _given(operands: Operands, at: int) -> Array:
    value = operands[at] if at < len(operands) else None
    if value is None:
        raise Unsupported(f"operand {at}", "none")
    return value


_OWN: dict[str, Callable[[ir.Node, Operands], list[Array]]] = {
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
