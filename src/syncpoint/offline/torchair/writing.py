"""Writes the report as CSV, and as a coloured sheet where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncpoint.dumps.sheets import MAX_ROWS, write_sheet
from syncpoint.errors import InputError
from syncpoint.offline.torchair import report_26, report_seed
from syncpoint.offline.torchair.asked import Asked, Dialect
from syncpoint.offline.torchair.lines import Line
from syncpoint.run.files import replacing
from syncpoint.run.outputs import write_errors
from syncpoint.spreadsheet_text import CsvWriter, as_cell


def rows(asked: Asked, lines: Sequence[Line]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of the columns and the lines, as text."""
    if asked.dialect is Dialect.V26_2:
        header, body = report_26.HEADER, [report_26.cells(line) for line in lines]
    else:
        header = report_seed.header(asked.summary)
        body = [report_seed.cells(line, asked.summary) for line in lines]
    return header, [[as_cell(cell) for cell in cells] for cells in body]


def write_csv(path: Path, asked: Asked, lines: Sequence[Line]) -> None:
    """Write the report; the file must be new."""
    header, body = rows(asked, lines)
    with (
        write_errors(path),
        replacing(path, new=True) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        writer = CsvWriter(file)
        writer.writerow(header)
        writer.writerows(body)


def write_xlsx(path: Path, asked: Asked, lines: Sequence[Line]) -> None:
    """The same as a sheet, each line in the colour of what it asks for."""
    if len(lines) >= MAX_ROWS:
        raise InputError(f"less than {MAX_ROWS} lines for --xlsx", f"{len(lines)}", "use the CSV")
    header, body = rows(asked, lines)
    colours = (report_seed.colour(line) for line in lines)
    with write_errors(path), replacing(path, new=True) as temporary:
        write_sheet(temporary, header, zip(colours, body, strict=True))
