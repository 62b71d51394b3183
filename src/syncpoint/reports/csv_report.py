"""The table as CSV, for spreadsheets and scripts: every column, one line a sync point."""

from __future__ import annotations

from pathlib import Path

from syncpoint.comparison.result import Result
from syncpoint.run.outputs import write_output

_FIRST = (
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
"""What a person looks for, left of everything else."""


def write_csv(result: Result, path: Path) -> Path:
    """Write the table. Shapes are `1x3x4`, lists are joined by a space, n/a is empty."""
    import polars as pl

    rest = [name for name in result.table.columns if name not in _FIRST]
    table = result.table.select(*_FIRST, *rest)
    table = table.with_columns(
        [
            pl.col(name).cast(pl.List(pl.String)).list.join("x" if name.endswith("_shape") else " ")
            for name, kind in table.schema.items()
            if isinstance(kind, pl.List)
        ]
    )
    return write_output(path, table.write_csv())
