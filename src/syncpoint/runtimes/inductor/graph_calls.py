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
from syncpoint.runtimes.inductor.graph import (
    PlaceholderSource,
    graph_input_edge,
    make_graph_program,
)
from syncpoint.runtimes.protocol import Tree
from syncpoint.runtimes.torch.evaluate import TorchEvaluator
from syncpoint.runtimes.torch.program import TorchProgram
from syncpoint.runtimes.torch.tree_paths import input_path


@dataclass(frozen=True)
class WatchedModel:
    """The model whose execution is followed."""

    model: nn.Module
    names: tuple[str, ...]
    """Of what it takes by position."""
    compilation: Compilation
    evaluator: TorchEvaluator


@dataclass(frozen=True)
class GraphCall:
    """One call of a compiled graph."""

    graph: CompiledGraph
    inputs: list[Any]
    """As the compiled code takes them, which may empty the list."""
    program: TorchProgram
    sources: Mapping[str, PlaceholderSource]
    """What each placeholder stands for, in their order."""

    def arguments(self) -> Iterator[tuple[PlaceholderSource, Any]]:
        """What each placeholder stands for, with its value."""
        return zip(self.sources.values(), self.inputs, strict=True)


class GraphWatch:
    """Follows one execution: tells the graphs apart, and what each of them is given."""

    def __init__(self, watched: WatchedModel) -> None:
        self.watched = watched
        self.programs: dict[str, TorchProgram] = {}
        """Of the graphs in the order they were called."""
        self._has_several_graphs = len(watched.compilation.graphs) > 1
        self._call_counts: Counter[CompiledGraph] = Counter()
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

    def on_graph_call(self, graph: CompiledGraph, inputs: list[Any]) -> Tree:
        """Learn what the graph is given, then run it."""
        label = self._name_call(graph)
        names = [n.name for n in graph.module.graph.nodes if n.op == "placeholder"]
        given = {n: self._find_source(n, v, label) for n, v in zip(names, inputs, strict=True)}
        program = make_graph_program(graph.module, inputs, given, label)
        self.programs[label] = program
        return self.execute(GraphCall(graph, inputs, program, given))

    def execute(self, call: GraphCall) -> Tree:
        """Run the graph; gives its results."""
        return call.graph.run_plain(call.inputs)

    def _name_call(self, graph: CompiledGraph) -> str:
        """What this call of the graph is known by: nothing where it is the only one. A graph
        that is called again has ops of the same names, and inputs of its own."""
        calls = self._call_counts[graph]
        number = list(self._call_counts).index(graph) if calls else len(self._call_counts)
        self._call_counts[graph] += 1
        if calls:
            return f"graph{number}.{calls}"
        return f"graph{number}" if self._has_several_graphs or number else ""

    def _find_source(self, name: str, value: Any, label: str) -> PlaceholderSource:
        """What a placeholder stands for."""
        if not isinstance(value, torch.Tensor):
            return PlaceholderSource(None)
        found = self._parameters.get(value.data_ptr())
        if found is not None and found[1].shape == value.shape and value.numel():
            return PlaceholderSource(Edge(OpKey(found[0]), role=Role.PARAMETER))
        found = self._inputs.get(value.data_ptr())
        if found is not None and found[1].shape == value.shape:
            return PlaceholderSource(Edge(OpKey(found[0]), role=Role.MODEL_INPUT), found[0])
        return PlaceholderSource(graph_input_edge(name, label))


def storage_address(value: torch.Tensor) -> int:
    """Where a tensor's memory begins."""
    return value.untyped_storage().data_ptr()
