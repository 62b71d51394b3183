"""A piece of an ONNX graph by ONNX Runtime, unfused, with every float a float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import FLOATS
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.element_types import CODES, NAMES
from syncpoint.runtimes.onnx.float64_ops import is_real
from syncpoint.runtimes.onnx.quantization import begins_at_zero
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
    arrays = {v.name or "": _narrow(a) for v, a in values.items()}
    real = {name for name, array in arrays.items() if is_real(array)}
    rewritten = [_rewritten(node, real) for node in nodes]
    names = list(dict.fromkeys(v.name or "" for v in outputs))
    computed = [name for name in names if name not in arrays]
    results = {name: arrays[name] for name in names if name in arrays}
    if computed:
        constants = _constants(values, arrays)
        feeds = {name: array for name, array in arrays.items() if name not in constants}
        weights = {name: array for name, array in arrays.items() if name in constants}
        model = _model_of(rewritten, feeds, weights, computed, opset)
        results |= zip(computed, _run(model, computed, feeds), strict=True)
    return [np.array(results[v.name or ""]) for v in outputs]


def _constants(values: Mapping[ir.Value, Array], arrays: Mapping[str, Array]) -> set[str]:
    """The values to hand over as constants: kernels may repack what they know to be constant, and
    then round otherwise. None where they do not fit into a model."""
    names = {v.name or "" for v in values if ir.convenience.get_const_tensor(v) is not None}
    fits = sum(arrays[name].nbytes for name in names) <= _LARGEST_MESSAGE
    return names if fits else set()


def _model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array],
    outputs: Sequence[str],
    opset: int,
) -> onnx.ModelProto:
    """A model of these nodes alone."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    initializers = [onnx.numpy_helper.from_array(a, name) for name, a in weights.items()]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "piece", inputs, results, initializers)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _run(model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime gives for these outputs, unfused."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        return list(session.run(list(names), dict(feeds)))
    except Exception as error:
        raise Unsupported("a piece that runs on its own in f32", one_line(error)) from error


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
        kind = "Relu" if node.op_type == "QuantizeLinear" and begins_at_zero(node) else "Identity"
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
