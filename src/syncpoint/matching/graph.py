"""A run as a graph of op outputs (slots), for matchers: who computes and reads a slot, its root
before views and casts, parameters, ops split in two (bias, clamp).

A *slot* is one output of one op, for all parts that were recorded. Its *root* is the slot before
views, casts and copies: two ops that read slots with the same root read the same numbers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import prod
from typing import NamedTuple

from syncpoint.matching.op_kinds import ACTIVATIONS, TRANSPARENT, op_class, op_kind
from syncpoint.matching.protocol import Side
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey

_IF = "if"
"""Class of an op that returns the results of one of its branches."""


class Slot(NamedTuple):
    """One output of one op, a model input, or a state."""

    op: OpKey
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which is not used
    role: Role = Role.OUTPUT

    def __str__(self) -> str:
        return f"{self.op}:{self.index}" if self.index else str(self.op)


class SlotGraph:
    """The ops of one run by position, their producers and consumers, and the roots of slots."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.ops: list[Op] = list(side.run.ops)
        self.position = {op.key: i for i, op in enumerate(self.ops)}
        self.classes = [_class_of(op) for op in self.ops]
        self.slots = _recorded_slots(side)
        self._parameter_counts = {
            tensor.key.op: tensor.count
            for tensor in side.others
            if tensor.key.role is Role.PARAMETER
        }
        self._outputs: list[list[Slot]] = [[] for _ in self.ops]
        for slot in self.slots:
            if slot.role is Role.OUTPUT:
                self._outputs[self.position[slot.op]].append(slot)
        self.has_edges = any(op.inputs for op in self.ops)
        self._link_ops()
        self.between_halves: dict[int, int] = {}
        """Position of an op that scales or dequantizes a product before its bias is added, or that
        computes this scale -> position of the product."""
        self.completed = self._completing_ops()
        """Position of a matmul or convolution without bias -> position of the op that adds the
        bias; of a clamp with one bound -> of the clamp with the other bound."""
        self.completing = {last: first for first, last in self.completed.items()}

    def _completing_ops(self) -> dict[int, int]:
        """For each op that was split in two, the op that does the second half."""
        completed: dict[int, int] = {}
        other_bounds: set[int] = set()
        for position, kind in enumerate(self.classes):
            reader = None
            if (
                kind in ("matmul", "conv")
                and len({slot.op for slot in self.reads[position]}) == 1
                and self.live[position]
            ):
                reader = self._find_bias_add(position)
            elif kind == "clamp" and position not in other_bounds:
                reader = self._find_other_bound(position)
                if reader is not None:
                    other_bounds.add(reader)
            if reader is not None:
                completed[position] = reader
        return completed

    def _find_other_bound(self, position: int) -> int | None:
        """The clamp that reads this clamp and has the other bound."""
        reader = None
        if len(self.outputs(position)) == 1:
            reader = self.only_reader(Slot(self.ops[position].key))
        if reader is None:
            return None
        kinds = {op_kind(self.ops[i].type) for i in (position, reader)}
        return reader if kinds == {"clamp_min", "clamp_max"} else None

    def _find_bias_add(self, position: int) -> int | None:
        """The op that adds a constant to a product without bias. The product of integers may be
        dequantized in between."""
        op = self.ops[position]
        # Products of integers also have scales and zero points as inputs.
        is_scaled_later = op_kind(op.type) in ("matmulinteger", "convinteger")
        most_inputs = 8 if op.type.startswith("QLinear") else 4 if is_scaled_later else 2
        has_no_bias = len(op.inputs) <= most_inputs
        reader = self.only_reader(Slot(op.key)) if has_no_bias else None
        is_dequantized = is_scaled_later
        scaling: list[int] = []
        for kind in ("identity", "mul") if is_scaled_later else ("dequantize",):
            if reader is None or self.classes[reader] != kind:
                break
            is_dequantized = True
            scaling.append(reader)
            reader = self.only_reader(Slot(self.ops[reader].key))
        if reader is None or self.classes[reader] != "add" or len(self.reads[reader]) != 1:
            return None
        if len(self.ops[reader].inputs) != 2 or (
            not is_dequantized and self.has_other_origin(position, reader)
        ):
            return None
        scales = (slot.op for i in scaling for slot in self.reads[i] if self.only_reader(slot) == i)
        between = {*scaling, *(self.position[op] for op in scales)} - {position}
        self.between_halves.update(dict.fromkeys(between, position))
        return reader

    def _link_ops(self) -> None:
        from_outside = (Role.MODEL_INPUT, Role.STATE)
        has_model_inputs = any(edge.role in from_outside for op in self.ops for edge in op.inputs)
        self.reads: list[list[Slot]] = []
        """By position: the slots an op reads, in order, without parameters and constants."""
        self.live: list[bool] = []
        """By position: whether the outputs depend on the inputs or states of the model."""
        self.consumers: dict[Slot, list[int]] = {}
        self.roots: dict[Slot, Slot] = {}
        branch_results = self._results_of_branches()
        for i, op in enumerate(self.ops):
            if op.key in branch_results:
                self._link_branch(i, branch_results[op.key])
                continue
            reads = []
            is_live = not has_model_inputs
            for edge in op.inputs:
                slot = _slot(edge)
                if slot is None:
                    continue
                producer = self.position.get(slot.op, -1)
                # A slot that depends on no model input is a constant that was not folded.
                depends_on_input = slot.role is not Role.OUTPUT or (
                    producer < i and producer >= 0 and self.live[producer]
                )
                if not has_model_inputs or depends_on_input:
                    reads.append(slot)
                    self.consumers.setdefault(slot, []).append(i)
                    is_live = True
            self.reads.append(reads)
            self.live.append(is_live)
            if len(reads) == 1 and (
                self.classes[i] in TRANSPARENT or self._is_whole_slice(i, reads[0])
            ):
                slot = Slot(op.key)
                self.roots[slot] = self.root(reads[0])

    def _results_of_branches(self) -> dict[OpKey, list[tuple[Slot, Slot]]]:
        """The outputs of each If, with the slots inside the branch it has taken that it returns."""
        ifs = {op.key for op, kind in zip(self.ops, self.classes, strict=True) if kind == _IF}
        if not ifs:
            return {}
        by_text = {str(ts[0].key): slot for slot, ts in self.slots.items()}
        results: dict[OpKey, list[tuple[Slot, Slot]]] = {}
        for slot, tensors in self.slots.items():
            source = by_text.get(tensors[0].alias_of)
            if slot.op in ifs and slot.role is Role.OUTPUT and source is not None:
                results.setdefault(slot.op, []).append((slot, source))
        return results

    def _link_branch(self, position: int, results: list[tuple[Slot, Slot]]) -> None:
        """Link an If as a copy of what its branch computes: the condition is no operand."""
        reads = [source for _, source in results]
        for slot, source in results:
            self.consumers.setdefault(source, []).append(position)
            self.roots[slot] = self.root(source)
        self.reads.append(reads)
        self.live.append(
            any(
                s.role is not Role.OUTPUT or self.live[self.position[s.op]]
                for s in reads
                if s.role is not Role.OUTPUT or self.position.get(s.op, position) < position
            )
        )

    def _is_whole_slice(self, position: int, source: Slot) -> bool:
        """Whether an op is a slice that takes all of its input."""
        tensors = self.slots.get(Slot(self.ops[position].key)), self.slots.get(source)
        if self.classes[position] != "slice" or not tensors[0] or not tensors[1]:
            return False
        own, other = tensors[0][0], tensors[1][0]
        return bool(own.digest) and (own.digest, own.shape) == (other.digest, other.shape)

    def root(self, slot: Slot) -> Slot:
        """The slot before views, casts and copies."""
        return self.roots.get(slot, slot)

    def class_of(self, slot: Slot) -> str:
        """Class of the op that produces a slot."""
        position = self.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        return self.classes[position] if position >= 0 else slot.role.value

    def kind_of(self, slot: Slot) -> str:
        """Class of the op that a slot completes: `matmul` or `conv` for the add of its bias."""
        position = self.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        return (
            self.classes[self.completing[position]]
            if position in self.completing
            else self.class_of(slot)
        )

    def op_of(self, slot: Slot) -> Op | None:
        """The op that produces a slot."""
        position = self.position.get(slot.op, -1) if slot.role is Role.OUTPUT else -1
        return self.ops[position] if position >= 0 else None

    def shape(self, slot: Slot) -> tuple[int, ...] | None:
        """The shape of a recorded slot."""
        tensors = self.slots.get(slot)
        return tensors[0].shape if tensors else None

    def count(self, slot: Slot) -> int:
        """Number of elements of a recorded slot; -1 if it was not recorded."""
        shape = self.shape(slot)
        return -1 if shape is None else prod(shape)

    def outputs(self, position: int) -> list[Slot]:
        """The recorded slots of an op."""
        return self._outputs[position]

    def model_output_slots(self) -> dict[TensorKey, Slot]:
        """The slots that are model outputs under another name, by the key of the output."""
        outputs = [t for t in self.side.others if t.key.role is Role.MODEL_OUTPUT and t.alias_of]
        names = {output.alias_of for output in outputs}
        slot_by_name = {
            str(tensors[0].key): slot
            for slot, tensors in self.slots.items()
            if len(tensors) == 1 and str(tensors[0].key) in names
        }
        return {
            output.key: slot_by_name[output.alias_of]
            for output in outputs
            if output.alias_of in slot_by_name
        }

    def results(self, position: int) -> list[Slot]:
        """The slots of an op, or of the op that adds its bias or its other bound."""
        return self.outputs(self.completed.get(position, position)) or self.outputs(position)

    def parameters(self, position: int) -> list[Edge]:
        """The inputs of an op that do not depend on the inputs of the model."""
        reads = set(self.reads[position])
        return [e for e in self.ops[position].inputs if _slot(e) not in reads]

    def parameter_count(self, edge: Edge) -> int:
        """Number of elements of a recorded parameter; 0 if it was not recorded."""
        return self._parameter_counts.get(edge.op, 0) if edge.role is Role.PARAMETER else 0

    def only_reader(self, slot: Slot) -> int | None:
        """The only op that reads a slot; None if there are none or several."""
        readers = self.consumers.get(slot, [])
        return readers[0] if len(readers) == 1 else None

    def sources_behind(
        self, position: int, known_slots: Container[Slot], limit: int = 48
    ) -> set[Slot] | None:
        """The nearest known slots that an op is computed from; None if more than `limit` ops lie in
        between."""
        sources: set[Slot] = set()
        visited = {position}
        waiting = [position]
        while waiting:
            for slot in self.reads[waiting.pop()]:
                if slot in known_slots or slot.role is not Role.OUTPUT:
                    sources.add(slot)
                    continue
                producer = self.position.get(slot.op, -1)
                if producer >= 0 and producer not in visited:
                    if len(visited) >= limit:
                        return None
                    visited.add(producer)
                    waiting.append(producer)
        return sources

    def has_other_origin(self, position: int, reader: int) -> bool:
        """Whether two ops name different origins."""
        own, other = self.ops[position].origins, self.ops[reader].origins
        return bool(own and other) and own[-1] not in other

    def inner_slots(self) -> Iterator[tuple[Slot, str]]:
        """The slots inside an op that was decomposed, each with the name of that op: all slots
        that are read only inside of it."""
        for position, op in enumerate(self.ops):
            if not op.attributes.get("part_of"):
                continue
            origin = op.origins[-1:]
            for slot in self.outputs(position):
                readers = self.consumers.get(slot, ())
                if readers and all(self.ops[r].origins[-1:] == origin for r in readers):
                    yield slot, origin[0] if origin else op.attributes["part_of"]

    def is_unary(self, position: int) -> bool:
        """Whether an op changes one tensor element by element, alone or with constants."""
        return len(self.reads[position]) == 1 and (
            self.classes[position] in ACTIVATIONS
            or self.classes[position] in ("batch_norm", "add", "sub", "mul", "div")
        )


def _recorded_slots(side: Side) -> dict[Slot, list[Tensor]]:
    """The slots of op outputs, model inputs and states, with the tensors of each."""
    tensors = [t for op in side.ops for t in side.outputs[op.key] if t.key.role is Role.OUTPUT]
    tensors += [t for t in side.others if t.key.role in (Role.MODEL_INPUT, Role.STATE)]
    slots: dict[Slot, list[Tensor]] = {}
    for tensor in tensors:
        slot = Slot(tensor.key.op, tensor.key.index, tensor.key.role)
        slots.setdefault(slot, []).append(tensor)
    return slots


def _class_of(op: Op) -> str:
    """The class of an op; for a step of a decomposed op, the class of that op."""
    return op_class(op.attributes.get("part_of") or op.type) if op.type else ""


def _slot(edge: Edge) -> Slot | None:
    if edge.role is not Role.PARAMETER and edge.role is not Role.INPUT:
        return Slot(edge.op, edge.index, edge.role)
    return None
