"""Record every op and tensor of one execution, also in loop iterations and sub-graphs, in the
model's layout, with scales; each parameter once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import onnx_ir as ir

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import FLOATS, Kind, from_numpy
from syncpoint.run.model import WHOLE, Edge, OpKey, Quantization, Role, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.onnx.arrays import constant_to_numpy, to_numpy
from syncpoint.runtimes.onnx.graph import (
    OnnxGraph,
    Scope,
    captured_values,
    first_output_name,
    sub_graphs,
)
from syncpoint.runtimes.onnx.instrument import ExposedValues
from syncpoint.runtimes.onnx.layouts import (
    BLOCKED,
    CHANNELS_LAST,
    block_size,
    count_channels,
    to_channels_first,
    unblock,
)
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.onnx.quantization import QuantizationFinder, has_integer_product
from syncpoint.runtimes.protocol import Array

Fetch = Callable[[str], Array | None]
"""Returns the value of this name in one graph and iteration; None where there is none."""

_RECORDED_PARAMETERS: WeakKeyDictionary[RunWriter, set[OpKey]] = WeakKeyDictionary()
"""The parameters that each unfinished run already has."""


@dataclass
class OrtOutputs:
    """The outputs of ONNX Runtime, by name; each is converted to an array when it is needed."""

    values: Mapping[str, Any]
    exposed: Mapping[str, ExposedValues]

    def array(self, name: str) -> Array | None:
        """Return the values of one output; Unsupported if it is not a tensor of numbers."""
        value = self.values.get(name)
        return None if value is None else to_numpy(value)


class OnnxCapture:
    """Records one execution of a graph."""

    def __init__(
        self, graph: OnnxGraph, outputs: OrtOutputs, recorder: Recorder, device: str
    ) -> None:
        self._graph = graph
        self._outputs = outputs
        self._recorder = recorder
        self._device = device
        self._quantizations = QuantizationFinder(self._fetch_scale)
        self._iterations: Counter[str] = Counter()
        self._keys: dict[Edge, TensorKey] = {}
        self._aliases: dict[Edge, str] = {}
        """Outputs of an If -> the key of the tensor in its branch that they return."""
        self.computed: Counter[str] = Counter()
        """Elements computed, by element type: the precision that was actually in effect."""

    def record(self, inputs: Mapping[str, Array]) -> None:
        """Record inputs, parameters, ops and outputs, in the order of execution."""
        for name, array in inputs.items():
            edge = Edge(OpKey(name), role=Role.MODEL_INPUT)
            self._keys[edge] = self._recorder.tensor(
                edge.op, array, role=edge.role, name=name, device=self._device
            )
        for name, value in self._graph.parameters.items():
            self._record_parameter(OpKey(name), value)
        graph = self._graph.model.graph
        self._record_ops(self._graph.order, Scope(), self._outputs.array, self._outputs.exposed)
        for position, value in enumerate(graph.outputs):
            self._record_model_output(position, value)

    def _record_ops(
        self,
        nodes: Iterable[ir.Node],
        scope: Scope,
        fetch: Fetch,
        exposed: Mapping[str, ExposedValues],
    ) -> None:
        for node in nodes:
            if is_constant(node):
                continue
            branch: list[Edge | None] = []
            if sub_graphs(node):
                inner = exposed.get(first_output_name(node))
                branch = self._record_sub_graphs(node, scope, fetch, inner)
            key = self._recorder.op(self._graph.describe(node, scope))
            for index, output in enumerate(node.outputs):
                if output.name:
                    source = branch[index] if index < len(branch) else None
                    if source is not None and source in self._keys:
                        self._aliases[Edge(key, index)] = str(self._keys[source])
                    self._record_output(key, index, output, scope, fetch)

    def _record_output(
        self, key: OpKey, index: int, value: ir.Value, scope: Scope, fetch: Fetch
    ) -> None:
        name = value.name or ""
        try:
            array = fetch(name)
        except Unsupported as error:
            self._recorder.note(f"{key} output {index} was not recorded: {error}")
            return
        if array is None:
            return
        layout, quantization = "", None
        if not scope.path:
            quantization = self._find_quantization(value, array)
            array, layout = self._to_model_layout(value, array)
        self._keys[Edge(key, index)] = self._recorder.tensor(
            key,
            array,
            index=index,
            layout=layout,
            device=self._device,
            quantization=quantization,
            alias_of=self._aliases.get(Edge(key, index), ""),
        )
        dtype = from_numpy(array.dtype).name
        if dtype in FLOATS or quantization is not None:
            self.computed[dtype] += array.size
        if has_integer_product(value):
            self.computed["i8"] += array.size

    def _find_quantization(self, value: ir.Value, array: Array) -> Quantization | None:
        if from_numpy(array.dtype).kind is not Kind.INT:
            return None
        quantization = self._quantizations.find(value)
        if quantization is None or quantization.describe_misfit(array.shape):
            return None
        return quantization

    def _to_model_layout(self, value: ir.Value, array: Array) -> tuple[Array, str]:
        """Convert a value to the layout of the model; also returns its name, or "" if nothing
        was converted."""
        layout = self._graph.provenance.layouts.get(value.name or "")
        if layout == BLOCKED and array.ndim > 2 and not array.shape[1] % block_size():
            provenance = self._graph.provenance
            in_file = provenance.file_values.get(provenance.name_in_file(value.name or ""))
            channels = count_channels(value, in_file, array.shape[1])
            if channels is None:
                self._recorder.note(
                    f"{value.name} may have padding channels at the end: nothing declares how many"
                    " channels the model has"
                )
            return unblock(array, channels), "NCHW"
        if layout == CHANNELS_LAST and array.ndim > 2:
            return to_channels_first(array), "NCHW"
        return array, ""

    def _record_model_output(self, position: int, value: ir.Value) -> None:
        edge = self._graph.edge(value, Scope())
        if edge is None:
            return
        name = value.name or ""
        try:
            array = self._outputs.array(name)
        except Unsupported as error:
            self._recorder.note(f"the output {name} was not recorded: {error}")
            return
        if array is None:
            return
        self._recorder.tensor(
            edge.op,
            array,
            role=Role.MODEL_OUTPUT,
            index=position,
            name=name,
            device=self._device,
            alias_of=str(self._keys.get(edge, "")),
            quantization=self._find_quantization(value, array),
        )

    def _record_parameter(self, key: OpKey, value: ir.Value) -> None:
        """Record a parameter or constant, once per run whatever the number of its parts."""
        edge = Edge(key, role=Role.PARAMETER)
        self._keys[edge] = TensorKey(key, Role.PARAMETER, 0, WHOLE)
        recorded = _RECORDED_PARAMETERS.setdefault(self._recorder.writer, set())
        if key in recorded:
            return
        recorded.add(key)
        array = constant_to_numpy(value)
        if array is None:
            return
        quantization = self._find_quantization(value, array)
        array = _narrow_exactly(array, self._graph.provenance.narrow_dtype(value))
        self._recorder.for_part(WHOLE).tensor(
            key, array, role=Role.PARAMETER, device=self._device, quantization=quantization
        )

    def _fetch_scale(self, value: ir.Value) -> Array | None:
        scale = constant_to_numpy(value)
        if scale is None and value.name:
            scale = self._outputs.array(value.name)
        return scale

    def _record_sub_graphs(
        self, node: ir.Node, scope: Scope, fetch: Fetch, exposed: ExposedValues | None
    ) -> list[Edge | None]:
        """Record the ops in the sub-graphs of a node, in every iteration that was executed; return
        the results of the branch that an If has taken."""
        if exposed is None:
            return []
        outer_edges = {v: self._graph.edge(v, scope) for v in captured_values(node)}
        bodies = sub_graphs(node)
        if exposed.mark:
            condition = fetch(exposed.mark)
            if condition is None or not condition.size:
                return []
            name = "then_branch" if condition.all() else "else_branch"
            inner = self._enter_scope(node, scope, name, outer_edges)
            inner_fetch = _fetch_renamed(fetch, exposed.branches[name])
            self._record_body(bodies[name], inner, inner_fetch, exposed, name)
            return [self._graph.edge(output, inner) for output in bodies[name].outputs]
        for name, body in bodies.items():
            self._record_loop(node, body, name, scope, fetch, exposed, outer_edges)
        return []

    def _record_loop(
        self,
        node: ir.Node,
        body: ir.Graph,
        name: str,
        scope: Scope,
        fetch: Fetch,
        exposed: ExposedValues,
        outer_edges: dict[ir.Value, Edge | None],
    ) -> None:
        stacks = {inner: fetch(outer) for inner, outer in exposed.branches[name].items()}
        first = next(iter(stacks.values()), None)
        if first is None:
            return
        scans = node.attributes.get_int("num_scan_inputs", 0)
        # The body of a Loop also takes the iteration and a condition, and returns a condition.
        leading_inputs, leading_outputs = (2, 1) if node.op_type == "Loop" else (0, 0)
        carried = len(body.inputs) - leading_inputs - scans
        previous: Scope | None = None
        for iteration in range(len(first)):
            edges = dict(outer_edges)
            edges |= dict.fromkeys(body.inputs[:leading_inputs])
            for k, value in enumerate(body.inputs[leading_inputs:]):
                if previous is not None and k < carried:
                    edges[value] = self._graph.edge(body.outputs[leading_outputs + k], previous)
                else:
                    edges[value] = self._graph.edge(node.inputs[leading_inputs + k], scope)
            inner = self._enter_scope(node, scope, name, edges)
            self._record_body(body, inner, _fetch_slice(stacks, iteration), exposed, name)
            previous = inner

    def _record_body(
        self, body: ir.Graph, scope: Scope, fetch: Fetch, exposed: ExposedValues, name: str
    ) -> None:
        for value in body.initializers.values():
            self._record_parameter(OpKey(value.name or "", path=scope.path), value)
        for node in body:
            if is_constant(node):
                value = node.outputs[0]
                self._record_parameter(OpKey(value.name or "", path=scope.path), value)
        self._record_ops(body, scope, fetch, exposed.inner[name])

    def _enter_scope(
        self, node: ir.Node, scope: Scope, name: str, edges: dict[ir.Value, Edge | None]
    ) -> Scope:
        component = f"{first_output_name(node)}.{name}"
        path = f"{scope.path}/{component}" if scope.path else component
        iteration = self._iterations[path]
        self._iterations[path] += 1
        return replace(scope, path=path, iteration=iteration, edges={**scope.edges, **edges})


def _narrow_exactly(array: Array, dtype: ir.DataType | None) -> Array:
    """Convert values to the type of the file, if it can hold them all."""
    if dtype is None:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        narrow: Array = array.astype(dtype.numpy())
    is_exact = np.array_equal(narrow.astype(array.dtype), array, equal_nan=True)
    return narrow if is_exact else array


def _fetch_renamed(fetch: Fetch, names: Mapping[str, str]) -> Fetch:
    return lambda name: fetch(names[name]) if name in names else None


def _fetch_slice(stacks: Mapping[str, Array | None], iteration: int) -> Fetch:
    def fetch_value(name: str) -> Array | None:
        stack = stacks.get(name)
        return None if stack is None else stack[iteration]

    return fetch_value
