"""Describe a buffer of compiled code: the op whose value it holds (also behind views), its module
and source lines."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from syncpoint.run.model import Edge, Op, Role
from syncpoint.runtimes.inductor.codegen_hooks import Buffer
from syncpoint.runtimes.inductor.compile import CompiledGraph
from syncpoint.runtimes.inductor.graph import aten
from syncpoint.runtimes.torch.node_metadata import find_module, find_source_frames
from syncpoint.runtimes.torch.program import TorchProgram

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
"""Ops that change neither values nor their order; expand counts if it adds no elements."""


def find_computed_edge(program: TorchProgram, name: str) -> Edge | None:
    """The edge of the op whose value a node has: itself, or the op behind a chain of views."""
    node_by_name = {node.name: node for node in program.graph.nodes}
    node = node_by_name.get(name)
    while node is not None and node.target in _VIEWS:
        source = node.args[0]
        assert isinstance(source, Node)
        source_value, view_value = source.meta.get("val"), node.meta.get("val")
        if not isinstance(source_value, torch.Tensor) or not isinstance(view_value, torch.Tensor):
            break
        if source_value.numel() != view_value.numel():
            break
        node = source
    return None if node is None else program.edges.edge_of(node)


def find_completed_ops(program: TorchProgram) -> dict[str, str]:
    """Node -> the op of the model that it completes.

    Of the nodes that one op was decomposed into, the last computing one has the value of the op;
    the others are inside the op.
    """
    last_nodes: dict[tuple[Any, ...], Node] = {}
    for node in program.graph.nodes:
        original = node.meta.get("original_aten")
        if node.op != "call_function" or original is None or node.target in _VIEWS:
            continue
        if node.target is operator.getitem:
            continue  # it picks an output of an op, and computes nothing
        made_from = tuple(source.name for source in node.meta.get("from_node") or ())[:1]
        call = (str(original), made_from, node.meta.get("seq_nr"), node.meta.get("stack_trace"))
        last_nodes[call] = node
    return {node.name: str(node.meta["original_aten"]) for node in last_nodes.values()}


class BufferDescriber:
    """Describes buffers as ops of the graph they were compiled from."""

    def __init__(self, program: TorchProgram, graph: CompiledGraph) -> None:
        self._program = program
        self._nodes = {node.name: node for node in program.graph.nodes}
        origins = (find_computed_edge(program, b.origin) for b in graph.generated.buffers.values())
        self._buffer_ops = {edge.op.op for edge in origins if edge is not None}
        self._completed = find_completed_ops(program)

    def describe_buffer(self, buffer: Buffer, value: torch.Tensor, inputs: tuple[Edge, ...]) -> Op:
        """The op that represents a buffer in the run."""
        key = self._program.edges.op_key(buffer.name)
        attributes: dict[str, Any] = {"kernel": buffer.kernel}
        held_edge = self._find_held_op(buffer, value)
        op_type = buffer.kernel
        if held_edge is not None:
            attributes |= {"value_of": held_edge.op.op, "output": held_edge.index}
            # A node inside an op of the model must not look like an op of its own type.
            if held_edge.index == 0:  # other outputs of an op must not look like its first
                op_type = self._completed.get(held_edge.op.op, buffer.kernel)
        hidden_nodes = [n for n in buffer.computes if n not in self._buffer_ops]
        if hidden_nodes:
            attributes["computes"] = hidden_nodes
        node = self._nodes.get(buffer.origin) or next(
            (self._nodes[n] for n in reversed(buffer.origins) if n in self._nodes), None
        )
        if node is None:
            return Op(key, op_type, inputs, attributes=attributes)
        module, module_type = find_module(node)
        return Op(
            key,
            op_type,
            inputs,
            attributes=attributes,
            module=module,
            module_type=module_type,
            source=find_source_frames(node),
        )

    def _find_held_op(self, buffer: Buffer, value: torch.Tensor) -> Edge | None:
        """The op whose value the buffer holds.

        The node that inductor names is used only if element count and dtype agree: a partial sum
        carries the node of the full sum.
        """
        held_edge = find_computed_edge(self._program, buffer.origin)
        if held_edge is None or held_edge.role is not Role.OUTPUT:
            return None
        expected = self._program.expected_tensor(held_edge)
        if (
            expected is None
            or expected.dtype != value.dtype
            or not _has_same_count(expected, value)
        ):
            return None
        return held_edge


def _has_same_count(expected: torch.Tensor, value: torch.Tensor) -> bool:
    if any(type(n) is not int for n in expected.shape):
        return True
    return expected.numel() == value.numel()
