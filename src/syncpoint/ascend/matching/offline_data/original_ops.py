"""Ops of a rule file -> groups that stand for the same ops of the original model.

The compiler fuses, splits and inserts ops. Its rule file says of every device op which original
ops it was made from; ops that were made from the same ones are one group, and a group is compared
as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from syncpoint.ascend.dumps.rule_file import (
    MOVES_ONLY,
    OpRule,
    RuleFile,
    integer_ops,
    own_names,
)


class Relation(StrEnum):
    """How many device ops stand for how many original ones."""

    ONE = "one"
    """A single device op, whatever it was fused from."""
    SPLIT = "split"
    """Several device ops for the same original ops."""
    L1 = "l1"
    """Ops that the compiler runs slice by slice without leaving the chip."""


@dataclass(frozen=True)
class Origin:
    """An output of an op of the original model."""

    name: str
    index: int
    axes: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Group:
    """Device ops that stand for the same ops of the original model."""

    index: int
    ops: tuple[OpRule, ...]
    originals: tuple[str, ...]
    relation: Relation


class Rules:
    """What a rule file says, seen through those of the quantizing tool and of another build."""

    def __init__(
        self, rules: RuleFile, quant: RuleFile | None = None, other: RuleFile | None = None
    ) -> None:
        self.ops = {op.name: op for op in rules.ops}
        self._quant = {op.name: op for op in quant.ops} if quant else {}
        self._owners: Mapping[str, OpRule] | None = None
        if other is not None:
            self._owners = {name: op for op in other.ops for name in own_names(op)}
        self.groups = self._grouped(rules)
        self.integer_ops = integer_ops(rules)

    def originals(self, op: OpRule) -> tuple[str, ...]:
        """Names in the original model, without repetition; none for what the compiler added."""
        found: dict[str, None] = {}
        for name in own_names(op):
            quantized = self._quant.get(name)
            for original in own_names(quantized) if quantized else (name,):
                found[original] = None
        return tuple(found)

    def shown(self, originals: tuple[str, ...]) -> tuple[str, ...]:
        """The names that the other side has for them."""
        if self._owners is None:
            return originals
        return tuple(
            self._owners[name].name if name in self._owners else name for name in originals
        )

    def origin(self, op: OpRule, index: int) -> Origin | str:
        """Which original output an output of a device op equals, or in words why none does."""
        seen = set()
        while op.type in MOVES_ONLY and not self._named(op, index):
            if op.name in seen or not op.inputs:
                return f"{op.name} has no producer"
            seen.add(op.name)
            producer, index = op.inputs[0]
            if producer not in self.ops:
                return f"its producer {producer} is not in the rule file"
            op = self.ops[producer]
        found = self._named(op, index)
        if found is None:
            return self._nameless(op, index)
        return found

    def owned(self, origin: Origin) -> tuple[str, int]:
        """Name and output of the op on the other side that makes an original output."""
        owner = self._owners.get(origin.name) if self._owners is not None else None
        if owner is None:
            return origin.name, origin.index
        for place, output in enumerate(owner.output_desc):
            if (output.origin_name, output.origin_index) == (origin.name, origin.index):
                return owner.name, place
        return owner.name, origin.index

    def _named(self, op: OpRule, index: int) -> Origin | None:
        if index >= len(op.output_desc):
            return None
        output = op.output_desc[index]
        # Where nothing is said of an op at all, it is one of the original model, unless it only
        # passes on what another gave.
        own = not op.original_names and op.type not in MOVES_ONLY
        name = output.origin_name or (op.name if own else "")
        if not name:
            return None
        place = output.origin_index
        quantized = self._quant.get(name)
        if quantized is not None:
            through = quantized.output_desc[place] if place < len(quantized.output_desc) else None
            if through is None or not through.origin_name:
                return None
            name, place = through.origin_name, through.origin_index
        return Origin(name, place, output.origin_format, output.origin_shape)

    def _nameless(self, op: OpRule, index: int) -> str:
        if index >= len(op.output_desc):
            return (
                f"the rule file describes {len(op.output_desc)} outputs of {op.name}, not {index}"
            )
        return f"the compiler made {op.name}, the original model has nothing like it"

    def _grouped(self, rules: RuleFile) -> tuple[Group, ...]:
        members: dict[tuple[str, ...], list[OpRule]] = {}
        for op in rules.ops:
            members.setdefault(self._key(op), []).append(op)
        groups = []
        for index, (key, ops) in enumerate(members.items()):
            originals: dict[str, None] = {}
            for op in ops:
                originals.update(dict.fromkeys(self.originals(op)))
            if key[0] == "L1" and len(ops) > 1:
                relation = Relation.L1
            else:
                relation = Relation.ONE if len(ops) == 1 else Relation.SPLIT
            groups.append(Group(index, tuple(ops), tuple(originals), relation))
        return tuple(groups)

    def _key(self, op: OpRule) -> tuple[str, ...]:
        if op.l1:
            return ("L1", op.l1)
        originals = self.originals(op)
        return ("made from", *originals) if originals else ("own", op.name)
