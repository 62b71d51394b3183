"""Writes msProbe's table of two dumps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from syncpoint.ascend.msprobe.colours import choose_colour
from syncpoint.ascend.msprobe.table_rows import build_rows, columns, task_of
from syncpoint.ascend.sheets import require_xlsx, write_sheet
from syncpoint.files.outputs import output_file
from syncpoint.run.reader import Run
from syncpoint.spreadsheet_text import csv_file, escape_cell

Rows = Iterable[Mapping[str, Any]]


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
