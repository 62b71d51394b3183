"""Parts of a graph that is too large to be sent whole: one entry a group, and the ops of a group.

Ops outside of all modules stand between the modules: each run of such ops is a group of its own. As
one group they would both feed and read every module, and the graph could not be drawn in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.page.schema import Side

TOP_LEVEL = "(top level)"
"""Prefix of the names of groups of ops outside of all modules."""
_SIDES: tuple[Side, Side] = ("target", "reference")


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
