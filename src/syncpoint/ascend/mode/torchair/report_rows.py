"""The lines of the report in any dialect: a pair, its columns and our verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncpoint.ascend.matching.torchair.graph_plan import GraphEntry
from syncpoint.ascend.matching.torchair.planner import OWN_INPUT_PATH
from syncpoint.ascend.mode.torchair.open_dumps import TorchairCase
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role, Tensor, TensorKey

if TYPE_CHECKING:
    from syncpoint.ascend.mode.torchair.report import Columns


@dataclass(frozen=True, kw_only=True)
class TorchairLine:
    """One line of the report."""

    entry: GraphEntry
    number: int
    """Number of the pair, as msProbe 26.2 counts pairs."""
    my_path: str
    golden_path: str
    columns: Columns | None
    verdict: Verdict
    reason: str
    """The code of the reason why there is no verdict; "" if there is one."""
    remark: str


def lines(
    case: TorchairCase, result: Result, columns_by_tensor: dict[TensorKey, Columns]
) -> Iterator[TorchairLine]:
    """All lines, graph by graph and token by token, in the order of execution."""
    rows = {row.target.key: row for row in result.rows}
    numbers = _pair_numbers(case.plan.entries)
    for entry, number in zip(case.plan.entries, numbers, strict=True):
        key = entry.target.key if entry.target is not None else None
        row = rows.get(key) if key is not None and entry.reference is not None else None
        verdict, reason, remark = _verdict_cells(entry, row)
        yield TorchairLine(
            entry=entry,
            number=number,
            my_path=_path(case, 0, entry, entry.target),
            golden_path=_path(case, 1, entry, entry.reference),
            columns=columns_by_tensor.get(key) if key is not None and row is not None else None,
            verdict=verdict,
            reason=reason,
            remark=remark,
        )


def _pair_numbers(entries: tuple[GraphEntry, ...]) -> list[int]:
    """The numbers of the pairs. msProbe 26.2 counts token by token, by type and time; lines that it
    does not have come last."""

    def sort_key(index: int) -> tuple[Any, ...]:
        entry = entries[index]
        graph = (len(entry.graph), entry.graph, entry.part.step)
        if entry.extra or entry.target is None:
            return (True, index)
        key = entry.target.key
        is_output = key.role is not Role.INPUT
        return (False, *graph, entry.type, entry.time, entry.op, is_output, key.index)

    numbers = [0] * len(entries)
    for number, index in enumerate(sorted(range(len(entries)), key=sort_key)):
        numbers[index] = number
    return numbers


def _path(case: TorchairCase, side: int, entry: GraphEntry, tensor: Tensor | None) -> str:
    """The file of a tensor, and its role and index in the file."""
    if tensor is None:
        if side == 0:
            return str(case.stored[0].tree.root / entry.file) if entry.target_names else ""
        return "" if entry.target_names else entry.file
    is_own_input = tensor.key.op.path == OWN_INPUT_PATH
    path = case.stored[0 if is_own_input else side].file(tensor)
    if side == 1 and case.fx and not is_own_input:
        return path
    return f"{path},{tensor.key.role}s,{tensor.key.index}"


def _verdict_cells(entry: GraphEntry, row: Row | None) -> tuple[Verdict, str, str]:
    """The verdict, the code of the reason why there is none, and the remark."""
    if row is None:
        reason = str(entry.reason or ReasonCode.NO_COUNTERPART)
        remark = f"{reason}: {entry.report_text}" if entry.report_text else reason
        return Verdict.NONE, reason, "; ".join(text for text in (remark, entry.note) if text)
    remarks = [row.reason] if row.reason and row.verdict is not Verdict.CLOSE else []
    if entry.reason is ReasonCode.EXCLUDED:
        remarks = [f"{entry.reason}: {entry.report_text}"]
    reason = str(row.why.code or "") if row.verdict is Verdict.NONE else ""
    return row.verdict, reason, "; ".join([*remarks, *row.notes])
