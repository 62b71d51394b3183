"""The report of `torchair` in any dialect: order its lines, path and verdict of each, write CSV or
coloured sheet; header and cells come from report_*.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.matching.torchair.planner import OWN_INPUT_PATH, GraphEntry
from syncpoint.ascend.mode.batch_columns import BatchColumns
from syncpoint.ascend.mode.torchair import report_manual, report_msprobe_26
from syncpoint.ascend.mode.torchair.open_and_plan import TorchairCase
from syncpoint.ascend.mode.torchair.options import Dialect, Summary, TorchairFlags
from syncpoint.ascend.mode.torchair.report_manual import (
    ColumnsSeed,
    ColumnsSummary,
    columns_digest,
    columns_seed,
    columns_statistics,
)
from syncpoint.ascend.mode.torchair.report_msprobe_26 import Columns26, columns_26
from syncpoint.ascend.sheets import MAX_ROWS, write_sheet
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.errors import InputError
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role, Tensor, TensorKey
from syncpoint.spreadsheet_text import csv_file, escape_cell

Columns = Columns26 | ColumnsSeed | ColumnsSummary


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


def batch_columns(flags: TorchairFlags, case: TorchairCase) -> BatchColumns[Columns]:
    """An event sink that computes the columns of the dialect for every pair."""
    reduced_targets = case.stored[0].reduced | case.plan.min_max_only
    reduced_references = case.stored[1].reduced

    def compute(row: Row, target: NDArray[Any], reference: NDArray[Any]) -> Columns:
        if flags.dialect is Dialect.V26_2:
            return columns_26(target, reference)
        if flags.summary is Summary.VALUES:
            return columns_seed(target, reference)
        is_reduced = row.target.key in reduced_targets or row.reference.key in reduced_references
        if flags.summary is Summary.STATISTICS:
            return columns_statistics(target, reference, is_reduced)
        return columns_digest(target, reference, is_reduced)

    return BatchColumns(case.target, case.reference, compute, flags.threads)


def _table(
    flags: TorchairFlags, lines: Sequence[TorchairLine]
) -> tuple[tuple[str, ...], list[list[str]]]:
    """The header and the cells of all lines."""
    if flags.dialect is Dialect.V26_2:
        header, body = report_msprobe_26.HEADER, [report_msprobe_26.cells(line) for line in lines]
    else:
        header = report_manual.header(flags.summary)
        body = [report_manual.cells(line, flags.summary) for line in lines]
    return header, [[escape_cell(cell) for cell in cells] for cells in body]


def write_csv(path: Path, flags: TorchairFlags, lines: Sequence[TorchairLine]) -> None:
    """Write the report; the file must be new."""
    header, body = _table(flags, lines)
    with write_errors(path), replacing(path, new=True) as temporary, csv_file(temporary) as writer:
        writer.writerow(header)
        writer.writerows(body)


def write_xlsx(path: Path, flags: TorchairFlags, lines: Sequence[TorchairLine]) -> None:
    """Write the report as a sheet, each line in the colour of its verdict."""
    if len(lines) >= MAX_ROWS:
        raise InputError(
            f"an .xlsx file can hold at most {MAX_ROWS - 1} lines, but the report has {len(lines)}",
            cure="leave out --xlsx and use the CSV",
        )
    header, body = _table(flags, lines)
    colours = (report_manual.colour(line) for line in lines)
    with write_errors(path), replacing(path, new=True) as temporary:
        write_sheet(temporary, header, zip(colours, body, strict=True))
