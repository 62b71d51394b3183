"""A piece of an ONNX graph by ONNX Runtime, unfused, with every float a float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from syncpoint.errors import Unsupported
from syncpoint.runtimes.loading import one_line
from syncpoint.runtimes.onnx_float64 import is_real, one_sided
from syncpoint.runtimes.onnx_graph import constant
from syncpoint.runtimes.onnx_values import CODES, FLOATS, NAMES
from syncpoint.runtimes.protocol import Array

_LARGEST_MESSAGE = 1 << 30
_REFUSED = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "CastLike"})


def run_in_float32(
    nodes: Sequence[ir.Node],
    values: Mapping[ir.Value, Array],
    outputs: Sequence[ir.Value],
    opset: int,
) -> list[Array | None]:
    """The outputs of these ops on these values, which include the parameters."""
    given = {v.name or "": _narrow(a) for v, a in values.items()}
    real = {name for name, array in given.items() if is_real(array)}
    made = [_rewritten(node, real) for node in nodes]
    # Kernels may repack what they know to be constant, and then round otherwise.
    constants = {v.name for v in values if ir.convenience.get_const_tensor(v) is not None}
    if sum(given[name or ""].nbytes for name in constants) > _LARGEST_MESSAGE:
        constants = set()
    fed = {name: array for name, array in given.items() if name not in constants}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in fed.items()
    ]
    weights = [
        onnx.numpy_helper.from_array(a, name) for name, a in given.items() if name in constants
    ]
    wanted = list(dict.fromkeys(v.name or "" for v in outputs))
    passed = [name for name in wanted if name in given]
    asked = [name for name in wanted if name not in given]
    found = {name: given[name] for name in passed}
    if asked:
        graph = helper.make_graph(
            made, "piece", inputs, [helper.make_empty_tensor_value_info(n) for n in asked], weights
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10
        )
        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.log_severity_level = 4
        try:
            session = ort.InferenceSession(
                model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
            )
            found |= zip(asked, session.run(asked, fed), strict=True)
        except Exception as error:
            raise Unsupported("a piece that runs on its own in f32", one_line(error)) from error
    return [np.array(found[v.name or ""]) for v in outputs]


def _narrow(array: Array) -> Array:
    return array.astype(np.float32) if is_real(array) else array


def _rewritten(node: ir.Node, real: set[str]) -> onnx.NodeProto:
    """The node with every float that it names a float32; quantizing is identity."""
    if node.op_type in _REFUSED:
        raise Unsupported("an op that runs on its own in f32", node.op_type)
    source = node.inputs[0] if node.inputs else None
    first = (source.name or "") if source is not None else ""
    through = node.op_type == "QuantizeLinear" or (
        node.op_type == "DequantizeLinear" and first in real
    )
    if through:
        real.add(node.outputs[0].name or "")
        kind = (
            "Relu" if node.op_type == "QuantizeLinear" and _begins_at_nought(node) else "Identity"
        )
        return helper.make_node(kind, [first], [node.outputs[0].name or ""])
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    del proto.metadata_props[:]
    for attribute in proto.attribute:
        if attribute.name in ("to", "dtype") and NAMES.get(attribute.i) in FLOATS:
            attribute.i = CODES["f32"]
        if attribute.type == onnx.AttributeProto.TENSOR:
            array = onnx.numpy_helper.to_array(attribute.t)
            if is_real(array):
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32)))
    return proto


def _begins_at_nought(node: ir.Node) -> bool:
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    found = np.zeros((), np.uint8) if zero is None else constant(zero)
    side = 0 if found is None else one_sided(found)
    if side < 0:
        raise Unsupported("a grid that does not end at nought", node.op_type)
    return side > 0
