"""Classes that the Session's replay uses: one-op models of each ONNX op run on chosen values, and a
capture that replaces each recorded value.

Every op becomes a model of its own, with its parameters as constants. It runs without optimisation
on the provider of the complete model, so the same kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import OpKey, Quantization, Role, TensorKey
from syncpoint.run.quantize import quantize_values
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.onnx.arrays import to_ort
from syncpoint.runtimes.onnx.capture import Fetch, OnnxCapture, OrtOutputs
from syncpoint.runtimes.onnx.element_types import onnx_type_of
from syncpoint.runtimes.onnx.graph import OnnxGraph, Scope, captured_values, sub_graphs
from syncpoint.runtimes.onnx.layouts import BLOCKED, CHANNELS_LAST, block_like, to_channels_last
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.protocol import Array

OpenSession = Callable[[onnx.ModelProto], Any]
"""Opens a session for a model as it was opened for the capture of the complete model."""
FindReplacement = Callable[[TensorKey, tuple[int, ...]], Array | None]
"""Returns the value that replaces that of a tensor; None where it stays."""


class IsolatedOps(OrtOutputs):
    """The outputs of ops that each run alone; an op runs when an output of it is needed."""

    def __init__(
        self,
        model: ir.Model,
        inputs: Mapping[str, Array],
        open_session: OpenSession,
        run_model: Callable[[], OrtOutputs],
    ) -> None:
        self._model = model
        self._open_session = open_session
        self._run_model = run_model
        self._computed: dict[str, Any] = {}
        self._operands = {name: to_ort(array) for name, array in inputs.items()}
        """What the ops read: the inputs, the outputs of ops, and what replaces these."""
        self._producers = {o.name: node for node in model.graph for o in node.outputs if o.name}
        self.refused: dict[str, str] = {}
        """First outputs of ops that cannot run alone, with the reason."""
        super().__init__(self._computed, {})

    def array(self, name: str) -> Array | None:
        """Return a value; the op that computes it runs if it has not yet."""
        if name not in self._computed:
            node = self._producers.get(name)
            if node is None or is_constant(node):
                return None
            outputs = self._run(node)
            self._computed |= outputs
            self._operands |= outputs
        return super().array(name)

    def replace(self, name: str, array: Array) -> None:
        """Replace a value for all ops that read it."""
        self._operands[name] = to_ort(array)

    def _run(self, node: ir.Node) -> dict[str, Any]:
        output_names = [o.name for o in node.outputs if o.name]
        feeds, weights = {}, []
        for value in dict.fromkeys((*node.inputs, *captured_values(node))):
            if value is None or not value.name:
                continue
            if value.name not in self._operands and value.name in self._producers:
                self.array(value.name)
            if value.name in self._operands:
                feeds[value.name] = self._operands[value.name]
            elif value.const_value is not None or value.producer() is not None:
                weights.append(value)
        try:
            model = self._build_one_op_model(node, feeds, weights, output_names)
            outputs = self._open_session(model).run_with_ort_values(output_names, feeds)
            return dict(zip(output_names, outputs, strict=True))
        except Exception as error:
            # Other ops still read its outputs: they get those of the complete model.
            self.refused[output_names[0]] = one_line(error)
            model_values = self._run_model().values
            return {name: model_values[name] for name in output_names if name in model_values}

    def _build_one_op_model(
        self,
        node: ir.Node,
        feeds: Mapping[str, Any],
        weights: list[ir.Value],
        output_names: list[str],
    ) -> onnx.ModelProto:
        """Build a model of one op."""
        inputs = [
            helper.make_value_info(name, onnx_type_of(value)) for name, value in feeds.items()
        ]
        constants = []
        for value in weights:
            tensor = ir.convenience.get_const_tensor(value)
            if tensor is None:
                raise Unsupported(f"the parameter {value.name} is not a tensor of numbers")
            proto = ir.to_proto(tensor)
            proto.name = value.name or ""
            constants.append(proto)
            if value.is_graph_input():
                # A parameter that a caller may override is not a constant for the kernels.
                tensor_type = helper.make_tensor_type_proto(proto.data_type, None)
                inputs.append(helper.make_value_info(proto.name, tensor_type))
        proto = ir.to_proto(node)
        del proto.metadata_props[:]
        graph = helper.make_graph(
            [proto],
            "one_op",
            inputs,
            [helper.make_empty_tensor_value_info(name) for name in output_names],
            constants,
        )
        opsets = [helper.make_opsetid(d, v) for d, v in self._model.opset_imports.items()]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=self._model.ir_version or 10
        )


class OnnxReplay(OnnxCapture):
    """Records an execution in which each value is replaced after it was recorded."""

    def __init__(
        self,
        graph: OnnxGraph,
        isolated_ops: IsolatedOps,
        recorder: Recorder,
        device: str,
        find_replacement: FindReplacement,
    ) -> None:
        super().__init__(graph, isolated_ops, recorder, device)
        self._isolated_ops = isolated_ops
        self._find_replacement = find_replacement
        self.refused: dict[OpKey, str] = {}
        """Ops that cannot run alone, with the reason. Their outputs are not recorded."""

    def _record_output(
        self, key: OpKey, index: int, value: ir.Value, scope: Scope, fetch: Fetch
    ) -> None:
        node = value.producer()
        name = value.name or ""
        try:
            array = fetch(name)
        except Unsupported:
            array = None
        if node is not None and sub_graphs(node):
            # Values inside cannot be replaced, so its outputs are not its own work alone.
            self.refused[key] = f"{node.op_type} has a sub-graph"
        reasons = (self._isolated_ops.refused.get(name) for name in _output_names(node))
        reason = next((reason for reason in reasons if reason), "")
        if reason:
            self.refused[key] = reason
        if key not in self.refused:
            super()._record_output(key, index, value, scope, fetch)
        if array is None:
            return
        model_array, _ = self._to_model_layout(value, array)
        tensor_key = TensorKey(key, Role.OUTPUT, index, self._recorder.part)
        replacement = self._find_replacement(tensor_key, model_array.shape)
        if replacement is None:
            return
        quantization = self._find_quantization(value, array)
        converted = _convert_like(replacement.reshape(model_array.shape), array, quantization, name)
        layout = self._graph.provenance.layouts.get(name)
        if layout == BLOCKED and array.ndim > 2:
            converted = block_like(converted, array)
        elif layout == CHANNELS_LAST and array.ndim > 2:
            converted = to_channels_last(converted)
        self._isolated_ops.replace(name, converted)


def _output_names(node: ir.Node | None) -> list[str]:
    return [o.name for o in node.outputs if o.name] if node is not None else []


def _convert_like(
    values: Array, output: Array, quantization: Quantization | None, name: str
) -> Array:
    """Convert values to the type of an op's output, and to the grid of its integers."""
    if values.dtype == output.dtype:
        return values
    kinds = (from_numpy(values.dtype).kind, from_numpy(output.dtype).kind)
    if kinds[1] is Kind.BOOL:
        return np.asarray(values != 0)
    if kinds == (Kind.FLOAT, Kind.INT):
        if quantization is not None:
            return quantize_values(values, quantization, output.dtype, name)
        values = np.rint(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(output.dtype)
