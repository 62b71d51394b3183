"""The graphs of the two runs, as columns that the page lays out.

Everything is done on whole columns: a run may have hundreds of thousands of ops. Where a run is not
at hand the comparison still knows the target's ops and what they read, and of the reference those
ops that have a partner.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.comparison.storage.comparison_folder import lonely_of
from syncpoint.page.graph_groups import Part, Whole, piece, rolled_up
from syncpoint.page.grouping import groups_among
from syncpoint.page.open_comparison import Opened
from syncpoint.page.ops import (
    CLASS,
    KEY,
    codes_of,
    edges_known,
    ends_of,
    firsts,
    label_of,
    ops_known,
    ops_of,
)
from syncpoint.page.schema import Graph, Side
from syncpoint.page.sync_point_states import packed
from syncpoint.run.storage.table_columns import OP_KEY

MOST = 50_000
"""Entries in one answer; a larger run is sent as groups, and each when it is opened."""
MOST_OF_GROUP = 10_000
"""Entries of one group in one answer; of a larger one those around a sync point are sent."""
_NOT_RECORDED = "not recorded"
_KEY = [*OP_KEY, CLASS]


_known: WeakKeyDictionary[Opened, dict[Side, Whole]] = WeakKeyDictionary()
_lock = Lock()


def graph(
    opened: Opened,
    side: Side,
    group: str = "",
    row: int | None = None,
    most: int = MOST,
    most_of_group: int = MOST_OF_GROUP,
) -> Graph:
    """The graph of one side, or of one of its groups; of a group that is too large the ops around
    a sync point, or the first."""
    sides = _sides(opened)
    whole = sides[side]
    part = Part(entries=whole.entries, pairs=whole.pairs, edges=whole.edges)
    if group:
        part = piece(sides, side, group, row, most, most_of_group)
    elif max(one.entries.height for one in sides.values()) > most:
        # Groups on both sides or on none: the page pairs like with like.
        part = rolled_up(sides, side, most)
    return _sent(opened, side, group, whole.missing, part)


def _sides(opened: Opened) -> dict[Side, Whole]:
    # The page asks for both sides at once.
    with _lock:
        if opened not in _known:
            _known[opened] = {
                "target": _whole(opened, "target"),
                "reference": _whole(opened, "reference"),
            }
        return _known[opened]


def _sent(
    opened: Opened,
    side: Side,
    group: str,
    missing: str,
    part: Part,
) -> Graph:
    entries, pairs, edges = part.entries, part.pairs, part.edges
    about = opened.about[side]
    types, type_of = _coded(entries["type"])
    modules, module_of = _coded(entries["module"])
    groups, group_of = _coded(entries["group"])
    reasons, reason_of = _coded(entries["reason"])
    evidence: list[str] = []
    evidence_of = packed(np.zeros(0, np.int64), "<i4")
    if side == "target":
        said = opened.table.frame.select(
            pl.concat_str(
                ["evidence", pl.col("confidence").round(2).cast(pl.String)], separator=" "
            )
        ).to_series()
        evidence, evidence_of = _coded(said.gather(pairs["row"]))
    return Graph(
        side=side,
        name=str(about.get("model") or ""),
        group=group,
        complete=part.complete,
        before=part.before,
        after=part.after,
        missing=missing,
        names=entries["label"].to_list(),
        kinds="".join(entries["kind"].to_list()),
        types=types,
        type_of=type_of,
        modules=modules,
        module_of=module_of,
        groups=groups,
        group_of=group_of,
        reasons=reasons,
        reason_of=reason_of,
        counts=packed(entries["count"].to_numpy(), "<i4"),
        fused=packed(entries["fused"].to_numpy(), "<i4"),
        into=packed(entries["into"].to_numpy(), "<i4"),
        rows=packed(pairs["row"].to_numpy(), "<i4"),
        row_of=packed(pairs["entry"].to_numpy(), "<i4"),
        evidence=evidence,
        evidence_of=evidence_of,
        edges=packed(edges.reshape(-1), "<i4"),
    )


def _coded(words: pl.Series) -> tuple[list[str], str]:
    """Each word once, and the place of the word of every entry."""
    names = words.unique(maintain_order=True)
    codes = words.replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64)
    return names.to_list(), packed(codes.to_numpy(), "<i4")


# ---- the whole of one side -------------------------------------------------------------------


def _whole(opened: Opened, side: Side) -> Whole:
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
    entries = _with_fused(opened, side, entries, pairs)
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
        flat = edges_known(opened, side)
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
                said[one["op"]] = str(lonely_of(one).why)
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


def _with_fused(
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
