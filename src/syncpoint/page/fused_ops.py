"""Which ops of the reference a sync point stands for where they are several, and their lines.

A fused op is measured once, at its end, and was written in as many lines as it has pieces.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from syncpoint.page.labels import label_of
from syncpoint.page.op_columns import ops_of, reference_ops
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import RegionOp, Side
from syncpoint.run.storage.table_columns import OP_KEY

_SCHEMA = {
    **{"row": pl.Int64, "label": pl.String, "file": pl.String, "line": pl.Int64},
    **{"type": pl.String, "module": pl.String},
}
_known: WeakKeyDictionary[Opened, pl.DataFrame] = WeakKeyDictionary()
_lock = Lock()


def regions(opened: Opened) -> pl.DataFrame:
    """row, label, file, line, type, module: every op of every sync point that has several; file is
    "" and line 0 where it is not known what made the op."""
    with _lock:
        if opened not in _known:
            _known[opened] = _regions(opened)
        return _known[opened]


def region_of(opened: Opened, row: int) -> list[RegionOp]:
    """The ops of one sync point, in execution order; none where it is one for one."""
    found = regions(opened).filter(pl.col("row") == row)
    if not found.height:
        return []
    measured = (
        opened.table.frame.lazy()
        .with_row_index("at")
        .filter(pl.col("reference_role") == "output", pl.col("reference_index") == 0)
    )
    labels = measured.select("at", label_of("reference_"))
    wanted = labels.filter(pl.col("label").is_in(found["label"].to_list())).collect()
    rows = {label: at for at, label in reversed(wanted.rows())}
    return [
        RegionOp(
            label=one["label"],
            type=one["type"],
            module=one["module"],
            row=rows.get(one["label"]),
            file=one["file"],
            line=one["line"],
        )
        for one in found.iter_rows(named=True)
    ]


def _regions(opened: Opened) -> pl.DataFrame:
    frame = opened.table.frame
    said = frame.select(
        pl.col("introduced_region").fill_null([]).alias("label"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        label_of("reference_").alias("own"),
        *[pl.col(f"target_{name}").alias(name) for name in OP_KEY],
        (pl.col("target_role").is_in(["output", "model-output", "state"])).alias("made"),
    )
    measured = said.filter(pl.col("label").list.len() > 1).select("row", "label")
    reference, target = opened.run("reference"), opened.run("target")
    ops = reference_ops(opened)
    if target is not None and reference is not None:
        rest = said.filter(pl.col("made") & (pl.col("label").list.len() < 2)).drop("label")
        measured = pl.concat([measured, _by_origin(rest, ops_of(target, "origins"), ops)])
    flat = measured.explode("label").unique(["row", "label"], maintain_order=True)
    if not flat.height:
        return pl.DataFrame(schema=_SCHEMA)
    found = flat.join(ops, on="label", how="left", maintain_order="left")
    return found.sort("row", "order", maintain_order=True).select(
        "row",
        "label",
        pl.col("file").fill_null(""),
        pl.col("line").fill_null(0),
        pl.col("type").fill_null(""),
        pl.col("module").fill_null(""),
    )


def _by_origin(rows: pl.DataFrame, target: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Where nothing was evaluated, an op stands for those of the reference that it says it was made
    from, its partner among them."""
    many = target.filter(pl.col("origins").list.len() > 1).select(*OP_KEY, "origins")
    found = rows.join(many, on=OP_KEY, how="inner", nulls_equal=True).explode("origins")
    found = found.join(ops.select("label"), left_on="origins", right_on="label", how="semi")
    grouped = found.group_by("row", maintain_order=True).agg(
        pl.col("origins").unique(maintain_order=True).alias("label"), pl.col("own").first()
    )
    partner = pl.col("label").list.contains(pl.col("own"))
    return grouped.filter(partner & (pl.col("label").list.len() > 1)).select("row", "label")


def add_fused(
    opened: Opened, side: Side, entries: pl.DataFrame, pairs: pl.DataFrame
) -> pl.DataFrame:
    """How many ops of the reference a sync point stands for, and which ops without one of their
    own it stands for on this side."""
    frame = opened.table.frame
    regions = frame["introduced_region"]
    fused = np.ones(entries.height, np.int64)
    into = np.full(entries.height, -1, np.int64)
    ends = pairs["entry"].to_numpy()
    sizes = regions.list.len().fill_null(0).cast(pl.Int64).gather(pairs["row"]).to_numpy()
    alone = entries.select("label", "kind", "reason", "whole").with_row_index("entry")
    alone = alone.filter((pl.col("reason") != "") & (pl.col("kind") != "i"))
    if side == "target":
        np.maximum.at(fused, ends, sizes)
        pieces = alone.drop_nulls("whole")
        stands = pl.DataFrame({"end": ends[:0], "whole": pl.Series([], dtype=pl.String)})
        if len(pieces):
            whole = frame.select(label_of("reference_")).to_series().gather(pairs["row"])
            stands = pl.DataFrame({"end": ends, "whole": whole})
            stands = stands.unique("whole", keep="first", maintain_order=True)
        found = pieces.join(stands, on="whole", how="inner")
    else:
        many = np.flatnonzero(sizes > 1)
        flat = pl.DataFrame({"end": ends[many], "label": regions.gather(pairs["row"][many])})
        flat = flat.explode("label").unique("label", keep="first", maintain_order=True)
        found = flat.join(alone, on="label", how="inner")
    into[found["entry"].to_numpy()] = found["end"].to_numpy()
    one = pl.lit(1, pl.Int64)
    entries = entries.drop("whole")
    return entries.with_columns(pl.Series("fused", fused), pl.Series("into", into), count=one)
