"""Which ops of the original graph a dumped op stands for, told by its name.

An op that the compiler made of several others is called by their names in a row: `Add_1Relu_2`.
"""

from __future__ import annotations

from dataclasses import dataclass

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.graph_text import DynamoGraph, GraphOp


@dataclass(frozen=True)
class Outside:
    """An input of a fused op that none of its parts makes."""

    op: GraphOp
    """The part that reads it."""
    place: int
    """Which of that part's inputs it is."""


class GraphNames:
    """The ops of a graph by the names that files have."""

    def __init__(self, graph: DynamoGraph) -> None:
        self.graph = graph
        self._written: dict[str, GraphOp | None] = {}
        for op in graph.ops.values():
            name = escape_name(op.name)
            # None: two ops are written alike, and which of them is meant cannot be told.
            self._written[name] = None if name in self._written else op
        self._lengths = sorted({len(name) for name in self._written if name}, reverse=True)

    def find(self, name: str) -> GraphOp | None:
        """The op of this very name."""
        return self.graph.ops.get(name) or self._written.get(escape_name(name))

    def parts(self, name: str) -> tuple[GraphOp, ...]:
        """The ops whose names in a row are this one; () where it cannot be made of such names.

        The longest name is tried first, and a shorter one only where that leads nowhere.
        """
        found = self.find(name)
        if found is not None:
            return (found,)
        text = escape_name(name)
        dead: set[int] = set()
        taken: list[tuple[int, GraphOp, int]] = []
        at, least = 0, 0
        while at < len(text):
            step = None if at in dead else self._step(text, at, least)
            if step is not None:
                place, op, end = step
                taken.append((at, op, place))
                at, least = end, 0
                continue
            dead.add(at)
            if not taken:
                return ()
            at, _, place = taken.pop()
            least = place + 1
        return tuple(op for _, op, _ in taken)

    def _step(self, text: str, at: int, least: int) -> tuple[int, GraphOp, int] | None:
        for place in range(least, len(self._lengths)):
            end = at + self._lengths[place]
            op = self._written.get(text[at:end]) if end <= len(text) else None
            if op is not None:
                return place, op, end
        return None


def outside_inputs(parts: tuple[GraphOp, ...]) -> list[Outside]:
    """What a fused op reads, in the order of its parts."""
    inside = {op.name for op in parts}
    return [
        Outside(op, place)
        for op in parts
        for place, (producer, _) in enumerate(op.inputs)
        if producer not in inside
    ]


def fx_output(op: GraphOp, index: int) -> tuple[str, int] | None:
    """The FX node and output that an output of an op is; None where the graph does not say."""
    said = op.outputs[index] if index < len(op.outputs) else ""
    if said:
        node, _, number = said.rpartition(".OUTPUT.")
        if node and number.isascii() and number.isdecimal() and len(number) < 10:
            return node, int(number)
        return None
    nodes = fx_nodes(op)
    return (nodes[0], index) if len(nodes) == 1 and len(op.outputs) <= 1 else None


def fx_nodes(op: GraphOp) -> list[str]:
    """The FX nodes that the outputs of an op name, each once."""
    found = (said.rpartition(".OUTPUT.")[0] for said in op.outputs)
    return list(dict.fromkeys(node for node in found if node))
