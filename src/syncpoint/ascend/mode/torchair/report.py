"""Writes the report as CSV, and as a coloured sheet if requested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.mode.batch_columns import BatchColumns
from syncpoint.ascend.mode.torchair import report_manual, report_msprobe_26
from syncpoint.ascend.mode.torchair.open_dumps import TorchairCase
from syncpoint.ascend.mode.torchair.options import Dialect, Summary, TorchairFlags
from syncpoint.ascend.mode.torchair.report_manual import (
    ColumnsSeed,
    ColumnsSummary,
    columns_digest,
    columns_seed,
    columns_statistics,
)
from syncpoint.ascend.mode.torchair.report_msprobe_26 import Columns26, columns_26
from syncpoint.ascend.mode.torchair.report_rows import TorchairLine
from syncpoint.ascend.sheets import MAX_ROWS, write_sheet
from syncpoint.comparison.rows import Row
from syncpoint.errors import InputError
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.spreadsheet_text import csv_file, escape_cell

Columns = Columns26 | ColumnsSeed | ColumnsSummary


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
            f"--xlsx can hold fewer than {MAX_ROWS} lines; the report has {len(lines)}",
            cure="use the CSV",
        )
    header, body = _table(flags, lines)
    colours = (report_manual.colour(line) for line in lines)
    with write_errors(path), replacing(path, new=True) as temporary:
        write_sheet(temporary, header, zip(colours, body, strict=True))
