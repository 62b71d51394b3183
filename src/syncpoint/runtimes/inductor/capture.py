"""What is recorded while the graphs of a compiled model are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, Op, OpKey, Role
from syncpoint.run.recorder import Recorder
from syncpoint.runtimes.inductor.codegen_hooks import Buffer
from syncpoint.runtimes.inductor.compile import Compilation, CompiledGraph
from syncpoint.runtimes.inductor.graph import Given, completed, computed, graph_input, program_of
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.arrays import dtype_name, same_bits
from syncpoint.runtimes.torch.evaluate import Evaluator
from syncpoint.runtimes.torch.ledger import Ledger
from syncpoint.runtimes.torch.node_metadata import frames, module_of
from syncpoint.runtimes.torch.program import Observed, Program
from syncpoint.runtimes.torch.tree_paths import input_path


@dataclass(frozen=True)
class Watched:
    """The model whose execution is followed."""

    model: nn.Module
    names: tuple[str, ...]
    """Of what it takes by position."""
    compilation: Compilation
    evaluator: Evaluator


@dataclass(frozen=True)
class GraphCall:
    """One call of a compiled graph."""

    graph: CompiledGraph
    inputs: list[Any]
    """As the compiled code takes them, which may empty the list."""
    program: Program
    given: Mapping[str, Given]
    """What each placeholder stands for, in their order."""

    def arguments(self) -> Iterator[tuple[Given, Any]]:
        """What each placeholder stands for, with its value."""
        return zip(self.given.values(), self.inputs, strict=True)


class Watch:
    """Follows one execution: tells the graphs apart, and what each of them is given."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.programs: dict[str, Program] = {}
        """Of the graphs in the order they were called."""
        self._several = len(watched.compilation.graphs) > 1
        self._calls: Counter[CompiledGraph] = Counter()
        self._parameters: dict[int, tuple[str, torch.Tensor]] = {}
        self._inputs: dict[int, tuple[str, torch.Tensor]] = {}

    def begin(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """What the model is called with."""
        model = self.watched.model
        for source in (model.named_parameters, model.named_buffers):
            for name, tensor in source():
                self._parameters.setdefault(tensor.data_ptr(), (name, tensor))
        for path, value in pytree.tree_flatten_with_path((args, dict(kwargs)))[0]:
            if isinstance(value, torch.Tensor):
                self._inputs[value.data_ptr()] = (input_path(path, self.watched.names), value)

    def called(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """Learn what the graph is given, then run it."""
        label = self._label(graph)
        names = [n.name for n in graph.module.graph.nodes if n.op == "placeholder"]
        given = {n: self._given(n, v, label) for n, v in zip(names, inputs, strict=True)}
        program = program_of(graph.module, inputs, given, label)
        self.programs[label] = program
        return self.execute(GraphCall(graph, inputs, program, given))

    def execute(self, call: GraphCall) -> Tree:
        """Run the graph; gives its results."""
        return call.graph.plain(call.inputs)

    def _label(self, graph: CompiledGraph) -> str:
        """What this call of the graph is known by: nothing where it is the only one. A graph
        that is called again has ops of the same names, and inputs of its own."""
        calls = self._calls[graph]
        number = list(self._calls).index(graph) if calls else len(self._calls)
        self._calls[graph] += 1
        if calls:
            return f"graph{number}.{calls}"
        return f"graph{number}" if self._several or number else ""

    def _given(self, name: str, value: Any, label: str) -> Given:
        """What a placeholder stands for."""
        if not isinstance(value, torch.Tensor):
            return Given(None)
        found = self._parameters.get(value.data_ptr())
        if found is not None and found[1].shape == value.shape and value.numel():
            return Given(Edge(OpKey(found[0]), role=Role.PARAMETER))
        found = self._inputs.get(value.data_ptr())
        if found is not None and found[1].shape == value.shape:
            return Given(Edge(OpKey(found[0]), role=Role.MODEL_INPUT), found[0])
        return Given(graph_input(name, label))


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
        describe = _Describe(call.program, call.graph)
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


class _Describe:
    """What a buffer is to the graph it was compiled from."""

    def __init__(self, program: Program, graph: CompiledGraph) -> None:
        self._program = program
        self._nodes = {node.name: node for node in program.graph.nodes}
        origins = (computed(program, b.origin) for b in graph.generated.buffers.values())
        self._own = {edge.op.op for edge in origins if edge is not None}
        self._completed = completed(program)

    def op(self, buffer: Buffer, value: torch.Tensor, reads: tuple[Edge, ...]) -> Op:
        key = self._program.edges.key(buffer.name)
        attributes: dict[str, Any] = {"kernel": buffer.kernel}
        made = self._made(buffer, value)
        kind = buffer.kernel
        if made is not None:
            attributes |= {"value_of": made.op.op, "output": made.index}
            # What is inside an op of the model must not be taken for an op of its own kind.
            kind = self._completed.get(made.op.op, buffer.kernel)
        hidden = [n for n in buffer.computes if n not in self._own]
        if hidden:
            attributes["computes"] = hidden
        node = self._nodes.get(buffer.origin) or next(
            (self._nodes[n] for n in reversed(buffer.origins) if n in self._nodes), None
        )
        if node is None:
            return Op(key, kind, reads, attributes=attributes)
        module, module_type = module_of(node)
        return Op(
            key,
            kind,
            reads,
            attributes=attributes,
            module=module,
            module_type=module_type,
            source=frames(node),
        )

    def _made(self, buffer: Buffer, value: torch.Tensor) -> Edge | None:
        """The op whose value the buffer holds. Inductor's word is taken only where number of
        elements and type agree: partial sums and the like carry the node of the whole."""
        made = computed(self._program, buffer.origin)
        if made is None or made.role is not Role.OUTPUT:
            return None
        expected = self._program.expected(made)
        if expected is None or expected.dtype != value.dtype or not _same_count(expected, value):
            return None
        return made


def _same_count(expected: torch.Tensor, value: torch.Tensor) -> bool:
    if any(type(n) is not int for n in expected.shape):
        return True
    return expected.numel() == value.numel()


def place(value: torch.Tensor) -> int:
    """Where a tensor's memory begins."""
    return value.untyped_storage().data_ptr()
