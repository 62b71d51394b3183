"""The entries of the graph of one run: inputs and ops, their edges, groups and reasons.

Without its run a side consists of what the comparison knows: the target's ops and what they read,
and the reference's ops that have a counterpart.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.comparison.storage.comparison_json import unmatched_from_json
from syncpoint.page.fused_ops import add_fused
from syncpoint.page.graph_parts import Whole
from syncpoint.page.module_groups import groups_among
from syncpoint.page.op_columns import (
    CLASS,
    KEY,
    KEY_SCHEMA,
    codes_of,
    ends_of,
    firsts,
    ops_known,
    ops_of,
)
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import Side
from syncpoint.run.storage.table_columns import OP_KEY

_NOT_RECORDED = "not recorded"
_KEY = [*OP_KEY, CLASS]


def build_whole(opened: Opened, side: Side) -> Whole:
    """Return all entries of one side, with their sync points and edges."""
    run = opened.run(side)
    missing = "" if run is not None else opened.why_not.get(side, "it is not at hand")
    ends = ends_of(opened.table, side)
    ops = ops_of(run) if run is not None else ops_known(opened, side, ends)
    entries, codes = _entries(opened, side, ops, ends)
    place = firsts(entries["code"].to_numpy())
    pairs = ends.select("row", pl.Series("entry", place[codes]))
    read = ops.select("inputs", *OP_KEY) if run is not None else None
    edges = _edges(entries.select(_KEY).with_row_index("entry"), read, opened, side)
    entries = _with_groups(opened, entries, pairs)
    entries = _with_reasons(opened, side, entries, pairs)
    entries = add_fused(opened, side, entries, pairs)
    return Whole(entries, pairs, edges, missing)


def _entries(
    opened: Opened, side: Side, ops: pl.DataFrame, ends: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """What is given to the model, its ops, and what else has a sync point, each with a number; and
    the number of every end."""
    columns = [*_KEY, "code", "label", "kind", "type", "module"]
    codes, of_ops = codes_of(ends[KEY], ops[KEY])
    own = ops.with_columns(pl.lit("o").alias("kind"), pl.Series("code", of_ops)).select(columns)
    first = firsts(codes, int(of_ops.max(initial=-1)) + 1)
    first[of_ops] = -1
    extra = ends.with_columns(pl.Series("code", codes)).select(columns)
    extra = extra[np.sort(first[first >= 0])]
    unknown = len(codes) + len(of_ops)
    lonely = [
        {**dict.fromkeys(OP_KEY, ""), "call": 0, "iteration": 0, "op": one["op"], CLASS: "i"}
        | {"label": one["op"], "kind": "i", "type": one["type"], "module": one["module"]}
        | {"code": unknown + at}
        for at, one in enumerate(opened.about["unmatched"])
        if one["side"] == side and one["role"] == "model-input"
    ]
    if lonely:
        given = pl.DataFrame(lonely, schema=extra.schema).unique("label", maintain_order=True)
        extra = pl.concat([extra, given.filter(~pl.col("label").is_in(extra["label"].to_list()))])
    before = pl.col("kind").is_in(["i", "s"])
    return pl.concat([extra.filter(before), own, extra.filter(~before)]), codes


def _edges(
    index: pl.DataFrame, read: pl.DataFrame | None, opened: Opened, side: Side
) -> NDArray[np.int64]:
    """Which entry reads which."""
    if read is not None:
        flat = read.select(
            pl.col("inputs"), *[pl.col(name).alias(f"to_{name}") for name in OP_KEY]
        ).explode("inputs", empty_as_null=False)
        flat = flat.filter(pl.col("inputs").is_not_null()).unnest("inputs")
        flat = flat.filter(pl.col("role") != "parameter")
    else:
        flat = _edges_known(opened, side)
    given = pl.when(pl.col("role") == "model-input").then(pl.lit("i")).otherwise(pl.lit("o"))
    flat = flat.with_columns(given.alias(CLASS), pl.lit("o").alias("to_class"))
    found = flat.join(index, on=_KEY, how="inner", nulls_equal=True)
    to = [*[f"to_{name}" for name in OP_KEY], "to_class"]
    ends = index.rename({"entry": "to"})
    found = found.join(ends, left_on=to, right_on=_KEY, how="inner", nulls_equal=True)
    found = found.filter(pl.col("entry") != pl.col("to")).select("entry", "to")
    found = found.unique().sort("to", "entry")
    return found.cast(pl.Int64).to_numpy().reshape(-1, 2)


def _with_groups(opened: Opened, entries: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The group of its first sync point, else that of its module; "" is the top level."""
    table = opened.table
    first = pl.Series(firsts(pairs["entry"].to_numpy(), entries.height))
    named = table.groups.gather(pairs["row"]).gather(first.set(first < 0, None))
    known = groups_among(entries["module"].unique(), set(table.groups.unique()))
    own = entries["module"].replace_strict(known, return_dtype=pl.String)
    kind = pl.col("kind")
    return entries.with_columns(
        pl.coalesce(
            named.alias("named"),
            pl.when(kind == "i").then(pl.lit("inputs")).otherwise(own.alias("own")),
        ).alias("group")
    )


def _with_reasons(
    opened: Opened, side: Side, entries: pl.DataFrame, pairs: pl.DataFrame
) -> pl.DataFrame:
    """Why those without a sync point have none, and which make a model output."""
    said: dict[str, str] = {}
    wholes: dict[str, str | None] = {}
    outputs: set[str] = set()
    for one in opened.about["unmatched"]:
        if one["side"] == side:
            if one["role"] != "parameter" and (one["counted"] or one["op"] not in said):
                said[one["op"]] = str(unmatched_from_json(one).why)
                wholes[one["op"]] = one["inside"] or None
            if one["role"] == "model-output":
                outputs.add(one["op"])
    paired = np.zeros(entries.height, bool)
    paired[pairs["entry"].to_numpy()] = True
    made = np.zeros(entries.height, bool)
    output = opened.table.frame["output"].gather(pairs["row"]).to_numpy()
    made[pairs["entry"].to_numpy()[output]] = True
    made |= entries["label"].is_in(list(outputs)).to_numpy()
    reason = entries["label"].replace_strict(said, default=_NOT_RECORDED, return_dtype=pl.String)
    whole = entries["label"].replace_strict(wholes, default=None, return_dtype=pl.String)
    without = pl.lit(pl.Series("paired", paired))
    return entries.with_columns(
        whole.alias("whole"),
        pl.when(without).then(pl.lit("")).otherwise(reason).alias("reason"),
        pl.when(pl.lit(pl.Series("made", made)) & (pl.col("kind") == "o"))
        .then(pl.lit("x"))
        .otherwise(pl.col("kind"))
        .alias("kind"),
    )


def _edges_known(opened: Opened, side: str) -> pl.DataFrame:
    """What the ops read, as far as the comparison knows: nothing of the reference."""
    said = opened.about["edges"] if side == "target" else []
    flat = [(*op, "output", *reader) for reader, inputs in said for op in inputs]
    schema = {**KEY_SCHEMA, "role": pl.String}
    schema |= {f"to_{name}": kind for name, kind in KEY_SCHEMA.items()}
    return pl.DataFrame(flat, schema=schema, orient="row")
