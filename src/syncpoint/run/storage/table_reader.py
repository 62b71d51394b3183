"""Reading the tables of a run: checked at once, made into records when somebody looks.

A run may have hundreds of thousands of ops. Its tables are checked column by column when it is
opened, so that structural damage is found there; an Op or a Tensor is made when it is asked for,
some neighbours with it, and kept from then on.
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
_ROLES = {role.value: role for role in Role}
_KEPT = {kept.value: kept for kept in Kept}
_ROW_BYTES, _MAX_EXPANSION = 450, 1_000
"""Memory that a row takes in columns, and how many times the size of its file a table may take:
ops that differ in a number alone take one byte each in the file."""
_CHUNK = 2048
"""Records made at once."""


class Records(Sequence[T], Generic[T]):
    """The records of a table in order, each made when it is first asked for."""

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
        self._index: dict[tuple[Any, ...], int] | None = None

    @property
    def table(self) -> pl.DataFrame:
        """The same as columns, for whoever looks at all of them."""
        return self._frame

    def __len__(self) -> int:
        return self._frame.height

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> list[T]: ...
    def __getitem__(self, at: int | slice) -> T | list[T]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        at %= len(self)
        return self._chunk(at // _CHUNK)[at % _CHUNK]

    def __iter__(self) -> Iterator[T]:
        for number in range(-(-len(self) // _CHUNK)):
            yield from self._chunk(number)

    def find(self, key: tuple[Any, ...]) -> T | None:
        """The record with this key, given as the row that it is in the table."""
        if self._index is None:
            columns = (self._frame[name].to_list() for name in self._key)
            self._index = {row: at for at, row in enumerate(zip(*columns, strict=True))}
        at = self._index.get(key)
        return None if at is None else self[at]

    def _chunk(self, number: int) -> list[T]:
        found = self._chunks.get(number)
        if found is None:
            with _no_collection():
                made = self._build(self._frame.slice(number * _CHUNK, _CHUNK))
            # Two threads may make the same; one of them must win for good.
            found = self._chunks.setdefault(number, made)
        return found


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without the cyclic collector, which would visit every record again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_ops(table: ParquetTable) -> Records[Op]:
    """The ops of a run in order; a broken table is a FormatError."""
    path = table.path
    frame = _read(table, op_schema(), OP_KEY)
    _refuse_duplicates(frame, OP_KEY, path)
    _check_keys(frame)
    edges = _items(frame, "inputs")
    _check_keys(edges)
    _check_names(edges, "role", _ROLES)
    _items(frame, "source")
    if frame["origins"].explode().null_count() > (frame["origins"].list.len() == 0).sum():
        raise FormatError(f"no gaps inside column 'origins' of {path}", "one")
    attributes = _Parsed(path)
    # Equal keys, edges and frames are one object: a tensor is read several times, a line makes
    # many ops.
    key_of = cache(OpKey)
    edge_of = cache(lambda edge: Edge(key_of(*edge[:5]), edge[5], _ROLES[edge[6]]))
    frame_of = cache(lambda line: Frame(*line))
    plain = (*OP_KEY, "type", "attributes", "module", "module_type", "origins", "random")

    def build(some: pl.DataFrame) -> list[Op]:
        rows = zip(*(some[name].to_list() for name in plain), strict=True)
        nested = (_nested(some, "inputs", EDGE), _nested(some, "source", FRAME))
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
    """The tensors of a run in order; a broken table is a FormatError."""
    path = table.path
    frame = _read(table, tensor_schema(), TENSOR_KEY)
    _refuse_duplicates(frame, TENSOR_KEY, path)
    _check_keys(frame)
    _check_names(frame, "role", _ROLES)
    _check_names(frame, "kept", _KEPT)
    key_of = cache(OpKey)
    part_of = cache(Part)
    parse = _Parsed(path)
    for text in frame["quantization"].drop_nulls().unique():
        quantization_from_json(parse(text))
    names = list(tensor_schema())

    def build(some: pl.DataFrame) -> list[Tensor]:
        result = []
        for row in zip(*(some[name].to_list() for name in names), strict=True):
            (op, call, graph, path_in, iteration, role, index, sample, step, rank, name,
             dtype, shape, kept, strides, layout, device, alias_of, quantization, requires_grad,
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
                kept=_KEPT[kept],
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
            result.append(tensor)
        return result

    for at in _unlike(frame):
        check_tensor(build(frame.slice(at, 1))[0])
    return Records(frame, TENSOR_KEY, build)


def _unlike(frame: pl.DataFrame) -> list[int]:
    """One row of each kind that the rules for tensors can tell apart, and all with a negative
    number: those keep the rules or break them together."""
    columns = ("dtype", "kept", "nbytes", "shard")
    facts = zip(
        *(frame[name].to_list() for name in columns),
        map(tuple, frame["shape"].to_list()),
        strict=True,
    )
    first: dict[tuple[Any, ...], int] = {}
    for at, fact in enumerate(facts):
        first.setdefault(fact, at)
    negative = (frame["offset"] < 0) | (frame["index"] < 0)
    return sorted({*first.values(), *negative.arg_true().to_list()})


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


def _read(table: ParquetTable, schema: dict[str, pl.DataType], key: Sequence[str]) -> pl.DataFrame:
    table.check_columns(schema)
    table.check_keys(key)
    table.check_memory(table.rows * _ROW_BYTES, _MAX_EXPANSION, "read it with Polars, by columns")
    frame = table.read(schema)
    for name in schema:
        if name not in MAY_BE_NULL and frame[name].null_count():
            raise FormatError(f"a value in each row of column {name!r} of {table.path}", "a gap")
    return frame


def _refuse_duplicates(frame: pl.DataFrame, key: Sequence[str], path: Path) -> None:
    doubled = frame.select(key).is_duplicated()
    if doubled.any():
        first = frame.select(key).filter(doubled).row(0)
        raise FormatError(f"each key once in {path}", f"twice {first}")


def _check_keys(frame: pl.DataFrame) -> None:
    """The rule of `check_op_key` for a whole column."""
    bad = (frame["call"] < 0) | (frame["iteration"] < 0)
    if bad.any():
        row = frame.filter(bad).row(0, named=True)
        check_op_key(OpKey(row["op"], row["call"], iteration=row["iteration"]))


def _check_names(frame: pl.DataFrame, column: str, known: dict[str, Any]) -> None:
    for value in frame[column].unique():
        if value not in known:
            raise ValueError(f"{value!r} is not a {column}")


def _items(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """All items of a list of structs as a table of their own."""
    column = frame[name]
    flat = column.filter(column.list.len() > 0).explode()
    if flat.null_count():
        raise FormatError(f"no gaps inside column {name!r}", "one")
    unnested = flat.struct.unnest()
    if sum(unnested.null_count().row(0)):
        raise FormatError(f"no gaps inside column {name!r}", "one")
    return unnested


def _nested(frame: pl.DataFrame, name: str, inner: Sequence[str]) -> Iterator[list[Any]]:
    """The rows of a list of structs as tuples; much quicker than dictionaries one by one."""
    items = _items(frame, name)
    rows = iter(list(zip(*(items[f].to_list() for f in inner), strict=True)))
    return iter([[next(rows) for _ in range(n)] for n in frame[name].list.len().to_list()])
