"""Write msProbe's table of two dumps as CSV and as a coloured sheet; choose the colour of each row
from its relative errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncpoint.ascend.msprobe.row_levels import RowLevel
from syncpoint.ascend.msprobe.table_rows import DIFFERENCES, build_rows, columns, task_of
from syncpoint.ascend.msprobe.tensor_metrics import NOT_APPLICABLE, UNSUPPORTED
from syncpoint.ascend.sheets import Colour, require_xlsx, write_sheet
from syncpoint.files.outputs import output_file
from syncpoint.run.reader import Run
from syncpoint.spreadsheet_text import csv_file, escape_cell

Rows = Iterable[Mapping[str, Any]]

_MIN_COSINE = 0.99
_MAX_RELATIVE_ERROR = 0.01
_ENDS = ("NPU max", "NPU min", "Bench max", "Bench min")


def write_msprobe_csv(target: Run, reference: Run, path: Path | str) -> Path:
    """Write the table of `msprobe compare` for two dumps of PrecisionDebugger: one row for each
    value of the target. Raises InputError for other runs."""
    path = Path(path)
    _write_csv(path, columns(task_of(target, reference)), build_rows(target, reference))
    return path


def write_msprobe_xlsx(target: Run, reference: Run, path: Path | str) -> Path:
    """Write the table as a sheet with coloured rows (extra `xlsx`)."""
    require_xlsx("--msprobe-xlsx")
    path = Path(path)
    _write_xlsx(path, task_of(target, reference), build_rows(target, reference))
    return path


def write_tables(target: Run, reference: Run, path: Path | None, sheet: Path | None) -> None:
    """Write the table as CSV, as a sheet, or both; the rows are computed once."""
    rows = list(build_rows(target, reference))
    task = task_of(target, reference)
    if path is not None:
        _write_csv(path, columns(task), rows)
    if sheet is not None:
        _write_xlsx(sheet, task, rows)


def _write_csv(path: Path, header: Sequence[str], rows: Rows) -> None:
    with output_file(path) as temporary, csv_file(temporary) as writer:
        writer.writerow(header)
        writer.writerows([escape_cell(str(cells[name])) for name in header] for cells in rows)


def _write_xlsx(path: Path, task: str, rows: Rows) -> None:
    header = columns(task)
    with output_file(path) as temporary:
        write_sheet(
            temporary,
            header,
            ((choose_colour(cells, task), [str(cells[n]) for n in header]) for cells in rows),
        )


def choose_colour(cells: Mapping[str, Any], task: str) -> Colour:
    """Choose the colour by msProbe's result and by the limits of its manual."""
    if cells["Result"] == str(RowLevel.ERROR):
        return Colour.RED
    if cells["Result"] != str(RowLevel.PASS):
        return Colour.YELLOW
    normal = {"tensor": _values, "statistics": _figures, "md5": _digests}[task]
    return Colour.GREEN if normal(cells) else Colour.YELLOW


def _digests(cells: Mapping[str, Any]) -> bool:
    return bool(cells["NPU MD5"] == cells["BENCH MD5"])


def _values(cells: Mapping[str, Any]) -> bool:
    if "class" in str(cells["NPU Dtype"]) or cells["NPU Dtype"] == NOT_APPLICABLE:
        return bool(cells["NPU max"] == cells["Bench max"])
    cosine, relative = cells["Cosine"], cells["MaxRelativeErr"]
    if not _is_number(relative) or _has_nonfinite_ends(cells):
        return False
    # One element has no direction.
    is_similar = cosine == UNSUPPORTED or (_is_number(cosine) and cosine >= _MIN_COSINE)
    return is_similar and relative < _MAX_RELATIVE_ERROR


def _figures(cells: Mapping[str, Any]) -> bool:
    fractions = [_fraction(cells[name]) for name in DIFFERENCES[4:]]
    return not _has_nonfinite_ends(cells) and all(
        f is None or f < _MAX_RELATIVE_ERROR for f in fractions
    )


def _fraction(cell: Any) -> float | None:
    """Parse a relative error; None if there is none, infinite if its size is unknown."""
    if cell == NOT_APPLICABLE:
        return None
    try:
        percentage = float(str(cell).removesuffix("%"))
    except ValueError:
        return math.inf
    return math.inf if math.isnan(percentage) else abs(percentage) / 100


def _has_nonfinite_ends(cells: Mapping[str, Any]) -> bool:
    """Whether an extremum is not finite: msProbe counts infinities of both signs as equal."""
    return any(isinstance(cells[n], float) and not math.isfinite(cells[n]) for n in _ENDS)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell)
