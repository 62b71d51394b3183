"""Writes the report as CSV, and as a coloured sheet where that is asked for."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from syncpoint.errors import InputError, MissingExtra
from syncpoint.offline.torchair import report_26, report_seed
from syncpoint.offline.torchair.asked import Dialect
from syncpoint.offline.torchair.lines import Line
from syncpoint.run.files import one_line

_FORMULA = ("=", "+", "@", "-", "%", "\t", "\r")
_FILLS = {"red": "FFFFC7CE", "yellow": "FFFFEB9C", "green": "FFC6EFCE"}
_MAX_ROWS = 1_048_576
"""Of a sheet."""
_MAX_TEXT = 32_767
"""Characters of one cell."""


def rows(dialect: Dialect, lines: Sequence[Line]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The names of the columns and the lines, as text."""
    report = report_seed if dialect is Dialect.SEED else report_26
    return report.HEADER, [[_safe(cell) for cell in report.cells(line)] for line in lines]


def write_csv(path: Path, dialect: Dialect, lines: Sequence[Line]) -> None:
    """Write the report; the file must be new."""
    header, body = rows(dialect, lines)
    try:
        with path.open("x", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(body)
    except OSError as error:
        raise InputError(f"room and leave to write {path}", one_line(error)) from error


def need_xlsx() -> None:
    """Say before any work is done that the package for sheets is not there."""
    if find_spec("openpyxl") is None:
        raise MissingExtra("openpyxl", "xlsx", "sheets (--xlsx)")


def write_xlsx(path: Path, dialect: Dialect, lines: Sequence[Line]) -> None:
    """The same as a sheet, each line in the colour of what it asks for."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font, PatternFill

    if len(lines) >= _MAX_ROWS:
        raise InputError(f"less than {_MAX_ROWS} lines for --xlsx", f"{len(lines)}", "use the CSV")
    header, body = rows(dialect, lines)
    fills = {name: PatternFill("solid", fgColor=code) for name, code in _FILLS.items()}
    book = Workbook(write_only=True)
    sheet = book.create_sheet("comparison")
    sheet.freeze_panes = "A2"
    top = []
    for name in header:
        cell = WriteOnlyCell(sheet, value=name)
        cell.font = Font(bold=True)
        top.append(cell)
    sheet.append(top)
    for line, texts in zip(lines, body, strict=True):
        fill = fills[report_seed.colour(line)]
        made = []
        for text in texts:
            cell = WriteOnlyCell(sheet, value=_value(text))
            cell.fill = fill
            made.append(cell)
        sheet.append(made)
    try:
        with path.open("xb") as file:
            book.save(file)
    except OSError as error:
        raise InputError(f"room and leave to write {path}", one_line(error)) from error


def _value(text: str) -> str | float | None:
    """Numbers as numbers, so that a sheet can sort by them; infinities and NaN stay words."""
    try:
        number = float(text)
    except ValueError:
        return "".join(c for c in text if c.isprintable())[:_MAX_TEXT] or None
    return number if number - number == 0 else text


def _safe(text: str) -> str:
    """A spreadsheet would take a name that begins like a formula for one."""
    if not text.startswith(_FORMULA):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text
