"""Looks up the recorded op that a name in a rule file means.

Dumps name their files by the op, with `/`, `.` and others written as `_`; so two ops may have
claim to one file. A dump that also holds the true name settles it; otherwise neither is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from syncpoint.ascend.dumps.file_names import escape_name
from syncpoint.run.model import Op
from syncpoint.run.reader import Run


@dataclass(frozen=True)
class Found:
    """What a name leads to."""

    op: Op | None = None
    note: str = ""
    damage: str = ""
    ambiguous: str = ""

    @property
    def timestamp(self) -> int:
        """When it was dumped."""
        return int(self.op.attributes.get("timestamp", 0)) if self.op is not None else 0


class OpsByName:
    """The ops of a run by the names that rule files use."""

    def __init__(self, run: Run, names: Iterable[str]) -> None:
        self._written: dict[str, list[Op]] = {}
        self._last: dict[str, int] = {}
        for op in run.ops:
            self._written.setdefault(_written(op), []).append(op)
            self._last[op.key.op] = max(op.key.call, self._last.get(op.key.op, 0))
        self._claims = Counter(escape_name(name) for name in set(names))

    def find(self, name: str) -> Found:
        """The last execution of the op of this name."""
        written = escape_name(name)
        candidates = self._written.get(written, [])
        ops = [op for op in candidates if op.attributes.get("op_name") == name]
        if not ops:
            ops = [op for op in candidates if not op.attributes.get("op_name")]
            if ops and self._claims[written] > 1:
                return Found(
                    ambiguous=f'Several ops of the rule file are dumped as "{written}";'
                    " which of them a file holds cannot be told."
                )
        if not ops:
            return Found()
        op = max(ops, key=lambda op: op.key.call)
        damage = str(op.attributes.get("damage", ""))
        note = f"the last of {len(ops)} executions is compared" if len(ops) > 1 else ""
        return Found(op, note, damage)

    def superseded(self, op: Op) -> bool:
        """Whether the same op was executed again later."""
        return op.key.call < self._last[op.key.op]


def _written(op: Op) -> str:
    return str(op.attributes.get("escaped", op.key.op))
