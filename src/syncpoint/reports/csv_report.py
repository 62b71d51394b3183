"""Write the table of a comparison as CSV: every column, one line for each sync point, formulas
escaped; not Ascend's tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syncpoint.comparison.result import Result
from syncpoint.files.outputs import write_output
from syncpoint.spreadsheet_text import FORMULA, escape_cell

if TYPE_CHECKING:
    import polars as pl

_FIRST_COLUMNS = (
    "verdict",
    "reason",
    "basis",
    "target_op",
    "reference_op",
    "target_role",
    "target_index",
    "target_type",
    "target_module",
    "target_source",
    "target_dtype",
    "target_shape",
    "psnr",
    "sqnr",
    "max_abs",
    "introduced_verdict",
    "introduced_ratio",
)
"""Columns that come first, because people look for them."""


def write_csv(result: Result, path: Path) -> Path:
    """Write the table as CSV.

    Shapes are written as `1x3x4`, lists are joined by spaces, n/a is empty. A text that a
    spreadsheet would run as a formula gets a leading apostrophe.
    """
    import polars as pl

    rest = [name for name in result.table.columns if name not in _FIRST_COLUMNS]
    table = result.table.select(*_FIRST_COLUMNS, *rest)
    table = table.with_columns(
        [
            pl.col(name).cast(pl.List(pl.String)).list.join("x" if name.endswith("_shape") else " ")
            for name, kind in table.schema.items()
            if isinstance(kind, pl.List)
        ]
    )
    table = table.with_columns(
        [_escape_column(table[name]) for name, kind in table.schema.items() if kind == pl.String]
    )
    return write_output(path, table.write_csv())


def _escape_column(column: pl.Series) -> pl.Series:
    import polars as pl

    if not column.str.contains(FORMULA).any():
        return column
    cells = [None if text is None else escape_cell(text) for text in column.to_list()]
    return pl.Series(column.name, cells, pl.String)
