"""Tells the recorder of every op and tensor of one execution, sub-graphs and their rounds too."""

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
from syncpoint.runtimes.onnx.arrays import constant, to_numpy
from syncpoint.runtimes.onnx.graph import Graph, Scope, captured, first_output, sub_graphs
from syncpoint.runtimes.onnx.instrument import Exposed
from syncpoint.runtimes.onnx.layouts import (
    BLOCKED,
    LAST,
    block_size,
    channels_first,
    count_channels,
    unblocked,
)
from syncpoint.runtimes.onnx.node_metadata import is_constant
from syncpoint.runtimes.onnx.quantization import Quantizations, multiplies_integers
from syncpoint.runtimes.protocol import Array

Fetch = Callable[[str], Array | None]
"""The value of this name in one graph and round; None where there is none."""

_PARAMETERS: WeakKeyDictionary[RunWriter, set[OpKey]] = WeakKeyDictionary()
"""Which parameters each run that is being written has already."""


@dataclass
class Results:
    """What ONNX Runtime gave, by name; turned into arrays one at a time."""

    values: Mapping[str, Any]
    exposed: Mapping[str, Exposed]

    def array(self, name: str) -> Array | None:
        """The values of one output; Unsupported for what is no tensor of numbers."""
        found = self.values.get(name)
        return None if found is None else to_numpy(found)


class Capture:
    """One execution of a graph on its way into a run."""

    def __init__(self, graph: Graph, results: Results, recorder: Recorder, device: str) -> None:
        self._graph = graph
        self._results = results
        self._recorder = recorder
        self._device = device
        self._quantizations = Quantizations(self._scale)
        self._rounds: Counter[str] = Counter()
        self._keys: dict[Edge, TensorKey] = {}
        self.computed: Counter[str] = Counter()
        """Elements computed, by element type: the precision that was really in effect."""

    def record(self, inputs: Mapping[str, Array]) -> None:
        """Everything, in the order of execution."""
        for name, array in inputs.items():
            edge = Edge(OpKey(name), role=Role.MODEL_INPUT)
            self._keys[edge] = self._recorder.tensor(
                edge.op, array, role=edge.role, name=name, device=self._device
            )
        for name, value in self._graph.parameters.items():
            self._parameter(OpKey(name), value)
        graph = self._graph.model.graph
        self._ops(self._graph.order, Scope(), self._results.array, self._results.exposed)
        for position, value in enumerate(graph.outputs):
            self._model_output(position, value)

    def _ops(
        self,
        nodes: Iterable[ir.Node],
        scope: Scope,
        fetch: Fetch,
        exposed: Mapping[str, Exposed],
    ) -> None:
        for node in nodes:
            if is_constant(node):
                continue
            if sub_graphs(node):
                self._inside(node, scope, fetch, exposed.get(first_output(node)))
            key = self._recorder.op(self._graph.describe(node, scope))
            for index, output in enumerate(node.outputs):
                if output.name:
                    self._output(key, index, output, scope, fetch)

    def _output(self, key: OpKey, index: int, value: ir.Value, scope: Scope, fetch: Fetch) -> None:
        name = value.name or ""
        try:
            array = fetch(name)
        except Unsupported as error:
            self._recorder.note(f"{key} output {index} was not recorded: {error}")
            return
        if array is None:
            return
        layout, meaning = "", None
        if not scope.path:
            meaning = self._meaning(value, array)
            array, layout = self._laid_out(value, array)
        self._keys[Edge(key, index)] = self._recorder.tensor(
            key, array, index=index, layout=layout, device=self._device, quantization=meaning
        )
        kind = from_numpy(array.dtype).name
        if kind in FLOATS or meaning is not None:
            self.computed[kind] += array.size
        if multiplies_integers(value):
            self.computed["i8"] += array.size

    def _meaning(self, value: ir.Value, array: Array) -> Quantization | None:
        if from_numpy(array.dtype).kind is not Kind.INT:
            return None
        found = self._quantizations.of(value)
        return found if found is not None and not found.describe_misfit(array.shape) else None

    def _laid_out(self, value: ir.Value, array: Array) -> tuple[Array, str]:
        """The values in the order of the model, and the name of that order where it was not
        the runtime's."""
        layout = self._graph.provenance.layouts.get(value.name or "")
        if layout == BLOCKED and array.ndim > 2 and not array.shape[1] % block_size():
            provenance = self._graph.provenance
            in_file = provenance.made.get(provenance.original(value.name or ""))
            channels = count_channels(value, in_file, array.shape[1])
            if channels is None:
                self._recorder.note(
                    f"{value.name} may have channels that only fill a block up: how many the model"
                    " has is not said"
                )
            return unblocked(array, channels), "NCHW"
        if layout == LAST and array.ndim > 2:
            return channels_first(array), "NCHW"
        return array, ""

    def _model_output(self, position: int, value: ir.Value) -> None:
        edge = self._graph.edge(value, Scope())
        if edge is None:
            return
        name = value.name or ""
        try:
            array = self._results.array(name)
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
            quantization=self._meaning(value, array),
        )

    def _parameter(self, key: OpKey, value: ir.Value) -> None:
        """A parameter or constant; of each run once, whatever the number of its parts."""
        edge = Edge(key, role=Role.PARAMETER)
        self._keys[edge] = TensorKey(key, Role.PARAMETER, 0, WHOLE)
        recorded = _PARAMETERS.setdefault(self._recorder.writer, set())
        if key in recorded:
            return
        recorded.add(key)
        array = constant(value)
        if array is None:
            return
        meaning = self._meaning(value, array)
        array = _as_in_file(array, self._graph.provenance.stored_dtype(value))
        self._recorder.for_part(WHOLE).tensor(
            key, array, role=Role.PARAMETER, device=self._device, quantization=meaning
        )

    def _scale(self, value: ir.Value) -> Array | None:
        found = constant(value)
        if found is None and value.name:
            found = self._results.array(value.name)
        return found

    def _inside(self, node: ir.Node, scope: Scope, fetch: Fetch, exposed: Exposed | None) -> None:
        """The ops in the sub-graphs of a node, in every round that was executed."""
        if exposed is None:
            return
        around = {v: self._graph.edge(v, scope) for v in captured(node)}
        bodies = sub_graphs(node)
        if exposed.mark:
            taken = fetch(exposed.mark)
            if taken is None or not taken.size:
                return
            name = "then_branch" if taken.all() else "else_branch"
            inner = self._scope(node, scope, name, around)
            self._body(bodies[name], inner, _renamed(fetch, exposed.branches[name]), exposed, name)
            return
        for name, body in bodies.items():
            self._loop(node, body, name, scope, fetch, exposed, around)

    def _loop(
        self,
        node: ir.Node,
        body: ir.Graph,
        name: str,
        scope: Scope,
        fetch: Fetch,
        exposed: Exposed,
        around: dict[ir.Value, Edge | None],
    ) -> None:
        stacks = {inner: fetch(outer) for inner, outer in exposed.branches[name].items()}
        first = next(iter(stacks.values()), None)
        if first is None:
            return
        scans = node.attributes.get_int("num_scan_inputs", 0)
        # A loop gives its body the number of the round and a condition besides.
        lead, given = (2, 1) if node.op_type == "Loop" else (0, 0)
        carried = len(body.inputs) - lead - scans
        before: Scope | None = None
        for at in range(len(first)):
            edges = dict(around)
            edges |= dict.fromkeys(body.inputs[:lead])
            for k, value in enumerate(body.inputs[lead:]):
                if before is not None and k < carried:
                    edges[value] = self._graph.edge(body.outputs[given + k], before)
                else:
                    edges[value] = self._graph.edge(node.inputs[lead + k], scope)
            inner = self._scope(node, scope, name, edges)
            self._body(body, inner, _slice(stacks, at), exposed, name)
            before = inner

    def _body(
        self, body: ir.Graph, scope: Scope, fetch: Fetch, exposed: Exposed, name: str
    ) -> None:
        for value in body.initializers.values():
            self._parameter(OpKey(value.name or "", path=scope.path), value)
        for node in body:
            if is_constant(node):
                value = node.outputs[0]
                self._parameter(OpKey(value.name or "", path=scope.path), value)
        self._ops(body, scope, fetch, exposed.inner[name])

    def _scope(
        self, node: ir.Node, scope: Scope, name: str, edges: dict[ir.Value, Edge | None]
    ) -> Scope:
        step = f"{first_output(node)}.{name}"
        path = f"{scope.path}/{step}" if scope.path else step
        number = self._rounds[path]
        self._rounds[path] += 1
        return replace(scope, path=path, iteration=number, edges={**scope.edges, **edges})


def _as_in_file(array: Array, kind: ir.DataType | None) -> Array:
    """The numbers in the type of the file, if it holds them all."""
    if kind is None:
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        narrow: Array = array.astype(kind.numpy())
    same = np.array_equal(narrow.astype(array.dtype), array, equal_nan=True)
    return narrow if same else array


def _renamed(fetch: Fetch, names: Mapping[str, str]) -> Fetch:
    return lambda name: fetch(names[name]) if name in names else None


def _slice(stacks: Mapping[str, Array | None], at: int) -> Fetch:
    def one(name: str) -> Array | None:
        whole = stacks.get(name)
        return None if whole is None else whole[at]

    return one
