"""Memory layouts of ONNX Runtime (blocked channels, channels last): walk the graph to find which
values have one, convert to the model's and back.

On x86 its float convolutions keep channels in blocks: a tensor declares [N, C, H, W] but is stored
as [N, C/b, H, W, b], with C rounded up to a multiple of the block size b. Its int8 convolutions
keep channels last. Both are recorded as [N, C, H, W] with the channels of the model.
"""

from __future__ import annotations

from collections.abc import Container
from functools import cache

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from syncpoint.runtimes.onnx.arrays import constant_to_numpy
from syncpoint.runtimes.protocol import Array

DOMAIN = "com.microsoft.nchwc"
BLOCKED = "NCHWc"
CHANNELS_LAST = "NHWC"
_PROBE_CHANNELS = 64
"""Channels of the tensor that shows the block size; a multiple of all block sizes."""
_MAX_CONV_DISTANCE_OPS = 8
"""Ops between a value and the convolution whose channels it has."""
_KEEP_LAYOUT = frozenset(
    {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QuantizeLinear"}
    | {"DequantizeLinear", "Relu", "LeakyRelu", "PRelu", "Elu", "Sigmoid", "Tanh", "Clip", "Cast"}
    | {"HardSwish", "HardSigmoid", "Softplus", "Gelu", "QuickGelu", "Erf", "Exp", "Log", "Sqrt"}
    | {"Add", "Sub", "Mul", "Div", "Pow", "Neg", "Abs", "Max", "Min", "Sum", "Identity", "Where"}
    | {"Resize", "Pad", "Concat", "QLinearConcat", "Split", "ReduceMean", "ReduceMax"}
)
"""Ops whose output has the layout of their input. ONNX Runtime moves the axes of the last ones
when it moves a transposition across them."""
_KEEP_CHANNELS = frozenset(
    {"Relu", "Clip", "HardSigmoid", "Sigmoid", "BatchNormalization", "MaxPool", "AveragePool"}
    | {"GlobalAveragePool"}
)
"""Ops whose output has as many channels as their input."""


def find_layouts(graph: ir.Graph, file_values: Container[str]) -> dict[str, str]:
    """Find the values whose layout is not that of the model, with their layout.

    `file_values` are the values of the model's file; their layout is that of the model.
    """
    layouts: dict[str, str] = {}
    for node in graph:
        input_layouts = {
            layouts[v.name] for v in node.inputs if v is not None and v.name in layouts
        }
        layout = ""
        if node.domain == DOMAIN:
            layout = BLOCKED if node.op_type != "ReorderOutput" else ""
        elif BLOCKED in input_layouts:
            # Elementwise ops work on blocks without converting them.
            layout = BLOCKED
        elif _is_channels_last(node) or (
            CHANNELS_LAST in input_layouts and node.op_type in _KEEP_LAYOUT
        ):
            layout = CHANNELS_LAST
        elif node.op_type == "Transpose" and "perm" in node.attributes:
            order = list(node.attributes["perm"].as_ints())
            moves_channels = order == [0, *range(2, len(order)), 1] and len(order) > 3
            # Only if such a kernel reads it: two transpositions of a model may merge into one.
            layout = CHANNELS_LAST if moves_channels and _feeds_channels_last(node) else ""
        if layout:
            layouts |= {
                o.name: layout for o in node.outputs if o.name and o.name not in file_values
            }
    return layouts


def _is_channels_last(node: ir.Node) -> bool:
    has_flag = node.domain == "com.microsoft" and node.attributes.get_int("channels_last", 0) == 1
    return has_flag or node.op_type in ("NhwcMaxPool", "NhwcFusedConv")


def _feeds_channels_last(node: ir.Node) -> bool:
    pending, visited = [node], {node}
    while pending:
        for value in pending.pop().outputs:
            for reader in (use.node for use in value.uses()):
                if _is_channels_last(reader):
                    return True
                if reader.op_type in _KEEP_LAYOUT and reader not in visited:
                    visited.add(reader)
                    pending.append(reader)
    return False


def _count_unblocked_channels(value: ir.Value) -> int | None:
    """The number of channels that the op declares which converts the value from blocks."""
    pending, visited = [value], {value}
    while pending:
        for use in pending.pop().uses():
            node = use.node
            if node.op_type == "ReorderOutput" and node.domain == DOMAIN:
                return node.attributes.get_int("channels", 0) or None
            if node.op_type in ("MaxPool", "AveragePool", "Relu", "Sigmoid", "Tanh", "Add", "Sum"):
                outputs = [o for o in node.outputs if o not in visited]
                visited |= set(outputs)
                pending += outputs
    return None


def count_channels(value: ir.Value, in_file: ir.Value | None, padded: int) -> int | None:
    """Count the channels of the model in a blocked value; None where nothing declares them.

    `in_file` is the same value in the file, `padded` the number of channels with padding.
    """
    shape = in_file.shape if in_file is not None else None
    declared = shape[1] if shape is not None and len(shape) > 1 else None
    channels = (
        declared
        if isinstance(declared, int)
        else (_count_conv_channels(in_file) or _count_unblocked_channels(value))
    )
    return channels if channels is not None and 0 < channels <= padded else None


def to_channels_first(array: Array) -> Array:
    """Move the channels from the last axis to axis 1, where the model has them."""
    return np.moveaxis(array, -1, 1)


def unblock(array: Array, channels: int | None) -> Array:
    """Convert blocks to [N, C, ...], without the padding of the last block."""
    block = block_size()
    number, padded, *space = array.shape
    split = array.reshape(number, padded // block, *space, block)
    dense = np.moveaxis(split, -1, 2).reshape(number, padded, *space)
    return dense if channels is None else dense[:, :channels]


def block_like(array: Array, like: Array) -> Array:
    """Convert [N, C, ...] to blocks; the padding of the last block is that of `like`."""
    dense = unblock(like, None).copy()
    dense[:, : array.shape[1]] = array
    block = block_size()
    number, padded, *space = like.shape
    split = dense.reshape(number, padded // block, block, *space)
    return np.moveaxis(split, 2, -1).reshape(like.shape)


def to_channels_last(array: Array) -> Array:
    """Move the channels from axis 1 to the last axis."""
    return np.moveaxis(array, 1, -1)


@cache
def block_size() -> int:
    """Measure how many channels the kernels of this machine keep in a block."""
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    shape = [1, _PROBE_CHANNELS, 2, 1]
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
    x = np.arange(2 * _PROBE_CHANNELS, dtype=np.float32).reshape(shape)
    first = session.run(None, {"x": x})[0].reshape(-1)
    # The first row of a block has the first element of each of its channels: 0, 2, 4 ...
    return int(np.argmax(first != 2 * np.arange(first.size)))


def _count_conv_channels(value: ir.Value | None) -> int | None:
    """The number of channels of the convolution that a value of the file comes from."""
    for _ in range(_MAX_CONV_DISTANCE_OPS):
        node = value.producer() if value is not None else None
        if node is None or len(node.inputs) == 0:
            return None
        if node.op_type == "Conv" and len(node.inputs) > 1 and node.inputs[1] is not None:
            weight = constant_to_numpy(node.inputs[1])
            return int(weight.shape[0]) if weight is not None and weight.ndim > 2 else None
        if node.op_type not in _KEEP_CHANNELS:
            return None
        value = node.inputs[0]
    return None
