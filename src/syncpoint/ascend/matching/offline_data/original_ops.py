"""Which ops and outputs of the original model a device op stands for, by the compiler's rule file;
groups of fused ops; why an output has no name.

The compiler fuses, splits and inserts ops. Its rule file says for every device op which original
ops it was made from. Device ops made from the same original ops form a group, which is compared as
a whole.
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


class GroupRelation(StrEnum):
    """How many device ops stand for how many original ops."""

    ONE = "one"
    """One device op, whatever it was fused from."""
    SPLIT = "split"
    """Several device ops for the same original ops."""
    L1 = "l1"
    """Ops that the compiler runs slice by slice without leaving the chip."""


@dataclass(frozen=True)
class OriginalOutput:
    """An output of an op of the original model."""

    name: str
    index: int
    axes: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class OpGroup:
    """Device ops that stand for the same ops of the original model."""

    index: int
    ops: tuple[OpRule, ...]
    originals: tuple[str, ...]
    relation: GroupRelation


class FusionRules:
    """A rule file, combined with those of the quantizing tool and of another build."""

    def __init__(
        self, rules: RuleFile, quant: RuleFile | None = None, other_build: RuleFile | None = None
    ) -> None:
        self.ops = {op.name: op for op in rules.ops}
        self._quantized = {op.name: op for op in quant.ops} if quant else {}
        self._other_build: Mapping[str, OpRule] | None = None
        """The op of the other build that each original op became."""
        if other_build is not None:
            self._other_build = {name: op for op in other_build.ops for name in own_names(op)}
        self.groups = self._group_ops(rules)
        self.integer_ops = integer_ops(rules)

    def originals(self, op: OpRule) -> tuple[str, ...]:
        """Names in the original model, without repetition; none for an op of the compiler."""
        originals: dict[str, None] = {}
        for name in own_names(op):
            quantized = self._quantized.get(name)
            for original in own_names(quantized) if quantized else (name,):
                originals[original] = None
        return tuple(originals)

    def reference_names(self, originals: tuple[str, ...]) -> tuple[str, ...]:
        """The names of original ops in the reference: those of the other build, if there is one."""
        if self._other_build is None:
            return originals
        return tuple(
            self._other_build[name].name if name in self._other_build else name
            for name in originals
        )

    def original_output(self, op: OpRule, index: int) -> OriginalOutput | str:
        """The original output that an output of a device op equals, or why there is none."""
        visited = set()
        while op.type in MOVES_ONLY and not self._named_output(op, index):
            if op.name in visited or not op.inputs:
                return f"{op.name} has no producer"
            visited.add(op.name)
            producer, index = op.inputs[0]
            if producer not in self.ops:
                return f"its producer {producer} is not in the rule file"
            op = self.ops[producer]
        output = self._named_output(op, index)
        if output is None:
            return self._why_nameless(op, index)
        return output

    def reference_output(self, original: OriginalOutput) -> tuple[str, int]:
        """Name and output index of the reference op that computes an original output."""
        op = self._other_build.get(original.name) if self._other_build is not None else None
        if op is None:
            return original.name, original.index
        for index, output in enumerate(op.output_desc):
            if (output.origin_name, output.origin_index) == (original.name, original.index):
                return op.name, index
        return op.name, original.index

    def _named_output(self, op: OpRule, index: int) -> OriginalOutput | None:
        if index >= len(op.output_desc):
            return None
        output = op.output_desc[index]
        # An op without any original names is an op of the original model itself, unless it only
        # passes on the value of another op.
        is_original = not op.original_names and op.type not in MOVES_ONLY
        name = output.origin_name or (op.name if is_original else "")
        if not name:
            return None
        original_index = output.origin_index
        quantized = self._quantized.get(name)
        if quantized is not None:
            if original_index >= len(quantized.output_desc):
                return None
            unquantized = quantized.output_desc[original_index]
            if not unquantized.origin_name:
                return None
            name, original_index = unquantized.origin_name, unquantized.origin_index
        return OriginalOutput(name, original_index, output.origin_format, output.origin_shape)

    def _why_nameless(self, op: OpRule, index: int) -> str:
        if index >= len(op.output_desc):
            return (
                f"the rule file describes {len(op.output_desc)} outputs of {op.name}, not {index}"
            )
        return f"the compiler made {op.name}, the original model has nothing like it"

    def _group_ops(self, rules: RuleFile) -> tuple[OpGroup, ...]:
        members: dict[tuple[str, ...], list[OpRule]] = {}
        for op in rules.ops:
            members.setdefault(self._group_key(op), []).append(op)
        groups = []
        for index, (key, ops) in enumerate(members.items()):
            originals: dict[str, None] = {}
            for op in ops:
                originals.update(dict.fromkeys(self.originals(op)))
            if key[0] == "L1" and len(ops) > 1:
                relation = GroupRelation.L1
            else:
                relation = GroupRelation.ONE if len(ops) == 1 else GroupRelation.SPLIT
            groups.append(OpGroup(index, tuple(ops), tuple(originals), relation))
        return tuple(groups)

    def _group_key(self, op: OpRule) -> tuple[str, ...]:
        if op.l1:
            return ("L1", op.l1)
        originals = self.originals(op)
        return ("made from", *originals) if originals else ("own", op.name)
