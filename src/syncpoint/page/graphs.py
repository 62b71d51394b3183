"""The graph of each run, as columns that the page lays out: entries, edges (producer and consumer
pairs), groups; a large graph is cut or rolled up.

`build_graph` answers the page. First all entries of a side are collected: inputs and ops, their
edges, groups and reasons. A graph that is too large to be sent whole is sent in parts: one entry a
group, and the ops of a group. Everything works on whole columns: a run may have hundreds of
thousands of ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.comparison.storage.comparison_json import unmatched_from_json
from syncpoint.page.encoding import pack_array
from syncpoint.page.fused_ops import add_fused_columns
from syncpoint.page.module_groups import assign_groups
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.read_ops import (
    CLASS,
    KEY,
    KEY_SCHEMA,
    code_keys,
    first_indices,
    read_ends,
    read_known_ops,
    read_ops,
)
from syncpoint.page.schema import GraphColumns, Side
from syncpoint.run.storage.table_columns import OP_KEY

MAX_ENTRIES = 50_000
"""Entries in one answer; a larger run is sent as groups, and each group when it is opened."""
MAX_GROUP_ENTRIES = 10_000
"""Entries of one group in one answer; of a larger group those around a sync point are sent."""
_graph_cache: WeakKeyDictionary[OpenComparison, dict[Side, WholeGraph]] = WeakKeyDictionary()
_lock = Lock()
_NOT_RECORDED = "not recorded"
_ENTRY_KEY = [*OP_KEY, CLASS]
TOP_LEVEL = "(top level)"
"""Prefix of the names of groups of ops outside of all modules."""
_SIDES: tuple[Side, Side] = ("target", "reference")


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


@dataclass(frozen=True)
class WholeGraph:
    """All entries of one side."""

    entries: pl.DataFrame
    """label, kind, type, module, group, reason, fused, into, count."""
    pairs: pl.DataFrame
    """row, entry: in execution order."""
    edges: NDArray[np.int64]
    """from, to."""
    missing: str
    """Why the run is not available; "" where it is."""


@dataclass(frozen=True, kw_only=True)
class GraphPart:
    """The entries of one side that are sent."""

    entries: pl.DataFrame
    pairs: pl.DataFrame
    edges: NDArray[np.int64]
    complete: bool = True
    before: int = 0
    """Entries of the group before those that are sent..."""
    after: int = 0
    """...and after them."""


def build_whole_graph(opened: OpenComparison, side: Side) -> WholeGraph:
    """Return all entries of one side, with their sync points and edges."""
    run = opened.run(side)
    missing = "" if run is not None else opened.why_missing.get(side, "it is not available")
    ends = read_ends(opened.table, side)
    ops = read_ops(run) if run is not None else read_known_ops(opened, side, ends)
    entries, codes = _collect_entries(opened, side, ops, ends)
    entry_by_code = first_indices(entries["code"].to_numpy())
    pairs = ends.select("row", pl.Series("entry", entry_by_code[codes]))
    reads = _read_edges(ops) if run is not None else _read_known_edges(opened, side)
    edges = _resolve_edges(entries.select(_ENTRY_KEY).with_row_index("entry"), reads)
    entries = _add_groups(opened, entries, pairs)
    entries = _add_reasons(opened, side, entries, pairs)
    entries = add_fused_columns(opened, side, entries, pairs)
    return WholeGraph(entries, pairs, edges, missing)


def _collect_entries(
    opened: OpenComparison, side: Side, ops: pl.DataFrame, ends: pl.DataFrame
) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Return the model's inputs, its ops, and what else has a sync point, each with a code; and the
    code of every end."""
    columns = [*_ENTRY_KEY, "code", "label", "kind", "type", "module"]
    end_codes, op_codes = code_keys(ends[KEY], ops[KEY])
    op_entries = ops.with_columns(pl.lit("o").alias("kind"), pl.Series("code", op_codes))
    op_entries = op_entries.select(columns)
    first_ends = first_indices(end_codes, int(op_codes.max(initial=-1)) + 1)
    first_ends[op_codes] = -1
    extra = ends.with_columns(pl.Series("code", end_codes)).select(columns)
    extra = extra[np.sort(first_ends[first_ends >= 0])]
    unused_code = len(end_codes) + len(op_codes)
    unmatched_inputs = [
        {**dict.fromkeys(OP_KEY, ""), "call": 0, "iteration": 0, "op": tensor["op"], CLASS: "i"}
        | {"label": tensor["op"], "kind": "i", "type": tensor["type"], "module": tensor["module"]}
        | {"code": unused_code + number}
        for number, tensor in enumerate(opened.about["unmatched"])
        if tensor["side"] == side and tensor["role"] == "model-input"
    ]
    if unmatched_inputs:
        inputs = pl.DataFrame(unmatched_inputs, schema=extra.schema)
        inputs = inputs.unique("label", maintain_order=True)
        is_new = ~pl.col("label").is_in(extra["label"].to_list())
        extra = pl.concat([extra, inputs.filter(is_new)])
    is_before = pl.col("kind").is_in(["i", "s"])
    entries = pl.concat([extra.filter(is_before), op_entries, extra.filter(~is_before)])
    return entries, end_codes


def _read_edges(ops: pl.DataFrame) -> pl.DataFrame:
    """Return what the ops of a run read: key and role of the producer, key of the reader."""
    reads = ops.select(
        pl.col("inputs"), *[pl.col(name).alias(f"to_{name}") for name in OP_KEY]
    ).explode("inputs", empty_as_null=False)
    reads = reads.filter(pl.col("inputs").is_not_null()).unnest("inputs")
    return reads.filter(pl.col("role") != "parameter")


def _read_known_edges(opened: OpenComparison, side: str) -> pl.DataFrame:
    """Return what the ops read as far as the comparison knows: nothing for the reference."""
    edges = opened.about["edges"] if side == "target" else []
    reads = [(*producer, "output", *reader) for reader, inputs in edges for producer in inputs]
    schema = {**KEY_SCHEMA, "role": pl.String}
    schema |= {f"to_{name}": dtype for name, dtype in KEY_SCHEMA.items()}
    return pl.DataFrame(reads, schema=schema, orient="row")


def _resolve_edges(entries: pl.DataFrame, reads: pl.DataFrame) -> NDArray[np.int64]:
    """Return the edges as pairs of entries: producer, reader."""
    is_input = pl.col("role") == "model-input"
    reads = reads.with_columns(
        pl.when(is_input).then(pl.lit("i")).otherwise(pl.lit("o")).alias(CLASS),
        pl.lit("o").alias("to_class"),
    )
    edges = reads.join(entries, on=_ENTRY_KEY, how="inner", nulls_equal=True)
    reader_key = [*[f"to_{name}" for name in OP_KEY], "to_class"]
    readers = entries.rename({"entry": "to"})
    edges = edges.join(
        readers, left_on=reader_key, right_on=_ENTRY_KEY, how="inner", nulls_equal=True
    )
    edges = edges.filter(pl.col("entry") != pl.col("to")).select("entry", "to")
    return edges.unique().sort("to", "entry").cast(pl.Int64).to_numpy().reshape(-1, 2)


def _add_groups(opened: OpenComparison, entries: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Add the group of the first sync point of an entry, else that of its module; "" is the top
    level."""
    table = opened.table
    first_pairs = pl.Series(first_indices(pairs["entry"].to_numpy(), entries.height))
    row_groups = table.groups.gather(pairs["row"])
    row_groups = row_groups.gather(first_pairs.set(first_pairs < 0, None))
    group_by_module = assign_groups(entries["module"].unique(), set(table.groups.unique()))
    module_groups = entries["module"].replace_strict(group_by_module, return_dtype=pl.String)
    is_input = pl.col("kind") == "i"
    return entries.with_columns(
        pl.coalesce(
            row_groups.alias("row_group"),
            pl.when(is_input).then(pl.lit("inputs")).otherwise(module_groups.alias("by_module")),
        ).alias("group")
    )


def _add_reasons(
    opened: OpenComparison, side: Side, entries: pl.DataFrame, pairs: pl.DataFrame
) -> pl.DataFrame:
    """Add why an entry has no sync point, and mark the entries that make a model output."""
    reason_by_op: dict[str, str] = {}
    whole_by_op: dict[str, str | None] = {}
    output_ops: set[str] = set()
    for tensor in opened.about["unmatched"]:
        if tensor["side"] == side:
            op = tensor["op"]
            if tensor["role"] != "parameter" and (tensor["counted"] or op not in reason_by_op):
                reason_by_op[op] = str(unmatched_from_json(tensor).why)
                whole_by_op[op] = tensor["inside"] or None
            if tensor["role"] == "model-output":
                output_ops.add(op)
    is_paired = np.zeros(entries.height, bool)
    is_paired[pairs["entry"].to_numpy()] = True
    makes_output = np.zeros(entries.height, bool)
    is_output = opened.table.frame["output"].gather(pairs["row"]).to_numpy()
    makes_output[pairs["entry"].to_numpy()[is_output]] = True
    makes_output |= entries["label"].is_in(list(output_ops)).to_numpy()
    labels = entries["label"]
    reasons = labels.replace_strict(reason_by_op, default=_NOT_RECORDED, return_dtype=pl.String)
    wholes = labels.replace_strict(whole_by_op, default=None, return_dtype=pl.String)
    return entries.with_columns(
        wholes.alias("whole"),
        pl.when(pl.lit(pl.Series("is_paired", is_paired)))
        .then(pl.lit(""))
        .otherwise(reasons)
        .alias("reason"),
        pl.when(pl.lit(pl.Series("makes_output", makes_output)) & (pl.col("kind") == "o"))
        .then(pl.lit("x"))
        .otherwise(pl.col("kind"))
        .alias("kind"),
    )


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


def cut_group(
    sides: Mapping[Side, WholeGraph],
    side: Side,
    group: str,
    row: int | None,
    max_entries: int,
    max_group_entries: int,
) -> GraphPart:
    """Return the entries of a group; where they are too many, those around a sync point."""
    members = {
        name: np.flatnonzero((groups == group).to_numpy())
        for name, groups in _name_groups(sides, max_entries)
    }
    side_members = members[side]
    start = 0
    if row is not None and len(side_members) > max_group_entries:
        # Both sides show the same stretch, even where only one of them has an end of the row.
        indices = [_index_of_end(sides[name], members[name], row) for name in (side, *_SIDES)]
        center = next((index for index in indices if index >= 0), 0)
        last_start = len(side_members) - max_group_entries
        start = min(max(center - max_group_entries // 2, 0), last_start)
    chosen = side_members[start : start + max_group_entries]
    whole = sides[side]
    index_by_entry = np.full(whole.entries.height, -1, np.int64)
    index_by_entry[chosen] = np.arange(len(chosen))
    entries = whole.entries[chosen]
    into = entries["into"].to_numpy()
    entries = entries.with_columns(
        pl.Series("into", np.where(into < 0, -1, index_by_entry[np.maximum(into, 0)]))
    )
    edges = index_by_entry[whole.edges]
    edges = edges[(edges >= 0).all(axis=1)]
    after = len(side_members) - start - len(chosen)
    return GraphPart(
        entries=entries,
        pairs=_renumber_pairs(whole.pairs, index_by_entry),
        edges=edges,
        complete=not start + after,
        before=start,
        after=after,
    )


def roll_up_groups(sides: Mapping[Side, WholeGraph], side: Side, max_entries: int) -> GraphPart:
    """Return one entry a group; a group with one op on either side is that op."""
    group_names = dict(_name_groups(sides, max_entries))
    sizes = pl.concat([group_names[name].value_counts(name="size") for name in _SIDES])
    large_groups = sizes.filter(pl.col("size") > 1).to_series(0).unique()
    whole, names = sides[side], group_names[side].rename("key")
    entries = whole.entries.with_columns(names)
    groups = entries.group_by("key", maintain_order=True).agg(
        pl.first("label", "kind", "type", "module", "group", "reason", "fused"),
        pl.last("label").alias("last"),
        pl.len().cast(pl.Int64).alias("count"),
    )
    index_by_entry = names.replace_strict(
        groups["key"], np.arange(groups.height), return_dtype=pl.Int64
    ).to_numpy()
    is_single = ~pl.col("key").is_in(large_groups.to_list())
    is_top_level = pl.col("group") == ""
    run_label = (
        pl.when(pl.col("count") > 1).then(pl.format("{} … {}", "label", "last")).otherwise("label")
    )
    group_label = pl.when(is_top_level).then(run_label).otherwise(pl.col("key"))
    blank = pl.lit("")
    group_entries = groups.select(
        pl.when(is_single).then("label").otherwise(group_label).alias("label"),
        pl.when(is_single).then("kind").otherwise(pl.lit("g")).alias("kind"),
        pl.when(is_single).then("type").otherwise(blank).alias("type"),
        pl.when(is_single).then("module").otherwise(blank).alias("module"),
        pl.when(is_single).then("group").otherwise("key").alias("group"),
        pl.when(is_single).then("reason").otherwise(blank).alias("reason"),
        pl.when(is_single).then("fused").otherwise(pl.lit(1, pl.Int64)).alias("fused"),
        pl.lit(-1, pl.Int64).alias("into"),
        "count",
    )
    edges: NDArray[np.int64] = np.unique(index_by_entry[whole.edges], axis=0).reshape(-1, 2)
    edges = edges[edges[:, 0] != edges[:, 1]]
    edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
    return GraphPart(
        entries=group_entries,
        pairs=_renumber_pairs(whole.pairs, index_by_entry),
        edges=edges,
        complete=False,
    )


def _renumber_pairs(pairs: pl.DataFrame, index_by_entry: NDArray[np.int64]) -> pl.DataFrame:
    """Replace entries by their new indices; pairs of entries that are not sent are left out."""
    indices = index_by_entry[pairs["entry"].to_numpy()]
    return pairs.with_columns(pl.Series("entry", indices)).filter(pl.col("entry") >= 0)


def _index_of_end(whole: WholeGraph, members: NDArray[np.int64], row: int) -> int:
    """Return which of these entries is the end of a sync point; -1 if none is."""
    ends = whole.pairs.filter(pl.col("row") == row)["entry"]
    index = int(np.searchsorted(members, ends[0])) if len(ends) else len(members)
    return index if index < len(members) and members[index] == ends[0] else -1


def _name_groups(
    sides: Mapping[Side, WholeGraph], max_entries: int
) -> list[tuple[Side, pl.Series]]:
    """Return the group name of every entry, by side: its group, or its run between the modules.

    A run of the reference has the name of the target's run that its first sync point is in, so that
    the two share a place. Only one run may have it, or the two would enclose modules.
    """
    target, reference = (_number_runs(sides[side], max_entries) for side in _SIDES)
    shared = (
        _select_run_pairs(sides["target"].pairs, target, "target_run")
        .join(
            _select_run_pairs(sides["reference"].pairs, reference, "reference_run"),
            on="row",
            how="inner",
        )
        .sort("place")
    )
    shared = shared.unique("reference_run", keep="first", maintain_order=True)
    shared = shared.unique("target_run", keep="first", maintain_order=True)
    # Runs of the reference without a partner get numbers that no run of the target has.
    numbers = np.arange(int(reference.max(initial=0)) + 1) + int(target.max(initial=0))
    numbers[0] = 0
    numbers[shared["reference_run"].to_numpy()] = shared["target_run"].to_numpy()
    runs = (target, numbers[reference])
    return [
        (side, _name_entries(sides[side], side_runs))
        for side, side_runs in zip(_SIDES, runs, strict=True)
    ]


def _select_run_pairs(pairs: pl.DataFrame, runs: NDArray[np.int64], name: str) -> pl.DataFrame:
    """Return the sync points with an end outside of all modules: row, number of its run, place."""
    run_numbers = pl.Series(name, runs[pairs["entry"].to_numpy()])
    places = pl.Series("place", np.arange(pairs.height))
    return pairs.select("row", run_numbers, places).filter(pl.col(name) > 0)


def _number_runs(whole: WholeGraph, max_entries: int) -> NDArray[np.int64]:
    """Return for ops outside of all modules the number of their run, from 1; 0 for the others."""
    is_top_level = (whole.entries["group"] == "").to_numpy()
    is_start = is_top_level & ~np.concatenate([[False], is_top_level[:-1]])
    runs: NDArray[np.int64] = np.cumsum(is_start)
    # Where they stand between every two ops of modules, there would be as many runs as ops.
    runs_per_group = -(-int(runs[-1]) // max(max_entries // 4, 1)) if len(runs) else 1
    return np.where(is_top_level, (runs - 1) // max(runs_per_group, 1) + 1, 0)


def _name_entries(whole: WholeGraph, runs: NDArray[np.int64]) -> pl.Series:
    is_top_level = pl.col("group") == ""
    run_name = pl.format(f"{TOP_LEVEL} {{}}", pl.Series("run", runs))
    name = pl.when(is_top_level).then(run_name).otherwise("group").alias("key")
    return whole.entries.select(name).to_series()
