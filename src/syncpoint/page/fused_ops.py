"""The reference ops that one fused sync point stands for, in order, with their source lines; marks
of fused entries in a graph.

A fused op is measured once, at its end, and comes from as many source lines as it has pieces.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from syncpoint.page.labels import op_label_column
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.read_ops import read_ops, read_reference_ops
from syncpoint.page.schema import RegionOp, Side
from syncpoint.run.storage.table_columns import OP_KEY

_SCHEMA = {
    **{"row": pl.Int64, "label": pl.String, "file": pl.String, "line": pl.Int64},
    **{"type": pl.String, "module": pl.String},
}
_region_cache: WeakKeyDictionary[OpenComparison, pl.DataFrame] = WeakKeyDictionary()
_lock = Lock()


def read_regions(opened: OpenComparison) -> pl.DataFrame:
    """Return every op of every sync point that stands for several: row, label, file, line, type,
    module; file is "" and line 0 where the source is not known. Computed once."""
    with _lock:
        if opened not in _region_cache:
            _region_cache[opened] = _compute_regions(opened)
        return _region_cache[opened]


def list_region_ops(opened: OpenComparison, row: int) -> list[RegionOp]:
    """Return the ops of one sync point in execution order; empty where it stands for one op."""
    region = read_regions(opened).filter(pl.col("row") == row)
    if not region.height:
        return []
    measured = (
        opened.table.frame.lazy()
        .with_row_index("row")
        .filter(pl.col("reference_role") == "output", pl.col("reference_index") == 0)
        .select("row", op_label_column("reference_"))
        .filter(pl.col("label").is_in(region["label"].to_list()))
        .collect()
    )
    row_by_label = {label: number for number, label in reversed(measured.rows())}
    return [
        RegionOp(
            label=op["label"],
            type=op["type"],
            module=op["module"],
            row=row_by_label.get(op["label"]),
            file=op["file"],
            line=op["line"],
        )
        for op in region.iter_rows(named=True)
    ]


def _compute_regions(opened: OpenComparison) -> pl.DataFrame:
    rows = opened.table.frame.select(
        pl.col("introduced_region").fill_null([]).alias("label"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        op_label_column("reference_").alias("partner"),
        *[pl.col(f"target_{name}").alias(name) for name in OP_KEY],
        (pl.col("target_role").is_in(["output", "model-output", "state"])).alias("is_computed"),
    )
    regions = rows.filter(pl.col("label").list.len() > 1).select("row", "label")
    reference, target = opened.run("reference"), opened.run("target")
    ops = read_reference_ops(opened)
    if target is not None and reference is not None:
        rest = rows.filter(pl.col("is_computed") & (pl.col("label").list.len() < 2)).drop("label")
        regions = pl.concat([regions, _regions_by_origin(rest, read_ops(target, "origins"), ops)])
    flat = regions.explode("label").unique(["row", "label"], maintain_order=True)
    if not flat.height:
        return pl.DataFrame(schema=_SCHEMA)
    region_ops = flat.join(ops, on="label", how="left", maintain_order="left")
    return region_ops.sort("row", "order", maintain_order=True).select(
        "row",
        "label",
        pl.col("file").fill_null(""),
        pl.col("line").fill_null(0),
        pl.col("type").fill_null(""),
        pl.col("module").fill_null(""),
    )


def _regions_by_origin(
    rows: pl.DataFrame, target_ops: pl.DataFrame, reference_ops: pl.DataFrame
) -> pl.DataFrame:
    """Return the regions of rows whose op was not evaluated: the reference ops that are its
    origins, if its partner is among them."""
    fused = target_ops.filter(pl.col("origins").list.len() > 1).select(*OP_KEY, "origins")
    origins = rows.join(fused, on=OP_KEY, how="inner", nulls_equal=True).explode("origins")
    labels = reference_ops.select("label")
    origins = origins.join(labels, left_on="origins", right_on="label", how="semi")
    grouped = origins.group_by("row", maintain_order=True).agg(
        pl.col("origins").unique(maintain_order=True).alias("label"), pl.col("partner").first()
    )
    has_partner = pl.col("label").list.contains(pl.col("partner"))
    return grouped.filter(has_partner & (pl.col("label").list.len() > 1)).select("row", "label")


def add_fused_columns(
    opened: OpenComparison, side: Side, entries: pl.DataFrame, pairs: pl.DataFrame
) -> pl.DataFrame:
    """Add to the entries of a graph how many reference ops each stands for (`fused`), and which
    entry stands for one without a sync point (`into`)."""
    frame = opened.table.frame
    regions = frame["introduced_region"]
    fused = np.ones(entries.height, np.int64)
    into = np.full(entries.height, -1, np.int64)
    ends = pairs["entry"].to_numpy()
    sizes = regions.list.len().fill_null(0).cast(pl.Int64).gather(pairs["row"]).to_numpy()
    unpaired = entries.select("label", "kind", "reason", "whole").with_row_index("entry")
    unpaired = unpaired.filter((pl.col("reason") != "") & (pl.col("kind") != "i"))
    if side == "target":
        np.maximum.at(fused, ends, sizes)
        pieces = unpaired.drop_nulls("whole")
        wholes = pl.DataFrame({"end": ends[:0], "whole": pl.Series([], dtype=pl.String)})
        if len(pieces):
            labels = frame.select(op_label_column("reference_")).to_series().gather(pairs["row"])
            wholes = pl.DataFrame({"end": ends, "whole": labels})
            wholes = wholes.unique("whole", keep="first", maintain_order=True)
        members = pieces.join(wholes, on="whole", how="inner")
    else:
        fused_pairs = np.flatnonzero(sizes > 1)
        flat = pl.DataFrame(
            {"end": ends[fused_pairs], "label": regions.gather(pairs["row"][fused_pairs])}
        )
        flat = flat.explode("label").unique("label", keep="first", maintain_order=True)
        members = flat.join(unpaired, on="label", how="inner")
    into[members["entry"].to_numpy()] = members["end"].to_numpy()
    return entries.drop("whole").with_columns(
        pl.Series("fused", fused), pl.Series("into", into), count=pl.lit(1, pl.Int64)
    )
