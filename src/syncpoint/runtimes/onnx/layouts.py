"""Tensors that ONNX Runtime lays out otherwise than the model says.

Its float convolutions keep channels in blocks on x86: such a tensor says it is [N, C, H, W] but
lies as [N, C/b, H, W, b], with C rounded up to a multiple of the block. Its int8 convolutions
keep channels last. Both are recorded as what they stand for: [N, C, H, W] with the channels that
the model has.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from syncpoint.runtimes.onnx.arrays import constant
from syncpoint.runtimes.protocol import Array

DOMAIN = "com.microsoft.nchwc"
BLOCKED = "NCHWc"
LAST = "NHWC"
_PROBED = 64
"""Channels of the tensor that tells the size of a block; a multiple of all sizes there are."""


_CARRY = frozenset(
    {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QuantizeLinear"}
    | {"DequantizeLinear", "Relu", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "Tanh", "Clip", "Cast"}
    | {"HardSwish", "HardSigmoid", "Softplus", "Gelu", "QuickGelu", "Erf", "Exp", "Log", "Sqrt"}
    | {"Add", "Sub", "Mul", "Div", "Pow", "Neg", "Abs", "Max", "Min", "Sum", "Identity", "Where"}
    | {"Resize", "Pad", "Concat", "QLinearConcat", "Split", "ReduceMean", "ReduceMax"}
)
"""Ops that give a tensor laid out as the one they are given. The later ones have their axes moved
when a transposition is taken past them."""


def layouts(graph: ir.Graph, known: Container[str]) -> dict[str, str]:
    """The values that are laid out otherwise than the model says, with how. `known` are the
    values that the model itself has: their layout is its own."""
    found: dict[str, str] = {}
    for node in graph:
        given = {found[v.name] for v in node.inputs if v is not None and v.name in found}
        layout = ""
        if node.domain == DOMAIN:
            layout = BLOCKED if node.op_type != "ReorderOutput" else ""
        elif BLOCKED in given:
            # What works element by element takes blocks as they come.
            layout = BLOCKED
        elif _is_channels_last(node) or (LAST in given and node.op_type in _CARRY):
            layout = LAST
        elif node.op_type == "Transpose" and "perm" in node.attributes:
            order = list(node.attributes["perm"].as_ints())
            last = order == [0, *range(2, len(order)), 1] and len(order) > 3
            # Only what is made for such a kernel: two transpositions of a model may merge into one.
            layout = LAST if last and _feeds_channels_last(node) else ""
        if layout:
            found |= {o.name: layout for o in node.outputs if o.name and o.name not in known}
    return found


def _is_channels_last(node: ir.Node) -> bool:
    ours = node.domain == "com.microsoft" and node.attributes.get_int("channels_last", 0) == 1
    return ours or node.op_type in ("NhwcMaxPool", "NhwcFusedConv")


def _feeds_channels_last(node: ir.Node) -> bool:
    waiting, seen = [node], {node}
    while waiting:
        for value in waiting.pop().outputs:
            for reader in (use.node for use in value.uses()):
                if _is_channels_last(reader):
                    return True
                if reader.op_type in _CARRY and reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
    return False


def channels_after(value: ir.Value) -> int | None:
    """The true number of channels, from where the value leaves its blocks."""
    waiting, seen = [value], {value}
    while waiting:
        for use in waiting.pop().uses():
            node = use.node
            if node.op_type == "ReorderOutput" and node.domain == DOMAIN:
                return node.attributes.get_int("channels", 0) or None
            if node.op_type in ("MaxPool", "AveragePool", "Relu", "Sigmoid", "Tanh", "Add", "Sum"):
                fresh = [o for o in node.outputs if o not in seen]
                seen |= set(fresh)
                waiting += fresh
    return None


def count_channels(value: ir.Value, in_file: ir.Value | None, padded: int) -> int | None:
    """How many channels the model has in a blocked value, where the file or the graph says so.

    `in_file` is the value of the file that it stands for, `padded` its channels with padding.
    """
    shape = in_file.shape if in_file is not None else None
    declared = shape[1] if shape is not None and len(shape) > 1 else None
    channels = (
        declared
        if isinstance(declared, int)
        else (_conv_channels(in_file) or channels_after(value))
    )
    return channels if channels is not None and 0 < channels <= padded else None


def channels_first(array: Array) -> Array:
    """A tensor with its channels last, as the model has it."""
    return np.moveaxis(array, -1, 1)


def unblocked(array: Array, channels: int | None) -> Array:
    """The same values as [N, C, ...] without what fills the last block up."""
    block = block_size()
    number, padded, *space = array.shape
    split = array.reshape(number, padded // block, *space, block)
    dense = np.moveaxis(split, -1, 2).reshape(number, padded, *space)
    return dense if channels is None else dense[:, :channels]


def blocked_like(array: Array, like: Array) -> Array:
    """Values as the model has them in blocks again; what fills the last block up is taken from
    `like`, a tensor in blocks."""
    dense = unblocked(like, None).copy()
    dense[:, : array.shape[1]] = array
    block = block_size()
    number, padded, *space = like.shape
    split = dense.reshape(number, padded // block, block, *space)
    return np.moveaxis(split, 2, -1).reshape(like.shape)


def channels_last(array: Array) -> Array:
    """A tensor as the model has it, with its channels last."""
    return np.moveaxis(array, 1, -1)


@cache
def block_size() -> int:
    """How many channels this machine's kernels keep together; asked of them once."""
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    shape = [1, _PROBED, 2, 1]
    graph = helper.make_graph(
        [node],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    x = np.arange(2 * _PROBED, dtype=np.float32).reshape(shape)
    first = session.run(None, {"x": x})[0].reshape(-1)
    # The first row of a block holds the first place of its channels: 0, 2, 4 ...
    return int(np.argmax(first != 2 * np.arange(first.size)))


_KEEP_CHANNELS = frozenset(
    {"Relu", "Clip", "HardSigmoid", "Sigmoid", "BatchNormalization", "MaxPool", "AveragePool"}
    | {"GlobalAveragePool"}
)


def _conv_channels(value: ir.Value | None) -> int | None:
    """How many channels the convolution has that a value of the file comes from."""
    for _ in range(8):
        node = value.producer() if value is not None else None
        if node is None or len(node.inputs) == 0:
            return None
        if node.op_type == "Conv" and len(node.inputs) > 1 and node.inputs[1] is not None:
            weight = constant(node.inputs[1])
            return int(weight.shape[0]) if weight is not None and weight.ndim > 2 else None
        if node.op_type not in _KEEP_CHANNELS:
            return None
        value = node.inputs[0]
    return None
