"""Finds the ops and tensors of the reference by the names that a graph or a dump uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.torchair_run import op_facts
from syncpoint.run.model import Op, OpKey, Part, Role, Tensor, TensorKey


@dataclass(frozen=True, kw_only=True)
class TensorLookup:
    """A tensor of the reference, or why there is none."""

    tensor: Tensor | None = None
    why: str = ""
    damage: str = ""
    note: str = ""
    extra: bool = False
    """Whether msProbe would not find it."""
    sure: bool = True
    """Whether different shapes mean an error of the model, and not of the pairing."""


@dataclass
class ReferenceOps:
    """The ops of the reference in one graph and token, by name; the last execution of each."""

    ops: dict[str, Op]
    tensors: dict[OpKey, dict[tuple[Role, int], Tensor]]
    part: Part
    used: set[TensorKey] = field(default_factory=set)
    why_unused: dict[str, str] = field(default_factory=dict)
    """Why an op is not compared, where that is known."""

    def __post_init__(self) -> None:
        # Names as in files, for a dump whose headers do not have the true names.
        self._op_by_file_name: dict[str, Op | None] = {}
        for name, op in self.ops.items():
            file_name = escape_name(name)
            is_ambiguous = file_name in self._op_by_file_name
            self._op_by_file_name[file_name] = None if is_ambiguous else op

    def op(self, name: str) -> Op | None:
        """The op of this name."""
        return self.ops.get(name) or self._op_by_file_name.get(escape_name(name))

    def find(self, name: str, role: Role, index: int) -> TensorLookup:
        """One tensor of an op."""
        op = self.op(name)
        if op is None:
            return TensorLookup(why=f"the golden dump has no {name}")
        tensor = self.tensors.get(op.key, {}).get((role, index))
        damage = str(op_facts(op, self.part).get("damage", ""))
        if tensor is None:
            if damage:
                return TensorLookup(damage=damage)
            return TensorLookup(why=f"the golden dump has no {role} {index} of {name}")
        return TensorLookup(tensor=tensor, note=last_execution_note(op.key.call))

    def count(self, name: str, role: Role) -> int:
        """The number of inputs or outputs of an op."""
        op = self.op(name)
        if op is None:
            return 0
        return sum(tensor_role is role for tensor_role, _ in self.tensors.get(op.key, ()))


def last_execution_note(call: int) -> str:
    """A note that the last of several executions is compared; "" for the only execution."""
    return f"the last of {call + 1} executions is compared" if call else ""
