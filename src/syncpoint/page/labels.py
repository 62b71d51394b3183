"""The displayed names of ops and of both ends of sync points, as whole columns of a data frame."""

from __future__ import annotations

import polars as pl

from syncpoint.run.storage.table_columns import OP_KEY

END_LABEL_FIELDS = ("graph", "path", "op", "iteration", "call", "name", "role", "index")
"""Fields that the name of an end is composed of."""


def label_ends(frame: pl.DataFrame, side: str) -> pl.Series:
    """Return the names of the ends of one side, as the reports write them."""

    def col(name: str) -> pl.Expr:
        return pl.col(f"{side}_{name}")

    path = [
        pl.when(col(name) == "").then(None).otherwise(col(name)) for name in ("graph", "path", "op")
    ]
    op = pl.concat_str(path, separator="/", ignore_nulls=True)
    op += (
        pl.when(col("iteration") > 0).then(pl.format("^{}", col("iteration"))).otherwise(pl.lit(""))
    )
    op += pl.when(col("call") > 0).then(pl.format("#{}", col("call"))).otherwise(pl.lit(""))
    label = pl.when(col("name") == "").then(op).otherwise(col("name"))
    role, index = col("role"), col("index")
    label += (
        pl.when((role == "output") & (index > 0))
        .then(pl.format(":{}", index))
        .when(role == "input")
        .then(pl.format(" (input {})", index))
        .when((role == "state") & (index > 0))
        .then(pl.lit(" before"))
        .when(role == "state")
        .then(pl.lit(" after"))
        .otherwise(pl.lit(""))
    )
    return frame.select(label.alias(f"{side}_label")).to_series()


def op_label_column(prefix: str = "") -> pl.Expr:
    """Return `str(OpKey)` as a column named `label`; `prefix` is that of the key columns."""
    op, call, graph, path, iteration = (pl.col(f"{prefix}{name}") for name in OP_KEY)
    parents = [pl.when(parent == "").then(None).otherwise(parent) for parent in (graph, path)]
    label = pl.concat_str([*parents, op], separator="/", ignore_nulls=True)
    for sign, number in (("^", iteration), ("#", call)):
        label += pl.when(number > 0).then(pl.format(f"{sign}{{}}", number)).otherwise(pl.lit(""))
    return label.alias("label")
