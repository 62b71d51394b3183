"""Writes msProbe's table of two dumps."""

from __future__ import annotations

import csv
from pathlib import Path

from syncpoint.dumps.msprobe.columns import columns, lines, task_of
from syncpoint.errors import InputError
from syncpoint.run.files import one_line, replacing
from syncpoint.run.reader import Run


def write_msprobe_csv(target: Run, reference: Run, path: Path | str) -> Path:
    """The table that `msprobe compare` writes for two dumps of PrecisionDebugger: one row for each
    value of the target. Raises InputError for other runs and where it cannot be written."""
    path = Path(path)
    header = columns(task_of(target, reference))
    rows = lines(target, reference)
    try:
        with (
            replacing(path) as temporary,
            temporary.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows([str(cells[name]) for name in header] for cells in rows)
    except OSError as error:
        raise InputError(f"{path} to be written", one_line(error)) from error
    return path


def write_table(target: str, reference: str, path: Path) -> Path:
    """The same of two dumps that are still to be opened."""
    from syncpoint.dumps.registry import open_dump

    return write_msprobe_csv(open_dump(target), open_dump(reference), path)
