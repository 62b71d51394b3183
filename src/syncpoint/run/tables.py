"""Ops and tensors as Parquet tables: `ops.parquet` and `tensors.parquet`.

Keys and plain facts are columns of their own, so that any tool can filter and join on them;
lists stay lists; only attributes and quantization, whose form is open, are JSON text. polars is
imported on first use: most commands never touch a table.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syncpoint.errors import FormatError
from syncpoint.run.files import one_line, open_regular, parse_json, replacing
from syncpoint.run.model import (
    Edge,
    Frame,
    Kept,
    Op,
    OpKey,
    Part,
    Role,
    Statistics,
    Tensor,
    TensorKey,
)
from syncpoint.run.records import (
    STATISTICS,
    check_op_key,
    check_tensor,
    quantization_from_json,
    quantization_to_json,
    to_text,
)

if TYPE_CHECKING:
    import polars as pl

OPS = "ops.parquet"
TENSORS = "tensors.parquet"
_ROLES = {role.value: role for role in Role}
_KEPT = {kept.value: kept for kept in Kept}
_MAX_ROWS = 50_000_000
"""A few bytes of Parquet can claim any number of equal rows; more than this is not believed."""

_OP_KEY = ("op", "call", "graph", "path", "iteration")
_TENSOR_KEY = (*_OP_KEY, "role", "index", "sample", "step", "rank")
_EDGE = (*_OP_KEY, "index", "role")
_FRAME = ("file", "line", "function")


def _op_schema() -> dict[str, pl.DataType]:
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


def _tensor_schema() -> dict[str, pl.DataType]:
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


_MAY_BE_NULL = {
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


def write_ops(path: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write `ops.parquet`, whole or not at all, from rows that `op_row` made."""
    _write(path, _op_schema(), rows)


def write_tensors(path: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    """Write `tensors.parquet`, whole or not at all, from rows that `tensor_row` made."""
    _write(path, _tensor_schema(), rows)


def _figures(s: Statistics) -> tuple[float, ...]:
    return (s.count, s.min, s.max, s.mean, s.std, s.l2, s.nan, s.inf, s.zero)


def _write(path: Path, schema: dict[str, pl.DataType], rows: Iterable[tuple[Any, ...]]) -> None:
    import polars as pl
    from polars.exceptions import PolarsError

    columns: Iterable[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(schema)
    series = []
    for (name, dtype), values in zip(schema.items(), columns, strict=True):
        try:
            series.append(_series(name, values, dtype))
        except UnicodeEncodeError:
            # A path that is not valid Unicode; the rest of the run is worth more than it.
            series.append(_series(name, _encodable(values), dtype))
    with replacing(path) as temporary:
        try:
            pl.DataFrame(series).write_parquet(temporary, compression="zstd")
        except PolarsError as error:
            raise OSError(errno.EIO, one_line(error)) from error


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


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list | tuple):
        return type(value)(_encodable(item) for item in value)
    return value


def read_ops(path: Path) -> list[Op]:
    """The ops of a run in order; a broken table is a FormatError."""
    frame = _read(path, _op_schema())
    _refuse_duplicates(frame, _OP_KEY, path)
    keys = _Keys()
    edges = _nested(frame, "inputs", _EDGE)
    frames = _nested(frame, "source", _FRAME)
    columns = (_list(frame, c) for c in (*_OP_KEY, "type", "attributes", "module"))
    rest = (_list(frame, c) for c in ("module_type", "origins", "random"))
    attributes = _Parsed(path)
    rows = zip(zip(*columns, *rest, strict=True), edges, frames, strict=True)
    # Equal edges and frames are one object: a tensor is read several times, a line makes
    # many ops.
    edge_of = cache(lambda edge: Edge(keys(*edge[:5]), edge[5], _ROLES[edge[6]]))
    frame_of = cache(lambda line: Frame(*line))
    return [
        Op(
            keys(*row[:5]),
            row[5],
            tuple(map(edge_of, inputs)),
            attributes(row[6]),
            row[7],
            row[8],
            tuple(map(frame_of, source)),
            tuple(row[9]),
            row[10],
        )
        for row, inputs, source in rows
    ]


def read_tensors(path: Path) -> list[Tensor]:
    """The tensors of a run in order; a broken table is a FormatError."""
    frame = _read(path, _tensor_schema())
    _refuse_duplicates(frame, _TENSOR_KEY, path)
    keys = _Keys()
    parts: dict[tuple[int, int, int], Part] = {}
    parse = _Parsed(path)
    sound: set[tuple[str, tuple[int, ...], str, int, str]] = set()
    result = []
    for row in zip(*(_list(frame, name) for name in _tensor_schema()), strict=True):
        (op, call, graph, path_in, iteration, role, index, sample, step, rank) = row[:10]
        (name, dtype, shape, kept, strides, layout, device, alias_of) = row[10:18]
        (quantization, requires_grad, address, shard, offset, nbytes) = row[18:24]
        where = (sample, step, rank)
        part = parts.get(where)
        if part is None:
            part = parts[where] = Part(*where)
        op_key = keys(op, call, graph, path_in, iteration)
        shape = tuple(shape)
        tensor = Tensor(
            TensorKey(op_key, _ROLES[role], index, part),
            dtype,
            shape,
            _KEPT[kept],
            None if strides is None else tuple(strides),
            layout,
            device,
            alias_of,
            None if quantization is None else quantization_from_json(parse(quantization)),
            requires_grad,
            address,
            shard,
            offset,
            nbytes,
            None if row[24] is None else Statistics(*row[24:33]),
            row[33],
            row[34],
            name,
        )
        facts = (dtype, shape, kept, nbytes, shard)
        if facts not in sound or offset < 0 or index < 0:
            check_tensor(tensor)
            sound.add(facts)
        result.append(tensor)
    return result


class _Keys:
    """One object for each op key, however many edges and tensors name it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str, str, int], OpKey] = {}

    def __call__(self, op: str, call: int, graph: str, path: str, iteration: int) -> OpKey:
        row = (op, call, graph, path, iteration)
        key = self._known.get(row)
        if key is None:
            key = self._known[row] = check_op_key(OpKey(*row))
        return key


class _Parsed:
    """JSON objects of a text column; equal texts share one, as records are not changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, Any]] = {}

    def __call__(self, text: str) -> dict[str, Any]:
        found = self._known.get(text)
        if found is None:
            found = parse_json(text, str(self._path))
            if not isinstance(found, dict):
                raise FormatError(f"JSON objects in {self._path}", text[:40])
            self._known[text] = found
        return found


def _read(path: Path, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    import polars as pl
    from polars.exceptions import PanicException, PolarsError

    try:
        os.close(open_regular(path))
        found = pl.read_parquet_schema(path)
        for name, dtype in schema.items():
            if name not in found:
                raise FormatError(f"a column {name!r} in {path}", f"only {', '.join(found)}")
            if found[name] != dtype:
                raise FormatError(f"column {name!r} of {path} as {dtype}", str(found[name]))
        table = pl.scan_parquet(path, glob=False)
        rows = table.select(pl.len()).collect().item()
        if rows > _MAX_ROWS:
            raise FormatError(f"at most {_MAX_ROWS} rows in {path}", str(rows))
        frame = table.select(list(schema)).collect()
    except (PolarsError, PanicException, OSError, OverflowError, MemoryError) as error:
        raise FormatError(f"a readable table at {path}", one_line(error)[:200]) from error
    for name in schema:
        if name not in _MAY_BE_NULL and frame[name].null_count():
            raise FormatError(f"a value in each row of column {name!r} of {path}", "a gap")
    return frame


def _refuse_duplicates(frame: pl.DataFrame, key: Sequence[str], path: Path) -> None:
    doubled = frame.select(key).is_duplicated()
    if doubled.any():
        first = frame.select(key).filter(doubled).row(0)
        raise FormatError(f"each key once in {path}", f"twice {first}")


def _list(frame: pl.DataFrame, name: str) -> list[Any]:
    return frame[name].to_list()


def _nested(frame: pl.DataFrame, name: str, inner: Sequence[str]) -> Iterator[list[Any]]:
    """The rows of a list of structs as tuples; much quicker than dictionaries one by one."""
    column = frame[name]
    lengths = column.list.len().to_list()
    flat = column.filter(column.list.len() > 0).explode()
    if flat.null_count():
        raise FormatError(f"no gaps inside column {name!r}", "one")
    unnested = flat.struct.unnest()
    if sum(unnested.null_count().row(0)):
        raise FormatError(f"no gaps inside column {name!r}", "one")
    rows = iter(list(zip(*(unnested[f].to_list() for f in inner), strict=True)))
    return iter([[next(rows) for _ in range(length)] for length in lengths])
