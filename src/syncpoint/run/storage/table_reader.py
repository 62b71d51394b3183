"""Read and check `ops.parquet` and `tensors.parquet`; create Op and Tensor records on demand;
refuse duplicates and missing values.

A run may have hundreds of thousands of ops. Its tables are checked column by column when it is
opened, so that structural damage is detected there. An Op or a Tensor is created on first access,
together with its neighbours, and cached.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from syncpoint.errors import FormatError
from syncpoint.files.untrusted_json import parse_json
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
from syncpoint.run.storage.checked_parquet import ParquetTable
from syncpoint.run.storage.record_checks import check_op_key, check_tensor
from syncpoint.run.storage.record_json import quantization_from_json
from syncpoint.run.storage.table_columns import (
    EDGE,
    FRAME,
    MAY_BE_NULL,
    OP_KEY,
    TENSOR_KEY,
    op_schema,
    tensor_schema,
)

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
_CURE = "copy the run again, or record it again"
_ROLES = {role.value: role for role in Role}
_RECORD_MODES = {mode.value: mode for mode in Kept}
_ROW_BYTES, _MAX_EXPANSION = 450, 1_000
"""Memory of a row in columns, and the maximum ratio of memory to file size: ops that differ only in
a number take one byte each in the file."""
_CHUNK_ROWS = 2048
"""Records that are created at once."""


class Records(Sequence[T], Generic[T]):
    """The records of a table in order, created on first access."""

    def __init__(
        self,
        frame: pl.DataFrame,
        key: Sequence[str],
        build: Callable[[pl.DataFrame], list[T]],
    ) -> None:
        self._frame = frame
        self._key = key
        self._build = build
        self._chunks: dict[int, list[T]] = {}
        self._row_by_key: dict[tuple[Any, ...], int] | None = None

    @property
    def table(self) -> pl.DataFrame:
        """The records as columns, for callers that read all of them."""
        return self._frame

    def __len__(self) -> int:
        return self._frame.height

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._chunk(index // _CHUNK_ROWS)[index % _CHUNK_ROWS]

    def __iter__(self) -> Iterator[T]:
        for number in range(-(-len(self) // _CHUNK_ROWS)):
            yield from self._chunk(number)

    def find(self, key: tuple[Any, ...]) -> T | None:
        """The record with this key, in the form that `row()` of a key has; None if none has it."""
        if self._row_by_key is None:
            columns = (self._frame[name].to_list() for name in self._key)
            self._row_by_key = {key: row for row, key in enumerate(zip(*columns, strict=True))}
        row = self._row_by_key.get(key)
        return None if row is None else self[row]

    def _chunk(self, number: int) -> list[T]:
        chunk = self._chunks.get(number)
        if chunk is None:
            with _disable_collector():
                records = self._build(self._frame.slice(number * _CHUNK_ROWS, _CHUNK_ROWS))
            # Two threads may build the same chunk; both must use the first one.
            chunk = self._chunks.setdefault(number, records)
        return chunk


@contextmanager
def _disable_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector, which would visit every record again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_ops(table: ParquetTable) -> Records[Op]:
    """Read the ops of a run in order; a broken table is a FormatError."""
    path = table.path
    frame = _read_checked(table, op_schema(), OP_KEY)
    _refuse_duplicates(frame, OP_KEY, path)
    _check_keys(frame)
    edges = _flatten_structs(frame, "inputs", path)
    _check_keys(edges)
    _check_names(edges, "role", _ROLES)
    _flatten_structs(frame, "source", path)
    if frame["origins"].explode().null_count() > (frame["origins"].list.len() == 0).sum():
        raise _missing_value_error("origins", path)
    attributes = _JsonCache(path, "attributes")
    # Equal keys, edges and frames share one object: a tensor is read several times, and a source
    # line creates many ops.
    key_of = cache(OpKey)
    edge_of = cache(lambda edge: Edge(key_of(*edge[:5]), edge[5], _ROLES[edge[6]]))
    frame_of = cache(lambda line: Frame(*line))
    flat = (*OP_KEY, "type", "attributes", "module", "module_type", "origins", "random")

    def build(chunk: pl.DataFrame) -> list[Op]:
        rows = zip(*(chunk[name].to_list() for name in flat), strict=True)
        nested = (
            _read_structs(chunk, "inputs", EDGE, path),
            _read_structs(chunk, "source", FRAME, path),
        )
        return [
            Op(
                key_of(*row[:5]),
                row[5],
                tuple(map(edge_of, inputs)),
                attributes=attributes(row[6]),
                module=row[7],
                module_type=row[8],
                source=tuple(map(frame_of, source)),
                origins=tuple(row[9]),
                random=row[10],
            )
            for row, inputs, source in zip(rows, *nested, strict=True)
        ]

    return Records(frame, OP_KEY, build)


def read_tensors(table: ParquetTable) -> Records[Tensor]:
    """Read the tensors of a run in order; a broken table is a FormatError."""
    path = table.path
    frame = _read_checked(table, tensor_schema(), TENSOR_KEY)
    _refuse_duplicates(frame, TENSOR_KEY, path)
    _check_keys(frame)
    _check_names(frame, "role", _ROLES)
    _check_names(frame, "kept", _RECORD_MODES)
    key_of = cache(OpKey)
    part_of = cache(Part)
    parse = _JsonCache(path, "quantization")
    for text in frame["quantization"].drop_nulls().unique():
        quantization_from_json(parse(text))
    names = list(tensor_schema())

    def build(chunk: pl.DataFrame) -> list[Tensor]:
        tensors = []
        for row in zip(*(chunk[name].to_list() for name in names), strict=True):
            (op, call, graph, path_in, iteration, role, index, sample, step, rank, name,
             dtype, shape, mode, strides, layout, device, alias_of, quantization, requires_grad,
             address, shard, offset, nbytes, count, low, high, mean, std, l2, nan, inf, zero,
             digest, digest_kind) = row  # fmt: skip
            op_key = key_of(op, call, graph, path_in, iteration)
            grid = None
            if quantization is not None:
                grid = quantization_from_json(parse(quantization))
            statistics = None
            if count is not None:
                statistics = Statistics(
                    count=count, min=low, max=high, mean=mean, std=std, l2=l2,
                    nan=nan, inf=inf, zero=zero,
                )  # fmt: skip
            tensor = Tensor(
                TensorKey(op_key, _ROLES[role], index, part_of(sample, step, rank)),
                dtype,
                tuple(shape),
                kept=_RECORD_MODES[mode],
                strides=None if strides is None else tuple(strides),
                layout=layout,
                device=device,
                alias_of=alias_of,
                quantization=grid,
                requires_grad=requires_grad,
                address=address,
                shard=shard,
                offset=offset,
                nbytes=nbytes,
                statistics=statistics,
                digest=digest,
                digest_kind=digest_kind,
                name=name,
            )
            tensors.append(tensor)
        return tensors

    for row in _representative_rows(frame):
        check_tensor(build(frame.slice(row, 1))[0])
    return Records(frame, TENSOR_KEY, build)


def _representative_rows(frame: pl.DataFrame) -> list[int]:
    """One row of each group that is alike to `check_tensor`, and all rows with a negative number:
    the rows of a group pass or fail together."""
    columns = ("dtype", "kept", "nbytes", "shard")
    facts = zip(
        *(frame[name].to_list() for name in columns),
        map(tuple, frame["shape"].to_list()),
        strict=True,
    )
    first: dict[tuple[Any, ...], int] = {}
    for row, fact in enumerate(facts):
        first.setdefault(fact, row)
    negative = (frame["offset"] < 0) | (frame["index"] < 0)
    return sorted({*first.values(), *negative.arg_true().to_list()})


class _JsonCache:
    """JSON objects of a text column; equal texts share one object, as records are immutable."""

    def __init__(self, path: Path, column: str) -> None:
        self._path = path
        self._column = column
        self._objects: dict[str, dict[str, Any]] = {}

    def __call__(self, text: str) -> dict[str, Any]:
        body = self._objects.get(text)
        if body is None:
            body = parse_json(text, str(self._path))
            if not isinstance(body, dict):
                raise FormatError(
                    f"the column {self._column!r} of {self._path} has {text[:40]!r} instead of a"
                    " JSON object",
                    cure=_CURE,
                )
            self._objects[text] = body
        return body


def _read_checked(
    table: ParquetTable, schema: dict[str, pl.DataType], key: Sequence[str]
) -> pl.DataFrame:
    table.check_columns(schema)
    table.check_keys(key)
    table.check_memory(table.rows * _ROW_BYTES, _MAX_EXPANSION, "read it with Polars, by columns")
    frame = table.read(schema)
    for name in schema:
        if name not in MAY_BE_NULL and frame[name].null_count():
            raise _missing_value_error(name, table.path)
    return frame


def _missing_value_error(column: str, path: Path) -> FormatError:
    return FormatError(f"column {column!r} of {path} has a missing value", cure=_CURE)


def _refuse_duplicates(frame: pl.DataFrame, key: Sequence[str], path: Path) -> None:
    is_duplicate = frame.select(key).is_duplicated()
    if is_duplicate.any():
        first = frame.select(key).filter(is_duplicate).row(0)
        raise FormatError(f"{path} has the key {first} twice", cure=_CURE)


def _check_keys(frame: pl.DataFrame) -> None:
    """Apply `check_op_key` to a whole column."""
    bad = (frame["call"] < 0) | (frame["iteration"] < 0)
    if bad.any():
        row = frame.filter(bad).row(0, named=True)
        check_op_key(OpKey(row["op"], row["call"], iteration=row["iteration"]))


def _check_names(frame: pl.DataFrame, column: str, allowed: dict[str, Any]) -> None:
    for value in frame[column].unique():
        if value not in allowed:
            raise ValueError(f"{value!r} is not a {column}")


def _flatten_structs(frame: pl.DataFrame, name: str, path: Path) -> pl.DataFrame:
    """All items of a list of structs as a table of their own."""
    column = frame[name]
    flat = column.filter(column.list.len() > 0).explode()
    if flat.null_count():
        raise _missing_value_error(name, path)
    unnested = flat.struct.unnest()
    if sum(unnested.null_count().row(0)):
        raise _missing_value_error(name, path)
    return unnested


def _read_structs(
    frame: pl.DataFrame, name: str, fields: Sequence[str], path: Path
) -> Iterator[list[Any]]:
    """The rows of a list of structs as tuples; much faster than one dictionary per struct."""
    items = _flatten_structs(frame, name, path)
    rows = iter(list(zip(*(items[field].to_list() for field in fields), strict=True)))
    return iter([[next(rows) for _ in range(n)] for n in frame[name].list.len().to_list()])
