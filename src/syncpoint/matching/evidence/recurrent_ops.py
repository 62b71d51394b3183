"""The recurrent ops of a run (LSTM, GRU, RNN): which layers each one computes, and the axes of its
outputs.

PyTorch has one op for all layers of a module; its result has the directions side by side, `t b dh`.
ONNX has one op for each layer; its result has an axis for the direction, `t d b h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from syncpoint.matching.graph import Slot, SlotGraph
from syncpoint.matching.op_kinds import op_kind
from syncpoint.matching.views import View
from syncpoint.run.model import Op, Role, Tensor

_FAMILIES = {
    **dict.fromkeys(("lstm", "dynamicquantizelstm"), "lstm"),
    "gru": "gru",
    **dict.fromkeys(("rnn", "rnn_tanh", "rnn_relu"), "rnn"),
}
RESULT = 0
"""Index of the output that holds every step; those after it are the states after the last step."""


@dataclass(frozen=True, kw_only=True)
class RecurrentOp:
    """One recurrent op, and what is known of its layers."""

    position: int
    op: Op
    family: str
    layers: int
    directions: int
    is_stack: bool
    """Whether it computes all layers of a module, with the directions side by side."""
    axes: str
    """The axes of its result: t(ime), b(atch), d(irection), h(idden)."""
    sizes: tuple[int, ...]
    """Their lengths, in the same order."""

    @property
    def signature(self) -> tuple[object, ...]:
        """What two forms of one layer have in common."""
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        return (self.family, self.directions, *(sizes[axis] for axis in "tbh"))

    def output(self, index: int) -> Slot:
        """An output of the op."""
        return Slot(self.op.key, index)


def is_recurrent(op: Op) -> bool:
    """Whether an op is a recurrent layer or several of them."""
    return op_kind(op.type) in _FAMILIES


def recurrent_ops(graph: SlotGraph) -> list[RecurrentOp]:
    """The recurrent ops of a run in order, without those whose outputs have unusual axes."""
    ops = []
    for position, op in enumerate(graph.ops):
        family = _FAMILIES.get(op_kind(op.type))
        if family is not None and (described := _describe(graph, position, op, family)):
            ops.append(described)
    return ops


def _describe(graph: SlotGraph, position: int, op: Op, family: str) -> RecurrentOp | None:
    """What an op computes, by its attributes and the shapes of its outputs; None if they do not
    tell, as for sequences that are packed without padding."""
    attributes = op.attributes
    shapes = {slot.index: graph.shape(slot) or () for slot in graph.outputs(position)}
    state = shapes.get(RESULT + 1, ())
    result = shapes.get(RESULT, ())
    sizes: tuple[int, ...] = result
    expected: tuple[int, ...]
    if "num_layers" in attributes:
        layers = int(str(attributes["num_layers"]))
        directions = 2 if attributes.get("bidirectional") is True else 1
        axes = "btdh" if attributes.get("batch_first") is True else "tbdh"
        if len(result) != 3 or result[-1] % directions:
            return None
        sizes = (*result[:2], directions, result[-1] // directions)
        expected = (layers * directions, sizes[axes.index("b")], sizes[-1])
    elif "hidden_size" in attributes:
        layers = 1
        directions = 2 if attributes.get("direction") == "bidirectional" else 1
        axes = "btdh" if attributes.get("layout") == 1 else "tdbh"
        if len(sizes) != 4 or sizes[axes.index("d")] != directions:
            return None
        expected = tuple(sizes[axes.index(axis)] for axis in axes if axis != "t")
    else:
        return None
    if state and state != expected:
        return None
    is_stack = "num_layers" in attributes
    return RecurrentOp(
        position=position,
        op=op,
        family=family,
        layers=layers,
        directions=directions,
        is_stack=is_stack,
        axes=axes,
        sizes=sizes,
    )


def chains_of_layers(graph: SlotGraph, ops: list[RecurrentOp]) -> list[list[RecurrentOp]]:
    """Ops of one layer each, grouped so that each one reads the result of the one before it."""
    chains: list[list[RecurrentOp]] = []
    last: dict[Slot, list[RecurrentOp]] = {}
    for op in ops:
        reads = graph.reads[op.position]
        chain = last.pop(graph.root(reads[0]), None) if reads else None
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(op)
        last[op.output(RESULT)] = chain
    return chains


def result_view(target: RecurrentOp, reference: RecurrentOp) -> View:
    """The view from the result of one op to that of the other, by their axes; empty if the order of
    elements is the same."""
    long_axes = [
        [axis for axis, size in zip(op.axes, op.sizes, strict=True) if size > 1]
        for op in (target, reference)
    ]
    if long_axes[0] == long_axes[1]:
        return View()
    steps = []
    if target.is_stack:
        steps.append(f"reshape({_listed(target.sizes)})")
    steps.append(f"transpose({_listed(target.axes.index(axis) for axis in reference.axes)})")
    if reference.is_stack:
        shape = (*reference.sizes[:2], prod(reference.sizes[2:]))
        steps.append(f"reshape({_listed(shape)})")
    return View(" ".join(steps))


def state_view(target: RecurrentOp, reference: RecurrentOp) -> View:
    """The view between the states of one layer after the last step."""
    orders = [[a for a in op.axes if a in "db"] for op in (target, reference)]
    for order, op in zip(orders, (target, reference), strict=True):
        if op.is_stack:
            order.sort(reverse=True)
    return View() if orders[0] == orders[1] else View("transpose(1,0,2)")


def _listed(numbers: object) -> str:
    return ",".join(map(str, numbers))  # type: ignore[call-overload]


def recurrent_weights(graph: SlotGraph, op: RecurrentOp) -> list[Tensor]:
    """The weights by which the first layer of an op reads its own state, one for each direction or
    for both; empty if they were not recorded."""
    recorded = {t.key.op: t for t in graph.side.others if t.key.role is Role.PARAMETER}
    edges = [edge.op for edge in op.op.inputs if edge.role is Role.PARAMETER]
    parameters = [recorded[key] for key in edges if key in recorded]
    if not op.is_stack:
        return [t for t in parameters if len(t.shape) == 3][1:2]
    matrices = [t for t in parameters if len(t.shape) == 2]
    return matrices[1 : 2 * op.directions : 2]
