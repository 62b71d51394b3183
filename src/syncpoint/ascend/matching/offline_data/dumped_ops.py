"""Finds the recorded op that a name in a rule file refers to.

Dump files are named by the op, with `/`, `.` and other characters written as `_`. Two ops may
therefore have the same file name. If the dump also holds the true name, that decides; otherwise
neither op is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.run.model import Op
from syncpoint.run.reader import Run


@dataclass(frozen=True)
class DumpedOp:
    """The op that a name refers to, or why there is none."""

    op: Op | None = None
    note: str = ""
    damage: str = ""
    ambiguous: str = ""

    @property
    def timestamp(self) -> int:
        """When it was dumped."""
        return int(self.op.attributes.get("timestamp", 0)) if self.op is not None else 0


class OpsByName:
    """The ops of a run by the names of a rule file."""

    def __init__(self, run: Run, rule_names: Iterable[str]) -> None:
        self._ops_by_file_name: dict[str, list[Op]] = {}
        self._last_call: dict[str, int] = {}
        for op in run.ops:
            self._ops_by_file_name.setdefault(_file_name(op), []).append(op)
            self._last_call[op.key.op] = max(op.key.call, self._last_call.get(op.key.op, 0))
        self._names_per_file = Counter(escape_name(name) for name in set(rule_names))

    def find(self, name: str) -> DumpedOp:
        """The last execution of the op of this name."""
        file_name = escape_name(name)
        candidates = self._ops_by_file_name.get(file_name, [])
        ops = [op for op in candidates if op.attributes.get("op_name") == name]
        if not ops:
            ops = [op for op in candidates if not op.attributes.get("op_name")]
            if ops and self._names_per_file[file_name] > 1:
                return DumpedOp(
                    ambiguous=f'Several ops of the rule file are dumped as "{file_name}";'
                    " which of them a file holds cannot be told."
                )
        if not ops:
            return DumpedOp()
        op = max(ops, key=lambda op: op.key.call)
        damage = str(op.attributes.get("damage", ""))
        note = f"the last of {len(ops)} executions is compared" if len(ops) > 1 else ""
        return DumpedOp(op, note, damage)

    def is_superseded(self, op: Op) -> bool:
        """Whether the same op was executed again later."""
        return op.key.call < self._last_call[op.key.op]


def _file_name(op: Op) -> str:
    return str(op.attributes.get("escaped", op.key.op))
