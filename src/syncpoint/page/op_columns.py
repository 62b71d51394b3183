"""The ops of a run as columns, from the run itself or from what the comparison knows of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.page.labels import label_of
from syncpoint.page.open_comparison import Opened
from syncpoint.page.table import Table
from syncpoint.run.model import OpKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.table_columns import OP_KEY, op_row, op_schema
from syncpoint.run.storage.table_reader import Records

CLASS = "class"
"""What may share a name with an op and is none: "i" for a model input, else "o"."""
KEY = "key"
"""The key of an op and its class in one column."""
KEY_SCHEMA: dict[str, Any] = {
    **{"op": pl.String, "call": pl.Int64, "graph": pl.String},
    **{"path": pl.String, "iteration": pl.Int64},
}


def key_of() -> pl.Expr:
    """Key and class as one text; it says how long names are, so that no two share one."""
    op, call, graph, path, iteration = (pl.col(name) for name in OP_KEY)
    numbers = [call, iteration, *[name.str.len_bytes() for name in (op, graph, path)]]
    words = [
        *[number.cast(pl.String).fill_null("-") for number in numbers],
        *[name.fill_null("") for name in (op, graph, path)],
        pl.col(CLASS),
    ]
    return pl.concat_str(words, separator=" ").alias(KEY)


def codes_of(*keys: pl.Series) -> list[NDArray[np.int64]]:
    """A number for each, the same for the same text: much quicker to look up than text."""
    together = pl.concat([one.rename(KEY) for one in keys]).rank("dense")
    codes = together.cast(pl.Int64).to_numpy() - 1
    return np.split(codes, np.cumsum([len(one) for one in keys])[:-1])


def firsts(codes: NDArray[np.int64], size: int = 0) -> NDArray[np.int64]:
    """Where each number stands for the first time, -1 for one that is not among them."""
    found = np.full(max(size, int(codes.max(initial=-1)) + 1), -1, np.int64)
    # Of several places the one that is written last stays.
    found[codes[::-1]] = np.arange(len(codes))[::-1]
    return found


def ops_of(run: Run, *more: str) -> pl.DataFrame:
    """The ops of a run in execution order: key, label, type, module, inputs, and what else is
    wished for."""
    wanted = [*OP_KEY, "type", "module", "inputs", *more]
    if isinstance(run.ops, Records):
        frame = run.ops.table.select(wanted)
    else:
        schema = op_schema()
        columns = zip(*map(op_row, run.ops), strict=True) if len(run.ops) else [()] * len(schema)
        by_name: dict[str, Any] = dict(zip(schema, columns, strict=True))
        for name in ("inputs", "source"):
            fields = [field.name for field in schema[name].inner.fields]  # type: ignore[attr-defined]
            by_name[name] = [
                [dict(zip(fields, one, strict=True)) for one in several]
                for several in by_name[name]
            ]
        frame = pl.DataFrame(
            {name: pl.Series(name, by_name[name], schema[name]) for name in wanted}
        )
    return frame.with_columns(label_of(), pl.lit("o").alias(CLASS)).with_columns(key_of())


def ends_of(table: Table, side: str) -> pl.DataFrame:
    """One end of every sync point but those of parameters, in execution order of the target:
    row, key, class, label, kind, type, module, order, and the key in one."""
    frame = table.frame.select(
        *[pl.col(f"{side}_{name}").alias(name) for name in (*OP_KEY, "role", "type", "module")],
        pl.col(f"{side}_order").alias("order"),
        pl.col(f"{side}_name").alias("name"),
    ).with_row_index("row")
    frame = frame.with_columns(pl.col("row").cast(pl.Int64))[table.execution]
    role = pl.col("role")
    given = role == "model-input"
    named = pl.when(given & (pl.col("name") != "")).then(pl.col("name")).otherwise(label_of())
    kind = pl.when(given).then(pl.lit("i")).when(role == "state").then(pl.lit("s"))
    return (
        frame.filter(role != "parameter")
        .with_columns(
            pl.when(given).then(pl.lit("i")).otherwise(pl.lit("o")).alias(CLASS),
            kind.otherwise(pl.lit("o")).alias("kind"),
            named.alias("label"),
        )
        .with_columns(key_of())
    )


def ops_known(opened: Opened, side: str, ends: pl.DataFrame) -> pl.DataFrame:
    """The ops as the comparison knows them: the target's in order, with what was said of their
    tensors; of the reference those with a tensor that was paired, or left without a partner."""
    said = ends.filter((pl.col(CLASS) == "o") & (pl.col("order") >= 0))
    (codes,) = codes_of(said[KEY])
    said = said[np.sort(firsts(codes))]
    lonely = pl.DataFrame(
        [
            (one["op"], one["type"], one["module"])
            for one in opened.about["unmatched"]
            if one["side"] == side and one["role"] not in ("parameter", "model-input", "state")
        ],
        schema={"label": pl.String, "other_type": pl.String, "other_module": pl.String},
        orient="row",
    ).unique("label", keep="first", maintain_order=True)
    if side == "target":
        keys = [op for op, _ in opened.about["edges"]]
        frame = pl.DataFrame(keys, schema=KEY_SCHEMA, orient="row").with_columns(label_of())
        columns = said.select(*OP_KEY, "type", "module")
        frame = frame.join(columns, on=OP_KEY, how="left", nulls_equal=True, maintain_order="left")
        frame = frame.join(lonely, on="label", how="left", maintain_order="left")
        return frame.with_columns(
            pl.coalesce("type", "other_type", pl.lit("")).alias("type"),
            pl.coalesce("module", "other_module", pl.lit("")).alias("module"),
            pl.lit("o").alias(CLASS),
        ).with_columns(key_of())
    frame = said.sort("order", maintain_order=True).select(*OP_KEY, "label", "type", "module")
    left = lonely.join(frame, on="label", how="anti", maintain_order="left")
    found = pl.concat(
        [
            frame,
            left.select(
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
    return found.with_columns(pl.lit("o").alias(CLASS)).with_columns(key_of())


def orders_of(opened: Opened, labels: set[str]) -> list[int]:
    """Places in the target's execution order of the ops with these names."""
    found = enumerate(OpKey(*op) for op, _ in opened.about["edges"])
    return [at for at, key in found if str(key) in labels]


def reference_ops(opened: Opened) -> pl.DataFrame:
    """label, file, line, type, module, order of the reference's ops: all of them, or those of which
    the comparison knows."""
    run = opened.run("reference")
    if run is not None:
        last = pl.col("source").list.last().struct
        ops = ops_of(run, "source").with_row_index("order")
        found = ops.select(
            "label", last.field("file"), last.field("line"), "type", "module", "order"
        )
    else:
        source = pl.col("reference_source").fill_null("")
        found = opened.table.frame.filter(pl.col("reference_role") == "output").select(
            label_of("reference_"),
            source.str.extract(r"^(.*):\d+$").alias("file"),
            source.str.extract(r":(\d+)$").cast(pl.Int64, strict=False).alias("line"),
            pl.col("reference_type").alias("type"),
            pl.col("reference_module").alias("module"),
            pl.col("reference_order").alias("order"),
        )
    found = found.with_columns(pl.col("order").cast(pl.Int64))
    return found.unique("label", keep="first", maintain_order=True)
