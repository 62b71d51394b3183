"""Follows the calls of the graphs of a compiled model: which graph is called, and with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from syncpoint.run.model import Edge, OpKey, Role
from syncpoint.runtimes.inductor.compile import Compilation, CompiledGraph
from syncpoint.runtimes.inductor.graph import Given, graph_input, program_of
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.evaluate import Evaluator
from syncpoint.runtimes.torch.program import Program
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


def place(value: torch.Tensor) -> int:
    """Where a tensor's memory begins."""
    return value.untyped_storage().data_ptr()
