"""Write coloured XLSX sheets: the rows, their colours, texts that are numbers as numbers; check
that the package is installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from syncpoint.errors import InputError, MissingExtra
from syncpoint.foreign_text import make_visible
from syncpoint.spreadsheet_text import escape_cell

MAX_ROWS = 1_048_576
"""Rows of a sheet, including its header."""
_MAX_CELL_CHARACTERS = 32_767
"""Longest text of one cell."""


class Colour(StrEnum):
    """Colour of a row."""

    RED = "red"
    """Abnormal."""
    YELLOW = "yellow"
    """Suspicious: not compared, or not all rules are met."""
    GREEN = "green"
    """Normal."""


_TEXT_COLUMNS = frozenset({"API Name", "NPU Name", "Bench Name", "NPU MD5", "BENCH MD5"})
"""Columns whose cells are texts, even if they look like numbers: 00123456, 12345e67."""
FILLS = {Colour.RED: "FFFFC7CE", Colour.YELLOW: "FFFFEB9C", Colour.GREEN: "FFC6EFCE"}
"""Colour codes of the sheet."""


def require_xlsx(flag: str) -> None:
    """Fail before any work is done if the package for sheets is missing."""
    if find_spec("openpyxl") is None:
        raise MissingExtra("openpyxl", "xlsx", flag)


def write_sheet(
    path: Path, header: Sequence[str], lines: Iterable[tuple[Colour, Sequence[str]]]
) -> None:
    """Write rows in their colours to the file at `path`."""
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.styles import Font, PatternFill

    fills = {colour: PatternFill("solid", fgColor=code) for colour, code in FILLS.items()}
    book = Workbook(write_only=True)
    sheet = book.create_sheet("comparison")
    sheet.freeze_panes = "A2"
    top = []
    for name in header:
        cell = WriteOnlyCell(sheet, value=name)
        cell.font = Font(bold=True)
        top.append(cell)
    sheet.append(top)
    for index, (colour, texts) in enumerate(lines):
        if index + 1 >= MAX_ROWS:
            raise InputError(f"a sheet holds at most {MAX_ROWS} rows", cure="write CSV instead")
        cells = []
        for name, text in zip(header, texts, strict=True):
            value = _text_value(text) if name in _TEXT_COLUMNS else _number_or_text(text)
            cell = WriteOnlyCell(sheet, value=value)
            if isinstance(value, str):
                cell.data_type = "s"  # else a text may become a formula or an error
            cell.fill = fills[colour]
            cells.append(cell)
        sheet.append(cells)
    book.save(path)


def _number_or_text(text: str) -> str | float | None:
    """Convert numbers, so that a sheet can sort by them; infinities and NaN stay texts."""
    try:
        number = float(text)
    except ValueError:
        return _text_value(text)
    return number if number - number == 0 else text


def _text_value(text: str) -> str | None:
    return escape_cell(make_visible(text, _MAX_CELL_CHARACTERS))[:_MAX_CELL_CHARACTERS] or None
