"""Write `ops.parquet`, `tensors.parquet` and other tables, whole or not at all, from rows or data
frames; returns size and checksum."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syncpoint.errors import describe_error
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.file_checksums import FileRecord, record_of
from syncpoint.foreign_text import make_encodable

if TYPE_CHECKING:
    import polars as pl
from syncpoint.run.storage.table_columns import op_schema, tensor_schema


def write_ops(path: Path, rows: Sequence[tuple[Any, ...]]) -> FileRecord:
    """Write `ops.parquet`, whole or not at all, from the rows of `op_row`."""
    return _write_rows(path, op_schema(), rows)


def write_tensors(path: Path, rows: Sequence[tuple[Any, ...]]) -> FileRecord:
    """Write `tensors.parquet`, whole or not at all, from the rows of `tensor_row`."""
    return _write_rows(path, tensor_schema(), rows)


def _write_rows(
    path: Path, schema: dict[str, pl.DataType], rows: Iterable[tuple[Any, ...]]
) -> FileRecord:
    import polars as pl

    columns: Iterable[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    series = []
    for (name, dtype), values in zip(schema.items(), columns, strict=True):
        try:
            series.append(_build_column(name, values, dtype))
        except UnicodeEncodeError:
            # A path is not valid Unicode; escaping it is better than losing the run.
            series.append(_build_column(name, make_encodable(values), dtype))
    return write_table(path, pl.DataFrame(series))


def write_table(path: Path, table: pl.DataFrame) -> FileRecord:
    """Write a table, whole or not at all; returns its size and checksum."""

    with replacing(path) as temporary:
        return write_parquet(table, temporary)


def write_parquet(table: pl.DataFrame, path: Path) -> FileRecord:
    """Encode a table in memory and write it, since polars does not report a full disk; returns its
    size and checksum."""
    from polars.exceptions import PolarsError

    data = io.BytesIO()
    try:
        table.write_parquet(data, compression="zstd")
    except PolarsError as error:
        raise OSError(errno.EIO, describe_error(error)) from error
    path.write_bytes(data.getbuffer())
    return record_of(data.getvalue())


def _build_column(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """Build a column; lists are built from their flat items, as polars is slow with one list per
    row."""
    import polars as pl

    if not isinstance(dtype, pl.List):
        return pl.Series(name, values, dtype=dtype)
    items = [item for row in values if row for item in row]
    lengths = [len(row or ()) for row in values]
    if isinstance(dtype.inner, pl.Struct):
        parts = {f.name: pl.Series(f.name, [], f.dtype) for f in dtype.inner.fields}
        for field, column in zip(dtype.inner.fields, zip(*items, strict=True), strict=False):
            parts[field.name] = pl.Series(field.name, column, dtype=field.dtype)
        flat = pl.DataFrame(parts).to_struct("item")
    else:
        flat = pl.Series("item", items, dtype=dtype.inner)
    row = np.repeat(np.arange(len(values)), lengths)
    lists = pl.DataFrame({"row": row, "item": flat}).group_by("row", maintain_order=True)
    absent = pl.Series("absent", [v is None for v in values], dtype=pl.Boolean)
    all_rows = pl.DataFrame({"row": np.arange(len(values)), "absent": absent})
    joined = all_rows.join(lists.agg("item"), on="row", how="left", maintain_order="left")
    empty = pl.lit(pl.Series([[]], dtype=dtype)).first()
    filled = pl.when(~pl.col("absent")).then(pl.col("item").fill_null(empty))
    return joined.select(filled.alias(name)).to_series()
