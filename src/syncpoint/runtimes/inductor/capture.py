"""Capture classes for compiled models: buffers as executed (copies of inputs noted), ops one by
one, all ops as outputs, ops in float64."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.codegen_hooks import Buffer
from syncpoint.runtimes.inductor.compile import find_tensor_nodes
from syncpoint.runtimes.inductor.graph import GraphCall, GraphWatch, WatchedModel, storage_address
from syncpoint.runtimes.inductor.node_metadata import BufferDescriber
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name, has_same_bits
from syncpoint.runtimes.torch.capture import CaptureLedger, NodeCapture
from syncpoint.runtimes.torch.node_metadata import find_module, find_source_frames, op_type
from syncpoint.runtimes.torch.program import Observations


class GraphRecording(GraphWatch):
    """Base of the captures: a watch that records."""

    def __init__(self, watched: WatchedModel, recorder: Recorder) -> None:
        super().__init__(watched)
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Number of elements computed, by floating-point dtype."""
        self._ledgers: dict[str, CaptureLedger] = {}
        self._recorded: set[Edge] = set()
        self._edge_by_storage: dict[int, Edge] = {}
        """Address of memory -> edge of the tensor that was last written there."""

    def execute(self, call: GraphCall) -> Tree:
        """Record the inputs and the computed values of a graph."""
        ledger = CaptureLedger(call.program.observed, self.recorder)
        self._ledgers[call.program.edges.graph] = ledger
        for source, value in call.arguments():
            edge = source.edge
            if edge is None or edge.role is Role.PARAMETER or edge in self._recorded:
                continue
            self._recorded.add(edge)
            if edge.role is Role.INPUT:
                self.recorder.op(Op(edge.op, "graph input"))
            ledger.record_tensor(edge, value, name=source.path)
            self.remember_storage(edge, value)
        for edge, value in call.program.parameters():
            if edge not in self._recorded:
                self._recorded.add(edge)
                ledger.record_parameter(edge, value)
        return self.record(call, ledger)

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the graph and record the values that it computes."""
        raise NotImplementedError

    def remember_storage(self, edge: Edge, value: torch.Tensor) -> None:
        """Remember the memory of a tensor."""
        self._edge_by_storage[storage_address(value)] = edge

    def count_elements(self, value: torch.Tensor) -> None:
        """Count the elements of a computed tensor by dtype."""
        if value.is_floating_point():
            self.computed[dtype_name(value.dtype)] += value.numel()

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output under the op that computed it."""
        edge = self._edge_by_storage.get(storage_address(value))
        if edge is None:
            # Computed by Python code between or after the graphs.
            edge = Edge(self.recorder.op(Op(OpKey(f"output_{position}"), "python")))
        ledger = self._ledgers.get(edge.op.graph) or CaptureLedger(Observations(), self.recorder)
        ledger.record_model_output(edge, position, self.final_value(value), name)

    def final_value(self, value: torch.Tensor) -> torch.Tensor:
        """The value to record for a final output."""
        return value


class BufferCapture(GraphRecording):
    """Records the buffers of compiled code as it is executed."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the compiled code under torch's hook for intermediate values."""
        from torch._inductor.hooks import intermediate_hook

        edges: dict[str, Edge] = {n: g.edge for n, g in call.sources.items() if g.edge is not None}
        input_values = {source.edge: value for source, value in call.arguments() if source.edge}
        describe = BufferDescriber(call.program, call.graph)
        buffers = call.graph.generated.buffers

        def record_buffer(name: str, value: Any) -> None:
            if not isinstance(value, torch.Tensor):
                return
            buffer = buffers.get(name) or Buffer(
                name=name, kernel=name, origin=name, origins=(), computes=(), reads=()
            )
            reads = tuple(edges[read] for read in buffer.reads if read in edges)
            described = describe.describe_buffer(buffer, value, reads)
            if "value_of" not in described.attributes:
                copied = _find_copied_input(
                    value, [(e, input_values[e]) for e in reads if e in input_values]
                )
                described = replace(described, attributes={**described.attributes, **copied})
            edge = Edge(self.recorder.op(described))
            ledger.record_tensor(edge, value, reads)
            edges[name] = edge
            self.on_buffer_recorded(edge, value)

        with intermediate_hook(record_buffer):
            return call.graph.code(call.inputs)

    def on_buffer_recorded(self, edge: Edge, value: torch.Tensor) -> None:
        """Called after a buffer was recorded."""
        self.remember_storage(edge, value)
        self.count_elements(value)


def _find_copied_input(value: torch.Tensor, inputs: list[tuple[Edge, Any]]) -> dict[str, Any]:
    """Attribute `copy_of` if the buffer is a bit-equal copy of an input; else no attributes."""
    for edge, input_value in inputs:
        if isinstance(input_value, torch.Tensor) and has_same_bits(input_value, value):
            return {"copy_of": edge.op.op}
    return {}


class OpByOpCapture(GraphRecording):
    """Records the ops of the graph, run one by one with eager kernels."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the graph node by node."""
        input_values = [
            value
            for source, value in call.arguments()
            if source.edge is None or source.edge.role is not Role.PARAMETER
        ]
        program = call.program
        assert program.module is not None
        capture = NodeCapture(ledger, program, program.module, program.edges)
        outputs = capture.run(*input_values, enable_io_processing=False)
        self.computed.update(ledger.computed)
        for edge, value in zip(capture.result_edges, outputs, strict=True):
            if edge is not None and isinstance(value, torch.Tensor):
                self.remember_storage(edge, value)
        call.inputs.clear()
        return outputs


class UnfusedCapture(GraphRecording):
    """Records compiled code in which every op is an output of the graph."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the code, record the extra outputs, and return those of the graph itself."""
        program = call.program
        nodes = find_tensor_nodes(call.graph.module)
        outputs = list(call.graph.code(call.inputs))
        output_count = len(outputs) - len(nodes)
        copies = {node.name: node for node in program.graph.nodes}
        described_ops: set[OpKey] = set()
        for node, value in zip(nodes, outputs[output_count:], strict=True):
            edge = program.edges.edge_of(copies[node.name])
            if edge is None or edge.role is not Role.OUTPUT or edge in self._recorded:
                continue
            self._recorded.add(edge)
            maker = program.nodes[edge.op.op]
            inputs = program.edges.inputs_of(maker)
            if edge.op not in described_ops:
                described_ops.add(edge.op)
                module, module_type = find_module(maker)
                self.recorder.op(
                    Op(
                        edge.op,
                        op_type(maker),
                        inputs,
                        module=module,
                        module_type=module_type,
                        source=find_source_frames(maker),
                    )
                )
            ledger.record_tensor(edge, value, inputs)
            self.count_elements(value)
            self.remember_storage(edge, value)
        return outputs[:output_count]


class Float64Capture(GraphRecording):
    """Records the ops of the graph in float64, beside a normal execution of the graph."""

    def __init__(self, watched: WatchedModel, recorder: Recorder) -> None:
        super().__init__(watched, recorder)
        self._float64_values: dict[int, torch.Tensor] = {}
        """Address of an output of a graph -> its float64 value, for the graphs that follow."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the compiled code for its outputs, and record float64 values."""
        input_values = {
            source.edge: self._float64_values.get(storage_address(value), value)
            for source, value in call.arguments()
            if isinstance(value, torch.Tensor)
            and source.edge is not None
            and source.edge.role is not Role.PARAMETER
        }
        float64_outputs = self.watched.evaluator.evaluate_all(call.program, input_values, ledger)
        outputs = call.graph.run_plain(call.inputs)
        for value, (edge, float64_value) in zip(outputs, float64_outputs, strict=True):
            if edge is None or not isinstance(value, torch.Tensor):
                continue
            if isinstance(float64_value, torch.Tensor):
                self._float64_values[storage_address(value)] = float64_value
                self.remember_storage(edge, value)
        self.computed["f64"] += 1
        return outputs

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output if a graph computed it: Python code has no float64 value."""
        if storage_address(value) in self._float64_values:
            super().model_output(position, value, name)

    def final_value(self, value: torch.Tensor) -> torch.Tensor:
        """The float64 value of a final output."""
        return self._float64_values[storage_address(value)].reshape(value.shape)
