"""The names of ops and of the ends of sync points, as whole columns."""

from __future__ import annotations

import polars as pl

from syncpoint.run.storage.table_columns import OP_KEY

NAMING = ("graph", "path", "op", "iteration", "call", "name", "role", "index")
"""What the name of an end is made of."""


def labels_of(frame: pl.DataFrame, side: str) -> pl.Series:
    """The names of one side's ends, as the reports write them."""

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
    text = pl.when(col("name") == "").then(op).otherwise(col("name"))
    role, index = col("role"), col("index")
    text += (
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
    return frame.select(text.alias(f"{side}_label")).to_series()


def label_of(before: str = "") -> pl.Expr:
    """`str(OpKey)` of a whole column."""
    op, call, graph, path, iteration = (pl.col(f"{before}{name}") for name in OP_KEY)
    around = [pl.when(place == "").then(None).otherwise(place) for place in (graph, path)]
    name = pl.concat_str([*around, op], separator="/", ignore_nulls=True)
    for sign, own in (("^", iteration), ("#", call)):
        name += pl.when(own > 0).then(pl.format(f"{sign}{{}}", own)).otherwise(pl.lit(""))
    return name.alias("label")
