"""Ops and tensors as Parquet tables: the columns of `ops.parquet` and `tensors.parquet`, and how
they are written. `syncpoint.run.storage.table_reader` reads them.

Keys and plain facts are columns of their own, so that any tool can filter and join on them;
lists stay lists; only attributes and quantization, whose form is open, are JSON text. polars is
imported on first use: most commands never touch a table.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syncpoint.files.checksums import FileRecord, record_of
from syncpoint.files.safe_access import one_line, replacing
from syncpoint.foreign_text import encodable
from syncpoint.run.model import (
    Op,
    Statistics,
    Tensor,
)
from syncpoint.run.records import (
    STATISTICS,
    quantization_to_json,
    to_text,
)

if TYPE_CHECKING:
    import polars as pl

OPS = "ops.parquet"
TENSORS = "tensors.parquet"
OP_KEY = ("op", "call", "graph", "path", "iteration")
TENSOR_KEY = (*OP_KEY, "role", "index", "sample", "step", "rank")
EDGE = (*OP_KEY, "index", "role")
FRAME = ("file", "line", "function")


def op_schema() -> dict[str, pl.DataType]:
    """The columns of `ops.parquet`."""
    import polars as pl

    text, number = pl.String(), pl.Int64()
    key = {"op": text, "call": number, "graph": text, "path": text, "iteration": number}
    return {
        **key,
        "type": text,
        "inputs": pl.List(pl.Struct({**key, "index": number, "role": text})),
        "attributes": text,
        "module": text,
        "module_type": text,
        "source": pl.List(pl.Struct({"file": text, "line": number, "function": text})),
        "origins": pl.List(text),
        "random": pl.Boolean(),
    }


def tensor_schema() -> dict[str, pl.DataType]:
    """The columns of `tensors.parquet`."""
    import polars as pl

    text, number = pl.String(), pl.Int64()
    figures = {f"stat_{name}": pl.Float64() for name in ("min", "max", "mean", "std", "l2")}
    counts = {f"stat_{name}": number for name in ("nan", "inf", "zero")}
    return {
        "op": text,
        "call": number,
        "graph": text,
        "path": text,
        "iteration": number,
        "role": text,
        "index": number,
        "sample": number,
        "step": number,
        "rank": number,
        "name": text,
        "dtype": text,
        "shape": pl.List(number),
        "kept": text,
        "strides": pl.List(number),
        "layout": text,
        "device": text,
        "alias_of": text,
        "quantization": text,
        "requires_grad": pl.Boolean(),
        "address": pl.UInt64(),
        "shard": text,
        "offset": number,
        "nbytes": number,
        "stat_count": number,
        **figures,
        **counts,
        "digest": text,
        "digest_kind": text,
    }


MAY_BE_NULL = {
    "strides",
    "quantization",
    "requires_grad",
    "address",
    *(f"stat_{name}" for name in STATISTICS),
}


def op_row(op: Op) -> tuple[Any, ...]:
    """The row of an op. Like `tensor_row` made of nothing that the cyclic collector follows."""
    return (
        *op.key.row(),
        op.type,
        tuple((*e.op.row(), e.index, e.role.value) for e in op.inputs),
        to_text(dict(op.attributes)),
        op.module,
        op.module_type,
        tuple((f.file, f.line, f.function) for f in op.source),
        op.origins,
        op.random,
    )


def tensor_row(t: Tensor) -> tuple[Any, ...]:
    """The row of a tensor."""
    return (
        *t.key.row(),
        t.name,
        t.dtype,
        t.shape,
        t.kept.value,
        t.strides,
        t.layout,
        t.device,
        t.alias_of,
        None if t.quantization is None else to_text(quantization_to_json(t.quantization)),
        t.requires_grad,
        t.address,
        t.shard,
        t.offset,
        t.nbytes,
        *(_NO_FIGURES if t.statistics is None else _figures(t.statistics)),
        t.digest,
        t.digest_kind,
    )


_NO_FIGURES = (None,) * len(STATISTICS)


def write_ops(path: Path, rows: Sequence[tuple[Any, ...]]) -> FileRecord:
    """Write `ops.parquet`, whole or not at all, from rows that `op_row` made."""
    return _write(path, op_schema(), rows)


def write_tensors(path: Path, rows: Sequence[tuple[Any, ...]]) -> FileRecord:
    """Write `tensors.parquet`, whole or not at all, from rows that `tensor_row` made."""
    return _write(path, tensor_schema(), rows)


def _figures(s: Statistics) -> tuple[float, ...]:
    return (s.count, s.min, s.max, s.mean, s.std, s.l2, s.nan, s.inf, s.zero)


def _write(
    path: Path, schema: dict[str, pl.DataType], rows: Iterable[tuple[Any, ...]]
) -> FileRecord:
    import polars as pl

    columns: Iterable[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    series = []
    for (name, dtype), values in zip(schema.items(), columns, strict=True):
        try:
            series.append(_series(name, values, dtype))
        except UnicodeEncodeError:
            # A path that is not valid Unicode; the rest of the run is worth more than it.
            series.append(_series(name, encodable(values), dtype))
    return write_table(path, pl.DataFrame(series))


def write_table(path: Path, table: pl.DataFrame) -> FileRecord:
    """Write a table, whole or not at all; its size and checksum."""

    with replacing(path) as temporary:
        return write_parquet(table, temporary)


def write_parquet(table: pl.DataFrame, path: Path) -> FileRecord:
    """Write a table by way of memory, since polars does not say whether a disk was full; its size
    and checksum."""
    from polars.exceptions import PolarsError

    data = io.BytesIO()
    try:
        table.write_parquet(data, compression="zstd")
    except PolarsError as error:
        raise OSError(errno.EIO, one_line(error)) from error
    path.write_bytes(data.getbuffer())
    return record_of(data.getvalue())


def _series(name: str, values: Sequence[Any], dtype: pl.DataType) -> pl.Series:
    """A column; lists are built from their flat items, as polars is slow at one list a row."""
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
    every = pl.DataFrame({"row": np.arange(len(values)), "absent": absent})
    joined = every.join(lists.agg("item"), on="row", how="left", maintain_order="left")
    empty = pl.lit(pl.Series([[]], dtype=dtype)).first()
    filled = pl.when(~pl.col("absent")).then(pl.col("item").fill_null(empty))
    return joined.select(filled.alias(name)).to_series()
