"""Runs a region of an ONNX graph in float32: as a model of its own in ONNX Runtime, unfused."""

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
from syncpoint.runtimes.onnx.element_types import DTYPE_CODES, DTYPE_NAMES
from syncpoint.runtimes.onnx.float64_ops import is_float
from syncpoint.runtimes.onnx.quantization import begins_at_zero
from syncpoint.runtimes.protocol import Array

_MAX_MODEL_BYTES = 1 << 30
_REFUSED_OPS = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "CastLike"})


def run_in_float32(
    nodes: Sequence[ir.Node],
    values: Mapping[ir.Value, Array],
    outputs: Sequence[ir.Value],
    opset: int,
) -> list[Array | None]:
    """Compute the outputs of these ops; `values` has their inputs and parameters."""
    arrays = {v.name or "": _to_float32(a) for v, a in values.items()}
    float_names = {name for name, array in arrays.items() if is_float(array)}
    float32_nodes = [_convert_node(node, float_names) for node in nodes]
    names = list(dict.fromkeys(v.name or "" for v in outputs))
    computed_names = [name for name in names if name not in arrays]
    output_arrays = {name: arrays[name] for name in names if name in arrays}
    if computed_names:
        constants = _choose_constants(values, arrays)
        feeds = {name: array for name, array in arrays.items() if name not in constants}
        weights = {name: array for name, array in arrays.items() if name in constants}
        model = _build_model(float32_nodes, feeds, weights, computed_names, opset)
        output_arrays |= zip(computed_names, _run(model, computed_names, feeds), strict=True)
    return [np.array(output_arrays[v.name or ""]) for v in outputs]


def _choose_constants(values: Mapping[ir.Value, Array], arrays: Mapping[str, Array]) -> set[str]:
    """The values to pass as constants: kernels may repack constants and then round differently.
    Empty where they do not fit into one model."""
    names = {v.name or "" for v in values if ir.convenience.get_const_tensor(v) is not None}
    fits = sum(arrays[name].nbytes for name in names) <= _MAX_MODEL_BYTES
    return names if fits else set()


def _build_model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    weights: Mapping[str, Array],
    outputs: Sequence[str],
    opset: int,
) -> onnx.ModelProto:
    """Build a model of these nodes alone."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    initializers = [onnx.numpy_helper.from_array(a, name) for name, a in weights.items()]
    output_infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "region", inputs, output_infos, initializers)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _run(model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
    """Compute these outputs with ONNX Runtime, unfused."""
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        return list(session.run(list(names), dict(feeds)))
    except Exception as error:
        raise Unsupported(f"the region does not run alone in f32: {one_line(error)}") from error


def _to_float32(array: Array) -> Array:
    return array.astype(np.float32) if is_float(array) else array


def _convert_node(node: ir.Node, float_names: set[str]) -> onnx.NodeProto:
    """Convert every float type in a node to float32; quantizing becomes identity.

    `float_names` are the values that are floats; the outputs of quantizing ops are added.
    """
    if node.op_type in _REFUSED_OPS:
        raise Unsupported(f"{node.op_type} does not run alone in f32")
    source = node.inputs[0] if node.inputs else None
    first = (source.name or "") if source is not None else ""
    is_identity = node.op_type == "QuantizeLinear" or (
        node.op_type == "DequantizeLinear" and first in float_names
    )
    if is_identity:
        float_names.add(node.outputs[0].name or "")
        clamps = node.op_type == "QuantizeLinear" and begins_at_zero(node)
        op_type = "Relu" if clamps else "Identity"
        return helper.make_node(op_type, [first], [node.outputs[0].name or ""])
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    del proto.metadata_props[:]
    for attribute in proto.attribute:
        if attribute.name in ("to", "dtype") and DTYPE_NAMES.get(attribute.i) in FLOATS:
            attribute.i = DTYPE_CODES["f32"]
        if attribute.type == onnx.AttributeProto.TENSOR:
            array = onnx.numpy_helper.to_array(attribute.t)
            if is_float(array):
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32)))
    return proto
