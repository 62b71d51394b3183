"""Text for cells of CSV and XLSX: what a spreadsheet must not run, and what Python reads back."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

FORMULA = "^'*[=+\\-@%\t\r\n＝＋－＠]"
"""Where a spreadsheet begins to compute. The apostrophes keep `escape_cell` reversible."""
_FORMULA = re.compile(FORMULA)
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?%?|inf|infinity|nan)|[-%]", re.I | re.ASCII
)


def escape_cell(text: str) -> str:
    """The text for a cell of CSV: with an apostrophe before what a spreadsheet would run as a
    formula; numbers, also as percentages, stay as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


class CsvWriter:
    """Writes rows of CSV; every text is read back by Python's csv as it was. Up to Python 3.12
    csv.writer leaves a carriage return unquoted where lines end with a line feed alone."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._writer = csv.writer(self, lineterminator="\r\n")

    def write(self, line: str) -> int:
        """One line, from csv.writer."""
        return self._file.write(line.removesuffix("\r\n") + "\n")

    def writerow(self, cells: Iterable[Any]) -> None:
        """Write one row."""
        self._writer.writerow(cells)

    def writerows(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write several."""
        self._writer.writerows(rows)


@contextmanager
def csv_file(path: Path) -> Iterator[CsvWriter]:
    """A writer of the file at `path`; what UTF-8 cannot say of a name is escaped."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        yield CsvWriter(file)
