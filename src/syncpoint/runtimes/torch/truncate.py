"""Cut a PyTorch program at a chosen node, and run (plain or compiled) or save the cut program, as
bisection needs."""

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
from syncpoint.runtimes.inductor.config import parse_inductor_config
from syncpoint.runtimes.protocol import Array, Inputs
from syncpoint.runtimes.torch.arrays import to_numpy
from syncpoint.runtimes.torch.program import TorchProgram
from syncpoint.runtimes.torch.session import TorchSession
from syncpoint.runtimes.torch.silence import silence_torch


class TorchCutter:
    """Cuts one program; the guide session has run its ops one by one."""

    def __init__(self, guide: TorchSession, compiles: bool, options: Mapping[str, Any]) -> None:
        self._session = guide
        self._compiles = compiles
        self._options = options

    def run(self, edges: Sequence[Edge], inputs: Inputs, part: Part) -> list[Array | None]:
        """The values at these edges, computed by the cut program; None where not a tensor."""
        cut = self._cut(edges, part)
        with self._session.options_in_effect(), silence_torch():
            try:
                outputs = self._compile_if_needed(cut)(*self._session.bind_leaves(inputs))
            except Exception as error:
                raise CaptureError(
                    f"the cut program does not run: {one_line(error)}",
                    cure="cut at another op",
                ) from error
        return [to_numpy(v) if isinstance(v, torch.Tensor) else None for v in outputs]

    def save(self, edges: Sequence[Edge], inputs: Inputs, part: Part, path: Path) -> Path:
        """Save the cut program as .pt2."""
        output_path = path.with_suffix(".pt2")
        with (
            output_files(output_path) as folder,
            self._session.options_in_effect(),
            silence_torch(),
        ):
            leaves = tuple(self._session.bind_leaves(inputs))
            try:
                exported = torch.export.export(self._cut(edges, part), leaves)
                torch.export.save(exported, folder / output_path.name)
            except Exception as error:
                raise CaptureError(
                    f"the cut program cannot be exported: {one_line(error)}",
                    cure="cut at another op",
                ) from error
        return output_path

    def _compile_if_needed(self, cut: GraphModule) -> Any:
        if not self._compiles:
            return cut
        backend = self._options["backend"]
        config = parse_inductor_config(self._options) if backend == "inductor" else None
        # After too many recompilations torch runs code uncompiled; a reset prevents that.
        torch._dynamo.reset()
        return torch.compile(cut, backend=backend, options=config)

    def _cut(self, edges: Sequence[Edge], part: Part) -> GraphModule:
        program = self._session.program_of(part)
        if program is None or program.module is None:
            raise Unsupported(
                "the model cannot be cut, because torch.export cannot export it",
                cure="bisect an exported part of it",
            )
        graph = Graph()
        last_position = max(self._find_position(program, edge) for edge in edges)
        copies: dict[Node, Node] = {}
        for position, node in enumerate(program.graph.nodes):
            if node.op == "output" or (position > last_position and node.op != "placeholder"):
                continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(_output_node(graph, program, copies, edge) for edge in edges))
        graph.eliminate_dead_code()
        return GraphModule(program.module, graph)

    def _find_position(self, program: TorchProgram, edge: Edge) -> int:
        node = program.nodes.get(edge.op.op)
        if node is None or edge.op.path:
            raise Unsupported(
                f"cannot cut at {edge.op}: it is inside another op",
                cure="cut at the op around it",
            )
        return list(program.graph.nodes).index(node)


def _output_node(
    graph: Graph, program: TorchProgram, copies: Mapping[Node, Node], edge: Edge
) -> Node:
    node = program.nodes[edge.op.op]
    copied_node = copies[node]
    if isinstance(node.meta.get("val"), tuple | list):
        return graph.call_function(operator.getitem, (copied_node, edge.index))
    return copied_node
