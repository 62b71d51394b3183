"""Read the ops of a run and the ends of sync points as columns with keys, codes, orders, labels,
from the run or what the comparison knows of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.page.labels import op_label_column
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_table import RowTable
from syncpoint.run.model import OpKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.table_columns import OP_KEY, op_row, op_schema
from syncpoint.run.storage.table_reader import Records

CLASS = "class"
"""Column that tells model inputs ("i") from ops ("o"), which may share a name."""
KEY = "key"
"""Column with the key of an op and its class as one text."""
KEY_SCHEMA: dict[str, Any] = {
    **{"op": pl.String, "call": pl.Int64, "graph": pl.String},
    **{"path": pl.String, "iteration": pl.Int64},
}


def key_column() -> pl.Expr:
    """Return key and class as one text; it contains the lengths of the names, so that no two keys
    share a text."""
    op, call, graph, path, iteration = (pl.col(name) for name in OP_KEY)
    numbers = [call, iteration, *[name.str.len_bytes() for name in (op, graph, path)]]
    fields = [
        *[number.cast(pl.String).fill_null("-") for number in numbers],
        *[name.fill_null("") for name in (op, graph, path)],
        pl.col(CLASS),
    ]
    return pl.concat_str(fields, separator=" ").alias(KEY)


def code_keys(*keys: pl.Series) -> list[NDArray[np.int64]]:
    """Return a number for each key, the same for the same text: faster to look up than text."""
    ranks = pl.concat([column.rename(KEY) for column in keys]).rank("dense")
    codes = ranks.cast(pl.Int64).to_numpy() - 1
    return np.split(codes, np.cumsum([len(column) for column in keys])[:-1])


def first_indices(codes: NDArray[np.int64], size: int = 0) -> NDArray[np.int64]:
    """Return where each code occurs first; -1 for a code that does not occur."""
    indices = np.full(max(size, int(codes.max(initial=-1)) + 1), -1, np.int64)
    # Of several assignments to one code the last one stays.
    indices[codes[::-1]] = np.arange(len(codes))[::-1]
    return indices


def read_ops(run: Run, *more_columns: str) -> pl.DataFrame:
    """Return the ops of a run in execution order: key, label, type, module, inputs, and more
    columns if named."""
    names = [*OP_KEY, "type", "module", "inputs", *more_columns]
    if isinstance(run.ops, Records):
        frame = run.ops.table.select(names)
    else:
        schema = op_schema()
        columns = zip(*map(op_row, run.ops), strict=True) if len(run.ops) else [()] * len(schema)
        column_by_name: dict[str, Any] = dict(zip(schema, columns, strict=True))
        for name in ("inputs", "source"):
            fields = [field.name for field in schema[name].inner.fields]  # type: ignore[attr-defined]
            column_by_name[name] = [
                [dict(zip(fields, values, strict=True)) for values in structs]
                for structs in column_by_name[name]
            ]
        frame = pl.DataFrame(
            {name: pl.Series(name, column_by_name[name], schema[name]) for name in names}
        )
    return frame.with_columns(op_label_column(), pl.lit("o").alias(CLASS)).with_columns(
        key_column()
    )


def read_ends(table: RowTable, side: str) -> pl.DataFrame:
    """Return one end of every sync point but those of parameters, in execution order of the target:
    row, key, class, label, kind, type, module, order, and the key as one text."""
    frame = table.frame.select(
        *[pl.col(f"{side}_{name}").alias(name) for name in (*OP_KEY, "role", "type", "module")],
        pl.col(f"{side}_order").alias("order"),
        pl.col(f"{side}_name").alias("name"),
    ).with_row_index("row")
    frame = frame.with_columns(pl.col("row").cast(pl.Int64))[table.execution]
    role = pl.col("role")
    is_input = role == "model-input"
    has_name = is_input & (pl.col("name") != "")
    label = pl.when(has_name).then(pl.col("name")).otherwise(op_label_column())
    kind = pl.when(is_input).then(pl.lit("i")).when(role == "state").then(pl.lit("s"))
    return (
        frame.filter(role != "parameter")
        .with_columns(
            pl.when(is_input).then(pl.lit("i")).otherwise(pl.lit("o")).alias(CLASS),
            kind.otherwise(pl.lit("o")).alias("kind"),
            label.alias("label"),
        )
        .with_columns(key_column())
    )


def read_known_ops(opened: OpenComparison, side: str, ends: pl.DataFrame) -> pl.DataFrame:
    """Return the ops that the comparison knows without the run: all of the target, in order; of
    the reference those with a tensor that was paired, or that has no counterpart."""
    paired = ends.filter((pl.col(CLASS) == "o") & (pl.col("order") >= 0))
    (codes,) = code_keys(paired[KEY])
    paired = paired[np.sort(first_indices(codes))]
    unmatched = pl.DataFrame(
        [
            (tensor["op"], tensor["type"], tensor["module"])
            for tensor in opened.about["unmatched"]
            if tensor["side"] == side
            and tensor["role"] not in ("parameter", "model-input", "state")
        ],
        schema={"label": pl.String, "other_type": pl.String, "other_module": pl.String},
        orient="row",
    ).unique("label", keep="first", maintain_order=True)
    if side == "target":
        return _join_target_ops(opened, paired, unmatched)
    frame = paired.sort("order", maintain_order=True).select(*OP_KEY, "label", "type", "module")
    rest = unmatched.join(frame, on="label", how="anti", maintain_order="left")
    ops = pl.concat(
        [
            frame,
            rest.select(
                pl.col("label").alias("op"),
                pl.lit(0, pl.Int64).alias("call"),
                pl.lit("").alias("graph"),
                pl.lit("").alias("path"),
                pl.lit(0, pl.Int64).alias("iteration"),
                "label",
                pl.col("other_type").alias("type"),
                pl.col("other_module").alias("module"),
            ),
        ]
    )
    return ops.with_columns(pl.lit("o").alias(CLASS)).with_columns(key_column())


def _join_target_ops(
    opened: OpenComparison, paired: pl.DataFrame, unmatched: pl.DataFrame
) -> pl.DataFrame:
    keys = [op for op, _ in opened.about["edges"]]
    ops = pl.DataFrame(keys, schema=KEY_SCHEMA, orient="row").with_columns(op_label_column())
    columns = paired.select(*OP_KEY, "type", "module")
    ops = ops.join(columns, on=OP_KEY, how="left", nulls_equal=True, maintain_order="left")
    ops = ops.join(unmatched, on="label", how="left", maintain_order="left")
    return ops.with_columns(
        pl.coalesce("type", "other_type", pl.lit("")).alias("type"),
        pl.coalesce("module", "other_module", pl.lit("")).alias("module"),
        pl.lit("o").alias(CLASS),
    ).with_columns(key_column())


def find_orders(opened: OpenComparison, labels: set[str]) -> list[int]:
    """Return the places in the target's execution order of the ops with these names."""
    keys = enumerate(OpKey(*op) for op, _ in opened.about["edges"])
    return [order for order, key in keys if str(key) in labels]


def read_reference_ops(opened: OpenComparison) -> pl.DataFrame:
    """Return label, file, line, type, module and order of the reference's ops: all of them or,
    without the run, those that the comparison knows."""
    run = opened.run("reference")
    if run is not None:
        innermost = pl.col("source").list.last().struct
        ops = read_ops(run, "source").with_row_index("order")
        ops = ops.select(
            "label", innermost.field("file"), innermost.field("line"), "type", "module", "order"
        )
    else:
        source = pl.col("reference_source").fill_null("")
        ops = opened.table.frame.filter(pl.col("reference_role") == "output").select(
            op_label_column("reference_"),
            source.str.extract(r"^(.*):\d+$").alias("file"),
            source.str.extract(r":(\d+)$").cast(pl.Int64, strict=False).alias("line"),
            pl.col("reference_type").alias("type"),
            pl.col("reference_module").alias("module"),
            pl.col("reference_order").alias("order"),
        )
    ops = ops.with_columns(pl.col("order").cast(pl.Int64))
    return ops.unique("label", keep="first", maintain_order=True)
