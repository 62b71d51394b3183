"""A PyTorch program that ends at a chosen node, run plainly or compiled as the whole one is."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from syncpoint.errors import CaptureError, Unsupported
from syncpoint.files.outputs import output_files
from syncpoint.run.model import Edge, Part
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.inductor.config import inductor_config
from syncpoint.runtimes.protocol import Array, Inputs
from syncpoint.runtimes.torch.arrays import to_numpy
from syncpoint.runtimes.torch.program import Program
from syncpoint.runtimes.torch.session import TorchSession
from syncpoint.runtimes.torch.silence import silence_torch


class TorchCutter:
    """Cuts one program; the guide is a run of its ops one by one."""

    def __init__(self, guide: TorchSession, compiles: bool, options: Mapping[str, Any]) -> None:
        self._session = guide
        self._compiles = compiles
        self._options = options

    def run(self, edges: Sequence[Edge], inputs: Inputs, part: Part) -> list[Array | None]:
        """What the program gives when it ends in these values; None for what is no tensor."""
        cut = self._cut(edges, part)
        with self._session.in_effect(), silence_torch():
            try:
                found = self._callable(cut)(*self._session.leaves(inputs))
            except Exception as error:
                raise CaptureError("the cut program to run", one_line(error)) from error
        return [to_numpy(v) if isinstance(v, torch.Tensor) else None for v in found]

    def save(self, edges: Sequence[Edge], inputs: Inputs, part: Part, path: Path) -> Path:
        """Keep the cut program."""
        made = path.with_suffix(".pt2")
        with output_files(made) as folder, self._session.in_effect(), silence_torch():
            leaves = tuple(self._session.leaves(inputs))
            try:
                exported = torch.export.export(self._cut(edges, part), leaves)
                torch.export.save(exported, folder / made.name)
            except Exception as error:
                raise CaptureError("the cut program to be exported", one_line(error)) from error
        return made

    def _callable(self, cut: GraphModule) -> Any:
        if not self._compiles:
            return cut
        backend = self._options["backend"]
        config = inductor_config(self._options) if backend == "inductor" else None
        # torch gives up on code that it compiled too often, and then runs it uncompiled.
        torch._dynamo.reset()
        return torch.compile(cut, backend=backend, options=config)

    def _cut(self, edges: Sequence[Edge], part: Part) -> GraphModule:
        program = self._session.program_of(part)
        if program is None or program.module is None:
            raise Unsupported(
                "a model that torch.export takes, to be cut",
                "one that is recorded while it runs",
                "bisect an exported part of it",
            )
        graph = Graph()
        last = max(self._at(program, edge) for edge in edges)
        copies: dict[Node, Node] = {}
        for at, node in enumerate(program.graph.nodes):
            if node.op == "output" or (at > last and node.op != "placeholder"):
                continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(_value(graph, program, copies, edge) for edge in edges))
        graph.eliminate_dead_code()
        return GraphModule(program.module, graph)

    def _at(self, program: Program, edge: Edge) -> int:
        node = program.nodes.get(edge.op.op)
        if node is None or edge.op.path:
            raise Unsupported("an op of the program itself", f"{edge.op}, which is inside another")
        return list(program.graph.nodes).index(node)


def _value(graph: Graph, program: Program, copies: Mapping[Node, Node], edge: Edge) -> Node:
    node = program.nodes[edge.op.op]
    made = copies[node]
    if isinstance(node.meta.get("val"), tuple | list):
        return graph.call_function(operator.getitem, (made, edge.index))
    return made
