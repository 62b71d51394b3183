"""What the ends of sync points are called, as whole columns."""

from __future__ import annotations

import polars as pl

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
