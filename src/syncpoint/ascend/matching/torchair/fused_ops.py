"""Split the name of a fused GE op into its parts, list the inputs from outside, and find the FX
node and output that a GE op stands for.

The compiler names a fused op by the names of its parts in a row: `Add_1Relu_2`.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.graph_text import DynamoGraph, GraphOp


@dataclass(frozen=True)
class ExternalInput:
    """An input of a fused op that is not the output of one of its parts."""

    op: GraphOp
    """The part that reads it."""
    index: int
    """Which input of that part it is."""


class GraphNames:
    """The ops of a graph by the names that files have."""

    def __init__(self, graph: DynamoGraph) -> None:
        self.graph = graph
        self._op_by_file_name: dict[str, GraphOp | None] = {}
        """None for a file name that two ops have."""
        for op in graph.ops.values():
            name = escape_name(op.name)
            self._op_by_file_name[name] = None if name in self._op_by_file_name else op
        lengths = {len(name) for name in self._op_by_file_name if name}
        self._lengths = sorted(lengths, reverse=True)

    def find(self, name: str) -> GraphOp | None:
        """The op of exactly this name."""
        return self.graph.ops.get(name) or self._op_by_file_name.get(escape_name(name))

    def parts(self, name: str) -> tuple[GraphOp, ...]:
        """The ops whose names in a row are this name; () if it cannot be split into such names.

        The longest name is tried first, and a shorter one only if that leads to no result.
        """
        op = self.find(name)
        if op is not None:
            return (op,)
        text = escape_name(name)
        dead_ends: set[int] = set()
        steps: list[tuple[int, GraphOp, int]] = []
        position, first_length = 0, 0
        while position < len(text):
            step = None
            if position not in dead_ends:
                step = self._next_part(text, position, first_length)
            if step is not None:
                length_index, op, end = step
                steps.append((position, op, length_index))
                position, first_length = end, 0
                continue
            dead_ends.add(position)
            if not steps:
                return ()
            position, _, length_index = steps.pop()
            first_length = length_index + 1
        return tuple(op for _, op, _ in steps)

    def _next_part(
        self, text: str, position: int, first_length: int
    ) -> tuple[int, GraphOp, int] | None:
        """The op whose name starts at a position: index of its length, op, and end of the name."""
        for length_index in range(first_length, len(self._lengths)):
            end = position + self._lengths[length_index]
            op = self._op_by_file_name.get(text[position:end]) if end <= len(text) else None
            if op is not None:
                return length_index, op, end
        return None


def external_inputs(parts: tuple[GraphOp, ...]) -> list[ExternalInput]:
    """The inputs of a fused op, in the order of its parts."""
    names = {op.name for op in parts}
    return [
        ExternalInput(op, index)
        for op in parts
        for index, (producer, _) in enumerate(op.inputs)
        if producer not in names
    ]


def fx_output(op: GraphOp, index: int) -> tuple[str, int] | None:
    """The FX node and output that an output of an op is; None if the graph does not say."""
    label = op.outputs[index] if index < len(op.outputs) else ""
    if label:
        node, _, number = label.rpartition(".OUTPUT.")
        if node and number.isascii() and number.isdecimal() and len(number) < 10:
            return node, int(number)
        return None
    nodes = fx_nodes(op)
    return (nodes[0], index) if len(nodes) == 1 and len(op.outputs) <= 1 else None


def fx_nodes(op: GraphOp) -> list[str]:
    """The FX nodes that the outputs of an op name, each once."""
    nodes = (label.rpartition(".OUTPUT.")[0] for label in op.outputs)
    return list(dict.fromkeys(node for node in nodes if node))
