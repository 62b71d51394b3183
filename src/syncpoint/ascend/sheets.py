"""Tables of other tools as coloured sheets (XLSX)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from syncpoint.errors import InputError, MissingExtra
from syncpoint.foreign_text import make_visible
from syncpoint.spreadsheet_text import escape_cell

MAX_ROWS = 1_048_576
"""Of a sheet, its header included."""
_MAX_TEXT = 32_767
"""Characters of one cell."""


class Colour(StrEnum):
    """What a line asks of its reader."""

    RED = "red"
    """Abnormal."""
    YELLOW = "yellow"
    """Suspicious: it was not compared, or not all that speak of it are content."""
    GREEN = "green"
    """Normal."""


_WORDS = frozenset({"API Name", "NPU Name", "Bench Name", "NPU MD5", "BENCH MD5"})
"""Columns whose cells are no numbers, even where they look so: 00123456, 12345e67."""
FILLS = {Colour.RED: "FFFFC7CE", Colour.YELLOW: "FFFFEB9C", Colour.GREEN: "FFC6EFCE"}
"""The colours, as sheets have them."""


def need_xlsx(flag: str) -> None:
    """Say before any work is done that the package for sheets is not there."""
    if find_spec("openpyxl") is None:
        raise MissingExtra("openpyxl", "xlsx", f"sheets ({flag})")


def write_sheet(
    path: Path, header: Sequence[str], lines: Iterable[tuple[Colour, Sequence[str]]]
) -> None:
    """Write lines, each in its colour, into the file at `path`."""
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
    for at, (colour, texts) in enumerate(lines):
        if at + 1 >= MAX_ROWS:
            raise InputError(f"less than {MAX_ROWS} lines for a sheet", "more", "use the CSV")
        made = []
        for name, text in zip(header, texts, strict=True):
            value = _words(text) if name in _WORDS else _value(text)
            cell = WriteOnlyCell(sheet, value=value)
            if isinstance(value, str):
                cell.data_type = "s"  # else a text may become a formula or an error
            cell.fill = fills[colour]
            made.append(cell)
        sheet.append(made)
    book.save(path)


def _value(text: str) -> str | float | None:
    """Numbers as numbers, so that a sheet can sort by them; infinities and NaN stay words."""
    try:
        number = float(text)
    except ValueError:
        return _words(text)
    return number if number - number == 0 else text


def _words(text: str) -> str | None:
    return escape_cell(make_visible(text, _MAX_TEXT))[:_MAX_TEXT] or None
