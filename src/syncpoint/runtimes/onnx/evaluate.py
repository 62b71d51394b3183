"""Compute a region of an ONNX graph on chosen values in float64 (op by op) or float32 (unfused
model); choose nodes of the file or the executed graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from syncpoint.errors import InputError, Unsupported
from syncpoint.run.dtypes import DTYPES, FLOATS, Kind, parse_dtype
from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.arrays import constant_to_numpy
from syncpoint.runtimes.onnx.element_types import DTYPE_CODES, DTYPE_NAMES
from syncpoint.runtimes.onnx.float64_ops import check_op, is_float, run_op, widen
from syncpoint.runtimes.onnx.graph import OnnxGraph, Scope
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.onnx.quantization import QuantizationFinder, begins_at_zero
from syncpoint.runtimes.protocol import Array, Region

_MAX_MODEL_BYTES = 1 << 30
_REFUSED_OPS = frozenset({"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "CastLike"})


class OnnxEvaluator:
    """Evaluates regions of one graph."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._opset = graph.original.opset_imports.get("", 20)
        self._quantizations = QuantizationFinder(constant_to_numpy)

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
                f"an op of the reference multiplies the integers of '{value.name}', but the target"
                " recorded real numbers for it"
            )
        return widen(array)

    def _fetch_parameter(
        self, value: ir.Value, inputs: Mapping[Edge, Array], round_to: str | None
    ) -> Array:
        """Return a parameter: the recorded one, else that of the model; rounded if asked."""
        name = self._graph.parameter_name(value)
        array = inputs.get(Edge(OpKey(name), role=Role.PARAMETER))
        if array is None:
            array = constant_to_numpy(value)
        if array is None:
            raise Unsupported(f"the parameter {value.name} is not a tensor of numbers")
        if round_to is not None and is_float(array):
            with np.errstate(over="ignore"):
                array = array.astype(DTYPES[round_to].numpy)
        return widen(array)


@dataclass(frozen=True)
class RegionOps:
    """The ops of one graph between some of its values."""

    nodes: tuple[ir.Node, ...]
    """In the order of execution."""
    inputs: Mapping[ir.Value, Edge]
    outputs: tuple[ir.Value, ...]
    parameters: tuple[ir.Value, ...]


def find_region_ops(graph: OnnxGraph, region: Region) -> RegionOps:
    """Find the ops to run for a region: those of the file where it has all inputs and outputs of
    the region, else the region's own."""
    _refuse_other_ops(graph, region)
    inputs = {_find_value(graph, edge): edge for edge in region.inputs}
    outputs = [_find_value(graph, edge) for edge in region.outputs]
    file_ops = _find_ops_in_file(graph, inputs, outputs)
    if file_ops is not None:
        return file_ops
    layouts = graph.provenance.layouts
    converted = [value.name for value in (*inputs, *outputs) if value.name in layouts]
    if converted:
        # It was recorded in the layout of the model, but the op reads that of ONNX Runtime.
        raise Unsupported(
            f"{converted[0]} uses a memory layout internal to ONNX Runtime, in which the ops that"
            " read it cannot be evaluated",
            cure="use the model as it was before ONNX Runtime optimized it",
        )
    return _slice_graph(inputs, outputs)


def _refuse_other_ops(graph: OnnxGraph, region: Region) -> None:
    """Refuse ops in sub-graphs and ops of other graphs: they cannot be evaluated."""
    for key in region.ops:
        if key.path or key.graph:
            raise Unsupported(f"{key} is inside a sub-graph, so it cannot be computed on its own")
        if key.op not in graph.nodes:
            raise Unsupported(f"the region has the op {key}, which the model does not have")


def _find_value(graph: OnnxGraph, edge: Edge) -> ir.Value:
    value = graph.value(edge)
    if value is None:
        raise InputError(f"the region has the tensor {edge.op}, which the model does not have")
    return value


def _find_ops_in_file(
    graph: OnnxGraph, inputs: Mapping[ir.Value, Edge], outputs: Sequence[ir.Value]
) -> RegionOps | None:
    """Find the ops in the graph of the file; None where it lacks an input or output."""
    file_inputs = {graph.provenance.value_in_file(value): edge for value, edge in inputs.items()}
    file_outputs = [graph.provenance.value_in_file(value) for value in outputs]
    if None in file_inputs or None in file_outputs:
        return None
    try:
        return _slice_graph(
            {value: edge for value, edge in file_inputs.items() if value is not None},
            [value for value in file_outputs if value is not None],
        )
    except InputError:
        # The file's ops need a value that the executed graph has under another name.
        return None


def _slice_graph(inputs: Mapping[ir.Value, Edge], outputs: list[ir.Value]) -> RegionOps:
    """Find all ops between the inputs and the outputs, which are values of one graph."""
    nodes: dict[ir.Node, None] = {}
    parameters: dict[ir.Value, None] = {}
    pending = list(outputs)
    used_inputs: dict[ir.Value, Edge] = {}
    while pending:
        value = pending.pop()
        if value in inputs:
            used_inputs[value] = inputs[value]
            continue
        producer = value.producer()
        if value.is_initializer() or (producer is not None and is_constant(producer)):
            parameters[value] = None
        elif producer is None:
            raise InputError(
                "the ops cannot be run on their own: they also read the graph input"
                f" {value.name!r}, for which no value was passed"
            )
        elif producer not in nodes:
            nodes[producer] = None
            pending += [v for v in producer.inputs if v is not None and v.name]
    last = outputs[0].producer() if outputs else None
    graph = last.graph if last is not None else None
    ordered_nodes = [node for node in graph or () if node in nodes]
    if len(ordered_nodes) != len(nodes):
        raise InputError(
            "the ops cannot be run on their own: they are in several graphs (a graph and its"
            " sub-graphs)"
        )
    return RegionOps(tuple(ordered_nodes), used_inputs, tuple(outputs), tuple(parameters))


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
        output_arrays |= zip(
            computed_names, _run_unfused(model, computed_names, feeds), strict=True
        )
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


def _run_unfused(
    model: onnx.ModelProto, names: Sequence[str], feeds: Mapping[str, Array]
) -> list[Array]:
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
        raise Unsupported(
            f"ONNX Runtime cannot compute these ops on their own in float32: {one_line(error)}"
        ) from error


def _to_float32(array: Array) -> Array:
    return array.astype(np.float32) if is_float(array) else array


def _convert_node(node: ir.Node, float_names: set[str]) -> onnx.NodeProto:
    """Convert every float type in a node to float32; quantizing becomes identity.

    `float_names` are the values that are floats; the outputs of quantizing ops are added.
    """
    if node.op_type in _REFUSED_OPS:
        name = node.outputs[0].name or node.name
        raise Unsupported(
            f"the op '{name}' ({node.op_type}) cannot be computed on its own in float32"
        )
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
