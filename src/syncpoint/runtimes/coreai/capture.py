"""Record each kernel of one execution: trace inputs to earlier results by address, form and
content; sort outputs; record states and parameters.

Kernels that only allocate memory are skipped: their outputs hold whatever was there before. A value
is recognised by its address in memory, its form and its bytes, all three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from coreai.runtime import NDArray

from syncpoint.errors import CaptureError
from syncpoint.run.dtypes import FLOATS, from_numpy
from syncpoint.run.model import Edge, Op, OpKey, Part, Quantization, Role, TensorKey
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.coreai.arrays import RuntimeArray, wrap_array, wrap_ndarray, wrap_raw
from syncpoint.runtimes.coreai.asset_constants import (
    AssetConstants,
    Form,
    MemoryContent,
    constant_key,
)
from syncpoint.runtimes.coreai.kernel_to_op import KernelInput, KernelMatcher
from syncpoint.runtimes.coreai.node_metadata import (
    NO_DEBUG_INFO,
    DebugInfo,
    KernelNames,
    short_type,
)
from syncpoint.runtimes.coreai.program import AssetProgram, ProgramNode
from syncpoint.runtimes.coreai.quantization import (
    UNPACKING_KERNELS,
    CompressedWeights,
    QuantizeSteps,
    reshape_to_rows,
)
from syncpoint.runtimes.protocol import Array

_MAX_CONTENTS_PER_ADDRESS = 8
"""Values at one address that are remembered."""


class CoreAICapture:
    """Records every kernel of one execution."""

    def __init__(
        self,
        recorder: Recorder,
        constants: AssetConstants,
        names: KernelNames,
        program: AssetProgram | None,
        input_edges: Mapping[str, Edge],
        input_values: Mapping[str, Array],
        device: str,
    ) -> None:
        """`input_edges` and `input_values` are those of the model's inputs and states."""
        self._recorder = recorder
        self._constants = constants
        self._names = names
        self._matcher = KernelMatcher(program)
        self._input_edges = dict(input_edges)
        self._device = device
        self._contents = {
            address: list(contents) for address, contents in constants.contents.items()
        }
        """By address in memory: the last values there."""
        self._input_by_digest = {
            (value.form, value.digest): name
            for name, value in ((n, wrap_array(a)) for n, a in input_values.items())
        }
        self._edges: list[list[Edge]] = []
        """By kernel in the order of execution: its outputs."""
        self._split_inputs: list[RuntimeArray] = []
        """Copies of what the running kernel reads, if it is a split."""
        self._kernel_inputs: list[KernelInput] = []
        self._started_ns: int | None = None
        self._duration_ns: int | None = None
        """Of the kernel that ran last."""
        self._last_edge: dict[tuple[Form, int], Edge] = {}
        self.computed: Counter[str] = Counter()
        """Elements computed, by element type: the precision that was actually in effect."""
        self.keys: dict[Edge, TensorKey] = {}
        self.unordered: list[str] = []
        """Ops whose outputs could not be told apart."""
        self.parameters: set[int] = set()
        """Constants that ops read as parameters."""
        self.compressed_weights = CompressedWeights()
        self._quantize_steps = QuantizeSteps()

    def add_input(self, name: str, array: NDArray) -> None:
        """Remember the address of an input or state: caches of one size begin with the same bytes,
        and only their addresses differ."""
        value = wrap_ndarray(array)
        if value is not None and value.address:
            content = MemoryContent(value.form, value.digest, KernelInput(model_input=name))
            self._contents.setdefault(value.address, []).append(content)

    @property
    def kernels(self) -> int:
        """Number of kernels that were recorded."""
        return len(self._edges)

    def add_values(self, kernel: int, name: str, kind: str, raw: Sequence[Any]) -> None:
        """Take the inputs or outputs of a kernel from a callback."""
        now_ns = perf_counter_ns()
        if kind == "input":
            inputs = [wrap_raw(r) for r in raw]
            self._kernel_inputs = [self._find_source(value) for value in inputs]
            # The kernel may overwrite its inputs, so those that are needed later are copied.
            is_split = short_type(name) == "split"
            self._split_inputs = [wrap_array(v.array.copy()) for v in inputs] if is_split else []
            # The kernel runs between the two callbacks; their own time does not count.
            self._started_ns = perf_counter_ns()
        elif kind == "output" and raw:
            started_ns = self._started_ns
            self._duration_ns = now_ns - started_ns if started_ns is not None else None
            self._started_ns = None
            self._record_kernel(kernel, name, [wrap_raw(r) for r in raw])

    def find_producer(self, array: Array) -> Edge | None:
        """Find the op whose output holds these values; the last one where there are several."""
        value = wrap_array(array)
        edge = self._last_edge.get((value.form, value.digest))
        if edge is None and (value.form, value.digest) in self._input_by_digest:
            return self._input_edges[self._input_by_digest[value.form, value.digest]]
        return edge

    def record_results(self, outputs: Mapping[str, Array], states: Mapping[str, Array]) -> None:
        """Record the outputs of the function and its states after it has run."""
        for position, (name, array) in enumerate(outputs.items()):
            edge = self.find_producer(array)
            self._recorder.tensor(
                edge.op if edge is not None else OpKey(name),
                array,
                role=Role.MODEL_OUTPUT,
                index=position,
                name=name,
                device=self._device,
                alias_of=str(self.keys.get(edge, "")) if edge is not None else "",
            )
        for name, array in states.items():
            edge = self.find_producer(array)
            self._recorder.tensor(
                OpKey(name),
                array,
                role=Role.STATE,
                name=name,
                device=self._device,
                alias_of=str(self.keys.get(edge, "")) if edge is not None else "",
            )
        for op in self.unordered:
            self._recorder.note(f"the outputs of {op} were not recorded: their order is unknown")
        unknown_weights = self.compressed_weights.unknown
        if unknown_weights:
            self._recorder.note(
                f"the quantization of {len(unknown_weights)} compressed weights is unknown,"
                f" such as that of {unknown_weights[0]}: their error is judged as that of"
                " floats"
            )
        if not self.kernels:
            raise CaptureError(
                "the Core AI runtime reported no kernels", cure="use coreai-core 1.0.0b3"
            )

    def record_parameters(self, recorded: set[int]) -> None:
        """Record the constants that ops read, once per run whatever the number of its parts.

        Those in `recorded` are skipped; the others are added to it.
        """
        recorder = self._recorder.for_part(Part())
        for constant in sorted(self.parameters - recorded):
            quantization = self.compressed_weights.quantizations.get(constant)
            array = reshape_to_rows(self._constants.values[constant], quantization)
            recorder.tensor(
                constant_key(constant), array, role=Role.PARAMETER, quantization=quantization
            )
        recorded |= self.parameters

    def _record_kernel(self, kernel: int, name: str, raw_outputs: list[RuntimeArray]) -> None:
        outputs = order_outputs(name, raw_outputs, self._split_inputs)
        shapes = [value.array.shape for value in outputs or raw_outputs]
        node, order = self._matcher.match_kernel(name, self._kernel_inputs, shapes)
        debug = self._find_debug_info(kernel, node)
        type = name if name.startswith("coreai.") else f"coreai.{name}"
        inputs = [self._kernel_inputs[i] for i in order]
        duration_ns = self._duration_ns
        op = Op(
            OpKey(self._names.name_of(kernel, name, debug)),
            type,
            tuple(edge for i in inputs if (edge := self._find_edge(i)) is not None),
            attributes=self._make_attributes(inputs)
            | ({"part_of": node.step} if node and node.step else {})
            | ({"nanoseconds": duration_ns} if duration_ns is not None else {}),
            module=debug.module,
            module_type=debug.module_type,
            source=debug.source,
            origins=debug.origins,
        )
        key = self._recorder.op(op)
        self._edges.append([Edge(key, i) for i in range(len(raw_outputs))])
        if outputs is None:
            self.unordered.append(str(key))
            return
        if short_type(name) in UNPACKING_KERNELS:
            constants = [i.constant for i in inputs if i.constant >= 0]
            stored = self._constants_of(inputs)
            self.compressed_weights.add(key, short_type(name), constants, stored, outputs[0].array)
        quantization = None
        if node is not None:
            quantization = self._quantize_steps.add_step(node, self._constants_of(inputs))
        for index, value in enumerate(outputs):
            self._record_output(key, index, value, quantization)

    def _constants_of(self, inputs: Sequence[KernelInput]) -> list[Array]:
        return [self._constants.values[i.constant] for i in inputs if i.constant >= 0]

    def _record_output(
        self, key: OpKey, index: int, value: RuntimeArray, quantization: Quantization | None = None
    ) -> None:
        edge = Edge(key, index)
        self.keys[edge] = self._recorder.tensor(
            key, value.array, index=index, device=self._device, quantization=quantization
        )
        source = KernelInput(len(self._edges) - 1, index)
        contents = self._contents.setdefault(value.address, [])
        contents.append(MemoryContent(value.form, value.digest, source))
        del contents[:-_MAX_CONTENTS_PER_ADDRESS]
        self._last_edge[value.form, value.digest] = edge
        dtype = from_numpy(value.array.dtype).name
        if dtype in FLOATS:
            self.computed[dtype] += value.array.size

    def _find_source(self, value: RuntimeArray) -> KernelInput:
        """Find where a value comes from, by its address, form and bytes."""
        if value.address:
            for content in reversed(self._contents.get(value.address, ())):
                if content.form == value.form and content.digest == value.digest:
                    return content.source
        name = self._input_by_digest.get((value.form, value.digest), "")
        return KernelInput(model_input=name)

    def _find_edge(self, source: KernelInput) -> Edge | None:
        if source.model_input:
            return self._input_edges[source.model_input]
        if source.kernel >= 0:
            return self._edges[source.kernel][source.index]
        if source.constant >= 0 and self._constants.attribute(source.constant) is None:
            self.parameters.add(source.constant)
            return Edge(constant_key(source.constant), role=Role.PARAMETER)
        return None

    def _make_attributes(self, inputs: Sequence[KernelInput]) -> dict[str, Any]:
        attributes = [self._constants.attribute(i.constant) for i in inputs if i.constant >= 0]
        constants = [value for value in attributes if value is not None]
        return {"constants": constants} if constants else {}

    def _find_debug_info(self, kernel: int, node: ProgramNode | None) -> DebugInfo:
        if node is not None and node.call is not None:
            return node.call
        return self._names.debug.get(kernel, NO_DEBUG_INFO)


def record_inputs(
    recorder: Recorder,
    inputs: Mapping[str, Array],
    states: Mapping[str, Array],
    passed: frozenset[str],
) -> None:
    """Record the inputs of a function and the values of its states before it runs.

    `passed` are the names for which the caller passed values.
    """
    for name, array in inputs.items():
        recorder.tensor(OpKey(name), array, role=Role.MODEL_INPUT, name=name)
    for name, array in states.items():
        if name in passed:
            # As an input it is passed again when the run is used as inputs.
            recorder.tensor(OpKey(name), array, role=Role.MODEL_INPUT, name=name)
        recorder.tensor(OpKey(name), array, role=Role.STATE, index=1, name=name)


def order_outputs(
    name: str, outputs: list[RuntimeArray], inputs: Sequence[RuntimeArray]
) -> list[RuntimeArray] | None:
    """Sort the outputs of a kernel into the order of its results; None where that is unknown."""
    if len(outputs) < 2:
        return outputs
    if short_type(name) != "split":
        return None
    return _order_split_outputs(outputs, inputs)


def _order_split_outputs(
    outputs: Sequence[RuntimeArray], inputs: Sequence[RuntimeArray]
) -> list[RuntimeArray] | None:
    """Sort the outputs of a split: the input is split again, and its pieces are compared."""
    total_size = sum(output.array.size for output in outputs)
    integers = [v.array for v in inputs if v.array.dtype.kind in "iu"]
    wholes = [v.array for v in inputs if v.array.size == total_size]
    axes = [int(array) for array in integers if array.ndim == 0]
    sizes = [array for array in integers if array.shape == (len(outputs),)]
    for array, axis, size in ((w, a, s) for w in wholes for a in axes for s in sizes):
        if not array.ndim or not -array.ndim <= axis < array.ndim:
            continue
        if int(size.sum()) != array.shape[axis]:
            continue
        pieces = np.split(array, np.cumsum(size.astype(np.int64))[:-1], axis)
        ordered = _order_by_pieces(pieces, outputs)
        if ordered is not None:
            return ordered
    return None


def _order_by_pieces(
    pieces: Sequence[Array], outputs: Sequence[RuntimeArray]
) -> list[RuntimeArray] | None:
    """Sort the outputs into the order of equal pieces; None where an output equals no piece."""
    unplaced = sorted(outputs, key=lambda value: value.address)
    ordered = []
    for piece in pieces:
        wrapped = wrap_array(piece)
        equal = [v for v in unplaced if v.form == wrapped.form and v.digest == wrapped.digest]
        if equal:
            ordered.append(equal[0])
            unplaced.remove(equal[0])
    return None if unplaced else ordered
