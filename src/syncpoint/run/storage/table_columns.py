"""The columns of `ops.parquet` and `tensors.parquet`: schemas, and ops and tensors as flat tuples
(rows) that no garbage collector tracks.

Keys and plain facts are columns of their own, so that any tool can filter and join on them; lists
stay lists; only attributes and quantization, whose structure varies, are JSON text. polars is
imported on first use: most commands never use a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncpoint.run.model import (
    Op,
    Statistics,
    Tensor,
)
from syncpoint.run.storage.record_json import STATISTICS, quantization_to_json, to_json_text

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
    floats = {f"stat_{name}": pl.Float64() for name in ("min", "max", "mean", "std", "l2")}
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
        **floats,
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
    """The row of an op. Like `tensor_row` it has no object that the garbage collector tracks."""
    return (
        *op.key.row(),
        op.type,
        tuple((*e.op.row(), e.index, e.role.value) for e in op.inputs),
        to_json_text(dict(op.attributes)),
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
        None if t.quantization is None else to_json_text(quantization_to_json(t.quantization)),
        t.requires_grad,
        t.address,
        t.shard,
        t.offset,
        t.nbytes,
        *(_NO_STATISTICS if t.statistics is None else _statistics_row(t.statistics)),
        t.digest,
        t.digest_kind,
    )


_NO_STATISTICS = (None,) * len(STATISTICS)


def _statistics_row(s: Statistics) -> tuple[float, ...]:
    return (s.count, s.min, s.max, s.mean, s.std, s.l2, s.nan, s.inf, s.zero)
