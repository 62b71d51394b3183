"""The lines of the report, whatever its columns are: a pair, its numbers and our verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncpoint.ascend.matching.torchair.graph_plan import GraphEntry
from syncpoint.ascend.matching.torchair.planner import OWN
from syncpoint.ascend.mode.torchair.open_dumps import Case
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role, Tensor, TensorKey

if TYPE_CHECKING:
    from syncpoint.ascend.mode.torchair.report import Columns


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the report."""

    entry: GraphEntry
    number: int
    """Of the pair, as 26.2 counts them."""
    my_path: str
    golden_path: str
    columns: Columns | None
    verdict: Verdict
    reason: str
    """Why there is no verdict, in one of the words for it; "" where there is one."""
    remark: str


def lines(case: Case, result: Result, found: dict[TensorKey, Columns]) -> Iterator[Line]:
    """All lines, graph by graph and token by token, in the order of execution."""
    rows = {row.target.key: row for row in result.rows}
    numbers = _numbers(case.plan.entries)
    for entry, number in zip(case.plan.entries, numbers, strict=True):
        key = entry.target.key if entry.target is not None else None
        row = rows.get(key) if key is not None and entry.reference is not None else None
        verdict, reason, remark = _judged(entry, row)
        yield Line(
            entry=entry,
            number=number,
            my_path=_path(case, 0, entry, entry.target),
            golden_path=_path(case, 1, entry, entry.reference),
            columns=found.get(key) if key is not None and row is not None else None,
            verdict=verdict,
            reason=reason,
            remark=remark,
        )


def _numbers(entries: tuple[GraphEntry, ...]) -> list[int]:
    """26.2 counts its pairs token by token, by type and time; what it leaves out comes last."""

    def place(at: int) -> tuple[Any, ...]:
        entry = entries[at]
        graph = (len(entry.graph), entry.graph, entry.part.step)
        if entry.extra or entry.target is None:
            return (True, at)
        key = entry.target.key
        role = key.role is not Role.INPUT
        return (False, *graph, entry.type, entry.time, entry.op, role, key.index)

    found = [0] * len(entries)
    for number, at in enumerate(sorted(range(len(entries)), key=place)):
        found[at] = number
    return found


def _path(case: Case, side: int, entry: GraphEntry, tensor: Tensor | None) -> str:
    """The file that holds a tensor, and which of its tensors it is."""
    if tensor is None:
        if side == 0:
            return str(case.stored[0].tree.root / entry.place) if entry.target_names else ""
        return "" if entry.target_names else entry.place
    own = tensor.key.op.path == OWN
    path = case.stored[0 if own else side].file(tensor)
    if side == 1 and case.fx and not own:
        return path
    return f"{path},{tensor.key.role}s,{tensor.key.index}"


def _judged(entry: GraphEntry, row: Row | None) -> tuple[Verdict, str, str]:
    if row is None:
        reason = str(entry.reason or ReasonCode.NO_COUNTERPART)
        words = f"{reason}: {entry.words}" if entry.words else reason
        return Verdict.NONE, reason, "; ".join(w for w in (words, entry.note) if w)
    said = [row.reason] if row.reason and row.verdict is not Verdict.CLOSE else []
    if entry.reason is ReasonCode.EXCLUDED:
        said = [f"{entry.reason}: {entry.words}"]
    reason = str(row.why.code or "") if row.verdict is Verdict.NONE else ""
    return row.verdict, reason, "; ".join([*said, *row.notes])
