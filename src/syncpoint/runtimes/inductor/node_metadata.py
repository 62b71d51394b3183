"""What a buffer of compiled code holds: the op, the module and the source lines it comes from."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from syncpoint.run.model import Edge, Op, Role
from syncpoint.runtimes.inductor.codegen_hooks import Buffer
from syncpoint.runtimes.inductor.compile import CompiledGraph
from syncpoint.runtimes.inductor.graph import aten
from syncpoint.runtimes.torch.node_metadata import frames, module_of
from syncpoint.runtimes.torch.program import Program

_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.expand.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze.default,
    aten.unsqueeze.default,
    aten.alias.default,
    aten.detach.default,
}
"""Ops that change neither values nor their order, expanding by nothing included."""


def computed(program: Program, name: str) -> Edge | None:
    """The op whose value a node has: itself, or the one behind a chain of views."""
    named = {node.name: node for node in program.graph.nodes}
    node = named.get(name)
    while node is not None and node.target in _VIEWS:
        before = node.args[0]
        assert isinstance(before, Node)
        value, wider = before.meta.get("val"), node.meta.get("val")
        if not isinstance(value, torch.Tensor) or not isinstance(wider, torch.Tensor):
            break
        if value.numel() != wider.numel():
            break
        node = before
    return None if node is None else program.edges.of(node)


def completed(program: Program) -> dict[str, str]:
    """Node -> the op of the model it completes, where it does. Of the nodes that one op was
    decomposed into, the last that computes anything has its value; the others are inside."""
    last: dict[tuple[Any, ...], Node] = {}
    for node in program.graph.nodes:
        original = node.meta.get("original_aten")
        if node.op != "call_function" or original is None or node.target in _VIEWS:
            continue
        made_from = tuple(source.name for source in node.meta.get("from_node") or ())[:1]
        call = (str(original), made_from, node.meta.get("seq_nr"), node.meta.get("stack_trace"))
        last[call] = node
    return {node.name: str(node.meta["original_aten"]) for node in last.values()}


class BufferDescriber:
    """What a buffer is to the graph it was compiled from."""

    def __init__(self, program: Program, graph: CompiledGraph) -> None:
        self._program = program
        self._nodes = {node.name: node for node in program.graph.nodes}
        origins = (computed(program, b.origin) for b in graph.generated.buffers.values())
        self._own = {edge.op.op for edge in origins if edge is not None}
        self._completed = completed(program)

    def op(self, buffer: Buffer, value: torch.Tensor, reads: tuple[Edge, ...]) -> Op:
        """The op that stands for a buffer in the run."""
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
