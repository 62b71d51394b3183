"""Text for cells of CSV and XLSX: escape formulas, and write CSV that Python reads back
unchanged."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

FORMULA = "^'*[=+\\-@%\t\r\n＝＋－＠]"
"""Text that a spreadsheet takes for a formula. The apostrophes keep `escape_cell` reversible."""
_FORMULA = re.compile(FORMULA)
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?%?|inf|infinity|nan)|[-%]", re.I | re.ASCII
)


def escape_cell(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would run as a formula; numbers and
    percentages stay unchanged."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


class CsvWriter:
    """Writes rows of CSV that Python's csv module reads back unchanged. Up to Python 3.12
    csv.writer leaves a carriage return unquoted if lines end with a line feed alone."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._writer = csv.writer(self, lineterminator="\r\n")

    def write(self, line: str) -> int:
        """Write one line; called by csv.writer."""
        return self._file.write(line.removesuffix("\r\n") + "\n")

    def writerow(self, cells: Iterable[Any]) -> None:
        """Write one row."""
        self._writer.writerow(cells)

    def writerows(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write several rows."""
        self._writer.writerows(rows)


@contextmanager
def csv_file(path: Path) -> Iterator[CsvWriter]:
    """Open `path` for writing CSV; what UTF-8 cannot encode is escaped."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        yield CsvWriter(file)
