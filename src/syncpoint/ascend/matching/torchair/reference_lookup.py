"""Finds the ops and tensors of the reference by the names that a graph or a dump uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.ascend.dumps.torchair_run import op_facts
from syncpoint.run.model import Op, OpKey, Part, Role, Tensor, TensorKey


@dataclass(frozen=True, kw_only=True)
class Found:
    """A tensor of the other side, or why there is none."""

    tensor: Tensor | None = None
    why: str = ""
    damage: str = ""
    note: str = ""
    extra: bool = False
    """The tool of these dumps would not find it."""
    sure: bool = True
    """Whether unlike shapes would be a fault of the model and not of the pairing."""


@dataclass
class Others:
    """The ops of the other side in one graph and token, by name; of each the last execution."""

    ops: dict[str, Op]
    tensors: dict[OpKey, dict[tuple[Role, int], Tensor]]
    part: Part
    used: set[TensorKey] = field(default_factory=set)
    explained: dict[str, str] = field(default_factory=dict)
    """Why nothing is compared with an op, where that is known."""

    def __post_init__(self) -> None:
        # Names as files have them, for a dump whose headers do not say the true ones.
        self._written: dict[str, Op | None] = {}
        for name, op in self.ops.items():
            written = escape_name(name)
            self._written[written] = None if written in self._written else op

    def op(self, name: str) -> Op | None:
        """The op of this name."""
        return self.ops.get(name) or self._written.get(escape_name(name))

    def find(self, name: str, role: Role, index: int) -> Found:
        """One tensor."""
        op = self.op(name)
        if op is None:
            return Found(why=f"the golden dump has no {name}")
        tensor = self.tensors.get(op.key, {}).get((role, index))
        damage = str(op_facts(op, self.part).get("damage", ""))
        if tensor is None:
            if damage:
                return Found(damage=damage)
            return Found(why=f"the golden dump has no {role} {index} of {name}")
        again = f"the last of {op.key.call + 1} executions is compared" if op.key.call else ""
        return Found(tensor=tensor, note=again)

    def count(self, name: str, role: Role) -> int:
        """How many tensors of an op there are."""
        op = self.op(name)
        return sum(r is role for r, _ in self.tensors.get(op.key, ())) if op is not None else 0
