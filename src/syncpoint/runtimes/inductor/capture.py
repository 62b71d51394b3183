"""What is recorded while the graphs of a compiled model are called."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.codegen_hooks import Buffer
from syncpoint.runtimes.inductor.compile import tensor_nodes
from syncpoint.runtimes.inductor.graph_calls import GraphCall, Watch, Watched, place
from syncpoint.runtimes.inductor.node_metadata import BufferDescriber
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name, same_bits
from syncpoint.runtimes.torch.capture import Capture
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.node_metadata import frames, module_of, type_of
from syncpoint.runtimes.torch.program import Observed


class Recording(Watch):
    """A watch that records what it sees."""

    def __init__(self, watched: Watched, recorder: Recorder) -> None:
        super().__init__(watched)
        self.recorder = recorder
        self.computed: Counter[str] = Counter()
        """Elements computed, by floating-point type."""
        self._ledgers: dict[str, Ledger] = {}
        self._recorded: set[Edge] = set()
        self._places: dict[int, Edge] = {}
        """Memory -> the tensor that was last written there."""

    def execute(self, call: GraphCall) -> Tree:
        """Record what the graph is given and what it computes."""
        ledger = Ledger(call.program.observed, self.recorder)
        self._ledgers[call.program.edges.graph] = ledger
        for known, value in call.arguments():
            edge = known.edge
            if edge is None or edge.role is Role.PARAMETER or edge in self._recorded:
                continue
            self._recorded.add(edge)
            if edge.role is Role.INPUT:
                self.recorder.op(Op(edge.op, "graph input"))
            ledger.tensor(edge, value, name=known.path)
            self.written(edge, value)
        for edge, value in call.program.parameters():
            if edge not in self._recorded:
                self._recorded.add(edge)
                ledger.parameter(edge, value)
        return self.record(call, ledger)

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Run the graph and record what it computes."""
        raise NotImplementedError

    def written(self, edge: Edge, value: torch.Tensor) -> None:
        """Remember where a tensor is."""
        self._places[place(value)] = edge

    def count(self, value: torch.Tensor) -> None:
        """Count what was computed, by its type."""
        if value.is_floating_point():
            self.computed[dtype_name(value.dtype)] += value.numel()

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output under the op that made it."""
        edge = self._places.get(place(value))
        if edge is None:
            # Made by Python code between or after the graphs.
            edge = Edge(self.recorder.op(Op(OpKey(f"output_{position}"), "python")))
        ledger = self._ledgers.get(edge.op.graph) or Ledger(Observed(), self.recorder)
        ledger.model_output(edge, position, self.final(value), name)

    def final(self, value: torch.Tensor) -> torch.Tensor:
        """What is recorded for a final output."""
        return value


class Buffers(Recording):
    """The buffers of compiled code, as it is executed."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Run the compiled code under torch's hook for intermediate values."""
        from torch._inductor.hooks import intermediate_hook

        edges: dict[str, Edge] = {n: g.edge for n, g in call.given.items() if g.edge is not None}
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
            described = describe.op(buffer, value, reads)
            if "value_of" not in described.attributes:
                copied = _copied(value, [(e, held[e]) for e in reads if e in held])
                described = replace(described, attributes={**described.attributes, **copied})
            edge = Edge(self.recorder.op(described))
            ledger.tensor(edge, value, reads)
            edges[name] = edge
            self.recorded(edge, value)

        with intermediate_hook(seen):
            return call.graph.code(call.inputs)

    def recorded(self, edge: Edge, value: torch.Tensor) -> None:
        """A buffer was recorded."""
        self.written(edge, value)
        self.count(value)


def _copied(value: torch.Tensor, inputs: list[tuple[Edge, Any]]) -> dict[str, Any]:
    """Whether the buffer has the bits of what the graph was given, in a layout of its own."""
    for edge, given in inputs:
        if isinstance(given, torch.Tensor) and same_bits(given, value):
            return {"copy_of": edge.op.op}
    return {}


class OpByOp(Recording):
    """The ops of the graph, one by one, by eager kernels."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Interpret the graph."""
        fed = [
            value
            for known, value in call.arguments()
            if known.edge is None or known.edge.role is not Role.PARAMETER
        ]
        program = call.program
        assert program.module is not None
        capture = Capture(ledger, program, program.module, program.edges)
        results = capture.run(*fed, enable_io_processing=False)
        self.computed.update(ledger.computed)
        for edge, value in zip(capture.results, results, strict=True):
            if edge is not None and isinstance(value, torch.Tensor):
                self.written(edge, value)
        call.inputs.clear()
        return results


class Unfused(Recording):
    """Compiled code that gives back every op."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Run the code, record what came on top, and give back what the graph itself gives."""
        program = call.program
        nodes = tensor_nodes(call.graph.module)
        results = list(call.graph.code(call.inputs))
        wanted = len(results) - len(nodes)
        copies = {node.name: node for node in program.graph.nodes}
        described: set[OpKey] = set()
        for node, value in zip(nodes, results[wanted:], strict=True):
            edge = program.edges.of(copies[node.name])
            if edge is None or edge.role is not Role.OUTPUT or edge in self._recorded:
                continue
            self._recorded.add(edge)
            maker = program.nodes[edge.op.op]
            reads = program.edges.inputs(maker)
            if edge.op not in described:
                described.add(edge.op)
                module, module_type = module_of(maker)
                self.recorder.op(
                    Op(
                        edge.op,
                        type_of(maker),
                        reads,
                        module=module,
                        module_type=module_type,
                        source=frames(maker),
                    )
                )
            ledger.tensor(edge, value, reads)
            self.count(value)
            self.written(edge, value)
        return results[:wanted]


class Wide(Recording):
    """The ops of the graph in float64, beside an execution that gives what the model expects."""

    def __init__(self, watched: Watched, recorder: Recorder) -> None:
        super().__init__(watched, recorder)
        self._twins: dict[int, torch.Tensor] = {}
        """Memory of what a graph gave -> the same in float64, for the graphs that follow."""

    def record(self, call: GraphCall, ledger: Ledger) -> Tree:
        """Run the compiled code for its results, and record float64 values."""
        fed = {
            known.edge: self._twins.get(place(value), value)
            for known, value in call.arguments()
            if isinstance(value, torch.Tensor)
            and known.edge is not None
            and known.edge.role is not Role.PARAMETER
        }
        wide = self.watched.evaluator.run_all(call.program, fed, ledger)
        results = call.graph.plain(call.inputs)
        for value, (edge, twin) in zip(results, wide, strict=True):
            if edge is None or not isinstance(value, torch.Tensor):
                continue
            if isinstance(twin, torch.Tensor):
                self._twins[place(value)] = twin
                self.written(edge, value)
        self.computed["f64"] += 1
        return results

    def model_output(self, position: int, value: torch.Tensor, name: str) -> None:
        """Record a final output where it is one that a graph gave: Python code knows no twin."""
        if place(value) in self._twins:
            super().model_output(position, value, name)

    def final(self, value: torch.Tensor) -> torch.Tensor:
        """The twin of a final output."""
        return self._twins[place(value)].reshape(value.shape)
