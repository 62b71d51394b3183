"""The graphs of the two runs, as columns that the page lays out.

Everything is done on whole columns: a run may have hundreds of thousands of ops.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from syncpoint.page.encoding import pack_array
from syncpoint.page.graph_entries import build_whole
from syncpoint.page.graph_parts import Part, Whole, piece, rolled_up
from syncpoint.page.open_comparison import Opened
from syncpoint.page.schema import Graph, Side

MOST = 50_000
"""Entries in one answer; a larger run is sent as groups, and each when it is opened."""
MOST_OF_GROUP = 10_000
"""Entries of one group in one answer; of a larger one those around a sync point are sent."""


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
                "target": build_whole(opened, "target"),
                "reference": build_whole(opened, "reference"),
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
    evidence_of = pack_array(np.zeros(0, np.int64), "<i4")
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
        counts=pack_array(entries["count"].to_numpy(), "<i4"),
        fused=pack_array(entries["fused"].to_numpy(), "<i4"),
        into=pack_array(entries["into"].to_numpy(), "<i4"),
        rows=pack_array(pairs["row"].to_numpy(), "<i4"),
        row_of=pack_array(pairs["entry"].to_numpy(), "<i4"),
        evidence=evidence,
        evidence_of=evidence_of,
        edges=pack_array(edges.reshape(-1), "<i4"),
    )


def _coded(words: pl.Series) -> tuple[list[str], str]:
    """Each word once, and the place of the word of every entry."""
    names = words.unique(maintain_order=True)
    codes = words.replace_strict(names, np.arange(len(names)), return_dtype=pl.Int64)
    return names.to_list(), pack_array(codes.to_numpy(), "<i4")
