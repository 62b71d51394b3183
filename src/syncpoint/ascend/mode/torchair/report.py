"""Writes the report as CSV, and as a coloured sheet where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from syncpoint.ascend.mode.batch_columns import BatchColumns
from syncpoint.ascend.mode.torchair import report_manual, report_msprobe_26
from syncpoint.ascend.mode.torchair.open_dumps import Case
from syncpoint.ascend.mode.torchair.options import Asked, Dialect, Summary
from syncpoint.ascend.mode.torchair.report_manual import (
    ColumnsSeed,
    ColumnsSummary,
    columns_digest,
    columns_seed,
    columns_statistics,
)
from syncpoint.ascend.mode.torchair.report_msprobe_26 import Columns26, columns_26
from syncpoint.ascend.mode.torchair.report_rows import Line
from syncpoint.ascend.sheets import MAX_ROWS, write_sheet
from syncpoint.comparison.rows import Row
from syncpoint.errors import InputError
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.spreadsheet_text import csv_file, escape_cell

Columns = Columns26 | ColumnsSeed | ColumnsSummary


def batch_columns(asked: Asked, case: Case) -> BatchColumns[Columns]:
    """The columns of every pair, in the words of the dialect."""
    ends = (case.stored[0].reduced | case.plan.shrunk, case.stored[1].reduced)

    def find(row: Row, mine: NDArray[Any], theirs: NDArray[Any]) -> Columns:
        if asked.dialect is Dialect.V26_2:
            return columns_26(mine, theirs)
        if asked.summary is Summary.VALUES:
            return columns_seed(mine, theirs)
        small = row.target.key in ends[0] or row.reference.key in ends[1]
        make = columns_statistics if asked.summary is Summary.STATISTICS else columns_digest
        return make(mine, theirs, small)

    return BatchColumns(case.target, case.reference, find, asked.threads)


def rows(asked: Asked, lines: Sequence[Line]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of the columns and the lines, as text."""
    if asked.dialect is Dialect.V26_2:
        header, body = report_msprobe_26.HEADER, [report_msprobe_26.cells(line) for line in lines]
    else:
        header = report_manual.header(asked.summary)
        body = [report_manual.cells(line, asked.summary) for line in lines]
    return header, [[escape_cell(cell) for cell in cells] for cells in body]


def write_csv(path: Path, asked: Asked, lines: Sequence[Line]) -> None:
    """Write the report; the file must be new."""
    header, body = rows(asked, lines)
    with write_errors(path), replacing(path, new=True) as temporary, csv_file(temporary) as writer:
        writer.writerow(header)
        writer.writerows(body)


def write_xlsx(path: Path, asked: Asked, lines: Sequence[Line]) -> None:
    """The same as a sheet, each line in the colour of what it asks for."""
    if len(lines) >= MAX_ROWS:
        raise InputError(f"less than {MAX_ROWS} lines for --xlsx", f"{len(lines)}", "use the CSV")
    header, body = rows(asked, lines)
    colours = (report_manual.colour(line) for line in lines)
    with write_errors(path), replacing(path, new=True) as temporary:
        write_sheet(temporary, header, zip(colours, body, strict=True))
