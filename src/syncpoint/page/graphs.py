"""The graphs of the two runs, as columns that the page lays out.

Everything works on whole columns: a run may have hundreds of thousands of ops.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl

from syncpoint.page.encoding import pack_array
from syncpoint.page.graph_entries import build_whole_graph
from syncpoint.page.graph_parts import GraphPart, WholeGraph, cut_group, roll_up_groups
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.schema import GraphColumns, Side

MAX_ENTRIES = 50_000
"""Entries in one answer; a larger run is sent as groups, and each group when it is opened."""
MAX_GROUP_ENTRIES = 10_000
"""Entries of one group in one answer; of a larger group those around a sync point are sent."""

_graph_cache: WeakKeyDictionary[OpenComparison, dict[Side, WholeGraph]] = WeakKeyDictionary()
_lock = Lock()


def build_graph(
    opened: OpenComparison,
    side: Side,
    group: str = "",
    row: int | None = None,
    max_entries: int = MAX_ENTRIES,
    max_group_entries: int = MAX_GROUP_ENTRIES,
) -> GraphColumns:
    """Return the graph of one side, or of one of its groups; of a group that is too large the ops
    around a sync point, or the first ones."""
    sides = _whole_graphs(opened)
    whole = sides[side]
    part = GraphPart(entries=whole.entries, pairs=whole.pairs, edges=whole.edges)
    if group:
        part = cut_group(sides, side, group, row, max_entries, max_group_entries)
    elif max(graph.entries.height for graph in sides.values()) > max_entries:
        # Groups on both sides or on neither: the page shows matching entries side by side.
        part = roll_up_groups(sides, side, max_entries)
    return _encode_graph(opened, side, group, whole.missing, part)


def _whole_graphs(opened: OpenComparison) -> dict[Side, WholeGraph]:
    # The page asks for both sides at once.
    with _lock:
        if opened not in _graph_cache:
            _graph_cache[opened] = {
                "target": build_whole_graph(opened, "target"),
                "reference": build_whole_graph(opened, "reference"),
            }
        return _graph_cache[opened]


def _encode_graph(
    opened: OpenComparison, side: Side, group: str, missing: str, part: GraphPart
) -> GraphColumns:
    entries, pairs, edges = part.entries, part.pairs, part.edges
    about = opened.about[side]
    types, type_of = _encode_texts(entries["type"])
    modules, module_of = _encode_texts(entries["module"])
    groups, group_of = _encode_texts(entries["group"])
    reasons, reason_of = _encode_texts(entries["reason"])
    evidence: list[str] = []
    evidence_of = pack_array(np.zeros(0, np.int64), "<i4")
    if side == "target":
        confidence = pl.col("confidence").round(2).cast(pl.String)
        texts = opened.table.frame.select(pl.concat_str(["evidence", confidence], separator=" "))
        evidence, evidence_of = _encode_texts(texts.to_series().gather(pairs["row"]))
    return GraphColumns(
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


def _encode_texts(texts: pl.Series) -> tuple[list[str], str]:
    """Return each text once, and for every entry the index of its text."""
    unique_texts = texts.unique(maintain_order=True)
    indices = np.arange(len(unique_texts))
    codes = texts.replace_strict(unique_texts, indices, return_dtype=pl.Int64)
    return unique_texts.to_list(), pack_array(codes.to_numpy(), "<i4")
