"""A run as a graph of slots, as the matchers that look at structure need it.

A *slot* is one output of one op, whatever the number of parts it was recorded for. Its *root* is
the slot behind the views, casts and copies it was made by: two ops that read tensors of the same
root read the same numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import prod
from typing import NamedTuple

from syncpoint.matching.op_kinds import ACTIVATIONS, TRANSPARENT, op_class, op_kind
from syncpoint.matching.protocol import Side
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor


class Slot(NamedTuple):
    """One output of one op, or what the model was given: an input, or a state."""

    op: OpKey
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody asks a slot for
    role: Role = Role.OUTPUT

    def __str__(self) -> str:
        return f"{self.op}:{self.index}" if self.index else str(self.op)


class Graph:
    """One side: ops by position, who reads whom, and what lies behind views."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ops: list[Op] = list(side.run.ops)
        self.position = {op.key: i for i, op in enumerate(self.ops)}
        self.classes = [_class(op) for op in self.ops]
        self.slots = _recorded_slots(side)
        self._outputs: list[list[Slot]] = [[] for _ in self.ops]
        for slot in self.slots:
            if slot.role is Role.OUTPUT:
                self._outputs[self.position[slot.op]].append(slot)
        self.has_edges = any(op.inputs for op in self.ops)
        self._link()
        self.completed = self._completing_ops()
        """Products and convolutions without a bias -> the op that adds it afterwards; clamps with
        one bound -> the clamp that has the other."""
        self.completing = {last: first for first, last in self.completed.items()}

    def _completing_ops(self) -> dict[int, int]:
        """The op that does the rest of each op that was taken apart in two."""
        completed: dict[int, int] = {}
        other_bounds: set[int] = set()
        for position, kind in enumerate(self.classes):
            reader = None
            if (
                kind in ("matmul", "conv")
                and len(self.reads[position]) == 1
                and self.live[position]
            ):
                reader = self._adds(position)
            elif kind == "clamp" and position not in other_bounds:
                reader = self._other_bound(position)
                if reader is not None:
                    other_bounds.add(reader)
            if reader is not None:
                completed[position] = reader
        return completed

    def _other_bound(self, position: int) -> int | None:
        """The clamp that reads a clamp and has the bound that this one lacks."""
        reader = None
        if len(self.outputs(position)) == 1:
            reader = self.only_reader(Slot(self.ops[position].key))
        if reader is None:
            return None
        kinds = {op_kind(self.ops[i].type) for i in (position, reader)}
        return reader if kinds == {"clamp_min", "clamp_max"} else None

    def _adds(self, at: int) -> int | None:
        """The op that adds a constant to a product that has no bias; an integer product may be
        read as what it stands for before."""
        op = self.ops[at]
        # Of integer products scales and zero points are inputs too.
        bare = len(op.inputs) <= (8 if op.type.startswith("QLinear") else 2)
        reader = self.only_reader(Slot(op.key)) if bare else None
        read = reader is not None and self.classes[reader] == "dequantize"
        if reader is not None and read:
            reader = self.only_reader(Slot(self.ops[reader].key))
        if reader is None or self.classes[reader] != "add" or len(self.reads[reader]) != 1:
            return None
        if len(self.ops[reader].inputs) != 2 or (not read and self.foreign(at, reader)):
            return None
        return reader

    def _link(self) -> None:
        from_outside = (Role.MODEL_INPUT, Role.STATE)
        given = any(edge.role in from_outside for op in self.ops for edge in op.inputs)
        self.reads: list[list[Slot]] = []
        """By position: the slots an op reads, in order; parameters and constants left out."""
        self.live: list[bool] = []
        """By position: whether the result depends on what the model was given."""
        self.consumers: dict[Slot, list[int]] = {}
        self.roots: dict[Slot, Slot] = {}
        for i, op in enumerate(self.ops):
            reads = []
            live = not given
            for edge in op.inputs:
                slot = _slot(edge)
                if slot is None:
                    continue
                at = self.position.get(slot.op, -1)
                # What depends on no input of the model is a constant that was not folded.
                alive = slot.role is not Role.OUTPUT or (at < i and at >= 0 and self.live[at])
                if not given or alive:
                    reads.append(slot)
                    self.consumers.setdefault(slot, []).append(i)
                    live = True
            self.reads.append(reads)
            self.live.append(live)
            if self.classes[i] in TRANSPARENT and len(reads) == 1:
                slot = Slot(op.key)
                self.roots[slot] = self.root(reads[0])

    def root(self, slot: Slot) -> Slot:
        """What lies behind views, casts and copies."""
        return self.roots.get(slot, slot)

    def class_of(self, slot: Slot) -> str:
        """Class of the op that made a slot."""
        at = self.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        return self.classes[at] if at >= 0 else slot.role.value

    def kind_of(self, slot: Slot) -> str:
        """Class of the op that a slot completes: a product where it adds the bias of one."""
        at = self.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        return self.classes[self.completing[at]] if at in self.completing else self.class_of(slot)

    def op_of(self, slot: Slot) -> Op | None:
        """The op that made a slot."""
        at = self.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        return self.ops[at] if at >= 0 else None

    def shape(self, slot: Slot) -> tuple[int, ...] | None:
        """The shape of a recorded slot."""
        tensors = self.slots.get(slot)
        return tensors[0].shape if tensors else None

    def count(self, slot: Slot) -> int:
        """Number of elements of a recorded slot; -1 where it was not recorded."""
        shape = self.shape(slot)
        return -1 if shape is None else prod(shape)

    def outputs(self, at: int) -> list[Slot]:
        """The recorded slots of an op."""
        return self._outputs[at]

    def results(self, at: int) -> list[Slot]:
        """The slots of an op, or of the op that adds its bias or other bound."""
        return self.outputs(self.completed.get(at, at)) or self.outputs(at)

    def parameters(self, at: int) -> list[Edge]:
        """What an op reads that no input of the model has a say in."""
        reads = set(self.reads[at])
        return [e for e in self.ops[at].inputs if _slot(e) not in reads]

    def only_reader(self, slot: Slot) -> int | None:
        """The one op that reads a slot, seen through views; None where there are several."""
        readers = self.consumers.get(slot, [])
        return readers[0] if len(readers) == 1 else None

    def behind(self, at: int, known: Container[Slot], limit: int = 48) -> set[Slot] | None:
        """The known slots that an op's result is made from; None where they are far away."""
        found: set[Slot] = set()
        seen = {at}
        waiting = [at]
        while waiting:
            for slot in self.reads[waiting.pop()]:
                if slot in known or slot.role is not Role.OUTPUT:
                    found.add(slot)
                    continue
                above = self.position.get(slot.op, -1)
                if above >= 0 and above not in seen:
                    if len(seen) >= limit:
                        return None
                    seen.add(above)
                    waiting.append(above)
        return found

    def foreign(self, at: int, reader: int) -> bool:
        """Whether two ops say that they were made from different ones."""
        own, other = self.ops[at].origins, self.ops[reader].origins
        return bool(own and other) and own[-1] not in other

    def steps(self) -> Iterator[tuple[Slot, str]]:
        """Results inside an op that was taken apart, with that op: all but those that are read
        outside of it."""
        for at, op in enumerate(self.ops):
            if not op.attributes.get("part_of"):
                continue
            whole = op.origins[-1:]
            for slot in self.outputs(at):
                readers = self.consumers.get(slot, ())
                if readers and all(self.ops[r].origins[-1:] == whole for r in readers):
                    yield slot, whole[0] if whole else op.attributes["part_of"]

    def is_unary(self, at: int) -> bool:
        """Whether an op changes one tensor element by element, or with constants."""
        return len(self.reads[at]) == 1 and (
            self.classes[at] in ACTIVATIONS
            or self.classes[at] in ("batch_norm", "add", "sub", "mul", "div")
        )


def _recorded_slots(side: Side) -> dict[Slot, list[Tensor]]:
    """The outputs of ops, model inputs and states of a side, with the tensors of each."""
    tensors = [t for op in side.ops for t in side.outputs[op.key] if t.key.role is Role.OUTPUT]
    tensors += [t for t in side.others if t.key.role in (Role.MODEL_INPUT, Role.STATE)]
    slots: dict[Slot, list[Tensor]] = {}
    for tensor in tensors:
        slot = Slot(tensor.key.op, tensor.key.index, tensor.key.role)
        slots.setdefault(slot, []).append(tensor)
    return slots


def _class(op: Op) -> str:
    """What an op does; for a step of an op that was taken apart, what the whole does."""
    return op_class(op.attributes.get("part_of") or op.type) if op.type else ""


def _slot(edge: Edge) -> Slot | None:
    if edge.role is not Role.PARAMETER and edge.role is not Role.INPUT:
        return Slot(edge.op, edge.index, edge.role)
    return None
