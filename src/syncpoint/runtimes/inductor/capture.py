"""What is recorded while the graphs of a compiled model are called."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.codegen_hooks import Buffer
from syncpoint.runtimes.inductor.compile import find_tensor_nodes
from syncpoint.runtimes.inductor.graph_calls import (
    GraphCall,
    GraphWatch,
    WatchedModel,
    storage_address,
)
from syncpoint.runtimes.inductor.node_metadata import BufferDescriber
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name, has_same_bits
from syncpoint.runtimes.torch.capture import NodeCapture
from syncpoint.runtimes.torch.ledger import CaptureLedger
from syncpoint.runtimes.torch.node_metadata import find_module, find_source_frames, op_type
from syncpoint.runtimes.torch.program import Observations


class GraphRecording(GraphWatch):
    """A watch that records what it sees."""

    def __init__(self, watched: WatchedModel, recorder: Recorder) -> None:
        super().__init__(watched)
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Elements computed, by floating-point type."""
        self._ledgers: dict[str, CaptureLedger] = {}
        self._recorded: set[Edge] = set()
        self._edge_by_storage: dict[int, Edge] = {}
        """Memory -> the tensor that was last written there."""

    def execute(self, call: GraphCall) -> Tree:
        """Record what the graph is given and what it computes."""
        ledger = CaptureLedger(call.program.observed, self.recorder)
        self._ledgers[call.program.edges.graph] = ledger
        for known, value in call.arguments():
            edge = known.edge
            if edge is None or edge.role is Role.PARAMETER or edge in self._recorded:
                continue
            self._recorded.add(edge)
            if edge.role is Role.INPUT:
                self.recorder.op(Op(edge.op, "graph input"))
            ledger.record_tensor(edge, value, name=known.path)
            self.remember_storage(edge, value)
        for edge, value in call.program.parameters():
            if edge not in self._recorded:
                self._recorded.add(edge)
                ledger.record_parameter(edge, value)
        return self.record(call, ledger)

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the graph and record what it computes."""
        raise NotImplementedError

    def remember_storage(self, edge: Edge, value: torch.Tensor) -> None:
        """Remember where a tensor is."""
        self._edge_by_storage[storage_address(value)] = edge

    def count_elements(self, value: torch.Tensor) -> None:
        """Count what was computed, by its type."""
        if value.is_floating_point():
            self.computed[dtype_name(value.dtype)] += value.numel()

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output under the op that made it."""
        edge = self._edge_by_storage.get(storage_address(value))
        if edge is None:
            # Made by Python code between or after the graphs.
            edge = Edge(self.recorder.op(Op(OpKey(f"output_{position}"), "python")))
        ledger = self._ledgers.get(edge.op.graph) or CaptureLedger(Observations(), self.recorder)
        ledger.record_model_output(edge, position, self.final_value(value), name)

    def final_value(self, value: torch.Tensor) -> torch.Tensor:
        """What is recorded for a final output."""
        return value


class BufferCapture(GraphRecording):
    """The buffers of compiled code, as it is executed."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the compiled code under torch's hook for intermediate values."""
        from torch._inductor.hooks import intermediate_hook

        edges: dict[str, Edge] = {n: g.edge for n, g in call.sources.items() if g.edge is not None}
        held = {known.edge: value for known, value in call.arguments() if known.edge}
        describe = BufferDescriber(call.program, call.graph)
        buffers = call.graph.generated.buffers

        def seen(name: str, value: Any) -> None:
            if not isinstance(value, torch.Tensor):
                return
            buffer = buffers.get(name) or Buffer(
                name=name, kernel=name, origin=name, origins=(), computes=(), reads=()
            )
            reads = tuple(edges[read] for read in buffer.reads if read in edges)
            described = describe.describe_buffer(buffer, value, reads)
            if "value_of" not in described.attributes:
                copied = _find_copied_input(value, [(e, held[e]) for e in reads if e in held])
                described = replace(described, attributes={**described.attributes, **copied})
            edge = Edge(self.recorder.op(described))
            ledger.record_tensor(edge, value, reads)
            edges[name] = edge
            self.on_buffer_recorded(edge, value)

        with intermediate_hook(seen):
            return call.graph.code(call.inputs)

    def on_buffer_recorded(self, edge: Edge, value: torch.Tensor) -> None:
        """A buffer was recorded."""
        self.remember_storage(edge, value)
        self.count_elements(value)


def _find_copied_input(value: torch.Tensor, inputs: list[tuple[Edge, Any]]) -> dict[str, Any]:
    """Whether the buffer has the bits of what the graph was given, in a layout of its own."""
    for edge, given in inputs:
        if isinstance(given, torch.Tensor) and has_same_bits(given, value):
            return {"copy_of": edge.op.op}
    return {}


class OpByOpCapture(GraphRecording):
    """The ops of the graph, one by one, by eager kernels."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Interpret the graph."""
        fed = [
            value
            for known, value in call.arguments()
            if known.edge is None or known.edge.role is not Role.PARAMETER
        ]
        program = call.program
        assert program.module is not None
        capture = NodeCapture(ledger, program, program.module, program.edges)
        results = capture.run(*fed, enable_io_processing=False)
        self.computed.update(ledger.computed)
        for edge, value in zip(capture.result_edges, results, strict=True):
            if edge is not None and isinstance(value, torch.Tensor):
                self.remember_storage(edge, value)
        call.inputs.clear()
        return results


class UnfusedCapture(GraphRecording):
    """Compiled code that gives back every op."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the code, record what came on top, and give back what the graph itself gives."""
        program = call.program
        nodes = find_tensor_nodes(call.graph.module)
        results = list(call.graph.code(call.inputs))
        wanted = len(results) - len(nodes)
        copies = {node.name: node for node in program.graph.nodes}
        described: set[OpKey] = set()
        for node, value in zip(nodes, results[wanted:], strict=True):
            edge = program.edges.edge_of(copies[node.name])
            if edge is None or edge.role is not Role.OUTPUT or edge in self._recorded:
                continue
            self._recorded.add(edge)
            maker = program.nodes[edge.op.op]
            reads = program.edges.inputs_of(maker)
            if edge.op not in described:
                described.add(edge.op)
                module, module_type = find_module(maker)
                self.recorder.op(
                    Op(
                        edge.op,
                        op_type(maker),
                        reads,
                        module=module,
                        module_type=module_type,
                        source=find_source_frames(maker),
                    )
                )
            ledger.record_tensor(edge, value, reads)
            self.count_elements(value)
            self.remember_storage(edge, value)
        return results[:wanted]


class Float64Capture(GraphRecording):
    """The ops of the graph in float64, beside an execution that gives what the model expects."""

    def __init__(self, watched: WatchedModel, recorder: Recorder) -> None:
        super().__init__(watched, recorder)
        self._float64_values: dict[int, torch.Tensor] = {}
        """Memory of what a graph gave -> the same in float64, for the graphs that follow."""

    def record(self, call: GraphCall, ledger: CaptureLedger) -> Tree:
        """Run the compiled code for its results, and record float64 values."""
        fed = {
            known.edge: self._float64_values.get(storage_address(value), value)
            for known, value in call.arguments()
            if isinstance(value, torch.Tensor)
            and known.edge is not None
            and known.edge.role is not Role.PARAMETER
        }
        wide = self.watched.evaluator.evaluate_all(call.program, fed, ledger)
        results = call.graph.run_plain(call.inputs)
        for value, (edge, twin) in zip(results, wide, strict=True):
            if edge is None or not isinstance(value, torch.Tensor):
                continue
            if isinstance(twin, torch.Tensor):
                self._float64_values[storage_address(value)] = twin
                self.remember_storage(edge, value)
        self.computed["f64"] += 1
        return results

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output where it is one that a graph gave: Python code knows no twin."""
        if storage_address(value) in self._float64_values:
            super().model_output(position, value, name)

    def final_value(self, value: torch.Tensor) -> torch.Tensor:
        """The twin of a final output."""
        return self._float64_values[storage_address(value)].reshape(value.shape)
