"""An ONNX graph op by op: each runs alone, on values that may be others than its predecessors gave.

Every op becomes a model of its own, with its parameters as constants, and is run without
rewriting by the provider that runs the whole: so it is the kernel that runs there too.
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
from syncpoint.runtimes.onnx.capture import Capture, Fetch, Results
from syncpoint.runtimes.onnx.element_types import onnx_type_of
from syncpoint.runtimes.onnx.graph import Graph, Scope, captured, sub_graphs
from syncpoint.runtimes.onnx.layouts import BLOCKED, LAST, blocked_like, channels_last
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.protocol import Array

Open = Callable[[onnx.ModelProto], Any]
"""Loads a model as the whole was loaded for its capture."""
Value = Callable[[TensorKey, tuple[int, ...]], Array | None]


class Alone(Results):
    """What the ops of a graph give when each runs by itself; found as it is asked for."""

    def __init__(
        self, model: ir.Model, given: Mapping[str, Array], open: Open, whole: Callable[[], Results]
    ) -> None:
        self._model = model
        self._open = open
        self._whole = whole
        self._found: dict[str, Any] = {}
        self._read = {name: to_ort(array) for name, array in given.items()}
        """What the ops read: what was given, what ops gave, and what was put in its place."""
        self._makers = {o.name: node for node in model.graph for o in node.outputs if o.name}
        self.refused: dict[str, str] = {}
        """First values of ops that cannot be run alone, with the reason."""
        super().__init__(self._found, {})

    def array(self, name: str) -> Array | None:
        """What the op behind a value gives."""
        if name not in self._found:
            node = self._makers.get(name)
            if node is None or is_constant(node):
                return None
            found = self._run(node)
            self._found |= found
            self._read |= found
        return super().array(name)

    def put(self, name: str, array: Array) -> None:
        """Let all that read a value read this in its place."""
        self._read[name] = to_ort(array)

    def _run(self, node: ir.Node) -> dict[str, Any]:
        wanted = [o.name for o in node.outputs if o.name]
        fed, weights = {}, []
        for value in dict.fromkeys((*node.inputs, *captured(node))):
            if value is None or not value.name:
                continue
            if value.name not in self._read and value.name in self._makers:
                self.array(value.name)
            if value.name in self._read:
                fed[value.name] = self._read[value.name]
            elif value.const_value is not None or value.producer() is not None:
                weights.append(value)
        try:
            session = self._open(self._piece(node, fed, weights, wanted))
            return dict(zip(wanted, session.run_with_ort_values(wanted, fed), strict=True))
        except Exception as error:
            # The others must have something to read: what it gives within the whole.
            self.refused[wanted[0]] = one_line(error)
            whole = self._whole().values
            return {name: whole[name] for name in wanted if name in whole}

    def _piece(
        self, node: ir.Node, fed: Mapping[str, Any], weights: list[ir.Value], wanted: list[str]
    ) -> onnx.ModelProto:
        """One op as a model."""
        inputs = [helper.make_value_info(name, onnx_type_of(value)) for name, value in fed.items()]
        constants = []
        for value in weights:
            tensor = ir.convenience.get_const_tensor(value)
            if tensor is None:
                raise Unsupported("parameters of numbers", str(value.name))
            proto = ir.to_proto(tensor)
            proto.name = value.name or ""
            constants.append(proto)
            if value.is_graph_input():
                # One that a caller may override is no constant to the kernels.
                kind = helper.make_tensor_type_proto(proto.data_type, None)
                inputs.append(helper.make_value_info(proto.name, kind))
        proto = ir.to_proto(node)
        del proto.metadata_props[:]
        graph = helper.make_graph(
            [proto],
            "piece",
            inputs,
            [helper.make_empty_tensor_value_info(name) for name in wanted],
            constants,
        )
        opsets = [helper.make_opsetid(d, v) for d, v in self._model.opset_imports.items()]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=self._model.ir_version or 10
        )


class Replay(Capture):
    """An execution whose values are recorded and then replaced."""

    def __init__(
        self, graph: Graph, alone: Alone, recorder: Recorder, device: str, value: Value
    ) -> None:
        super().__init__(graph, alone, recorder, device)
        self._alone = alone
        self._value = value
        self.refused: dict[OpKey, str] = {}
        """Ops that could not be run alone, with the reason. Nothing of them is recorded."""

    def _output(self, key: OpKey, index: int, value: ir.Value, scope: Scope, fetch: Fetch) -> None:
        node = value.producer()
        name = value.name or ""
        try:
            array = fetch(name)
        except Unsupported:
            array = None
        if node is not None and sub_graphs(node):
            # What is inside cannot be given other values, so its result is not its own work.
            self.refused[key] = f"{node.op_type} has a graph of its own"
        why = next((w for o in _named(node) if (w := self._alone.refused.get(o))), "")
        if why:
            self.refused[key] = why
        if key not in self.refused:
            super()._output(key, index, value, scope, fetch)
        if array is None:
            return
        laid_out, _ = self._laid_out(value, array)
        wanted = self._value(
            TensorKey(key, Role.OUTPUT, index, self._recorder.part), laid_out.shape
        )
        if wanted is None:
            return
        made = _held(wanted.reshape(laid_out.shape), array, self._meaning(value, array))
        layout = self._graph.provenance.layouts.get(name)
        if layout == BLOCKED and array.ndim > 2:
            made = blocked_like(made, array)
        elif layout == LAST and array.ndim > 2:
            made = channels_last(made)
        self._alone.put(name, made)


def _named(node: ir.Node | None) -> list[str]:
    return [o.name for o in node.outputs if o.name] if node is not None else []


def _held(wanted: Array, own: Array, meaning: Quantization | None) -> Array:
    """The values in the type that the op gives, on the grid that its integers stand for."""
    if wanted.dtype == own.dtype:
        return wanted
    kinds = (from_numpy(wanted.dtype).kind, from_numpy(own.dtype).kind)
    if kinds[1] is Kind.BOOL:
        return np.asarray(wanted != 0)
    if kinds == (Kind.FLOAT, Kind.INT):
        if meaning is not None:
            return quantize_values(wanted, meaning, own.dtype)
        wanted = np.rint(wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        return wanted.astype(own.dtype)
