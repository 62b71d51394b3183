"""Parts of a graph that is too large to be sent whole: one entry a group, and the ops of a group.

What no module made stands between the modules in its turn: each run of such ops is a group of its
own. As one group they would both feed and read every module, and no order could be drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.page.schema import Side

TOP_LEVEL = "(top level)"
"""What groups of ops outside of any module begin with where they are asked for."""
_SIDES: tuple[Side, Side] = ("target", "reference")


@dataclass(frozen=True)
class Whole:
    """All entries of one side."""

    entries: pl.DataFrame
    """label, kind, type, module, group, reason, fused, into, count."""
    pairs: pl.DataFrame
    """row, entry: in execution order."""
    edges: NDArray[np.int64]
    """from, to."""
    missing: str


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is sent of one side."""

    entries: pl.DataFrame
    pairs: pl.DataFrame
    edges: NDArray[np.int64]
    complete: bool = True
    before: int = 0
    """Entries of the group before those that are sent..."""
    after: int = 0
    """...and after them."""


def piece(
    sides: Mapping[Side, Whole], side: Side, group: str, row: int | None, most: int, few: int
) -> Part:
    """The entries of a group; where they are too many, those around a sync point."""
    inside = {one: np.flatnonzero((keys == group).to_numpy()) for one, keys in _keys(sides, most)}
    own = inside[side]
    start = 0
    if row is not None and len(own) > few:
        # Both sides show the same stretch, also where only one of them has an end of it.
        ends = [_end(sides[one], inside[one], row) for one in (side, *_SIDES)]
        end = next((end for end in ends if end >= 0), 0)
        start = min(max(end - few // 2, 0), len(own) - few)
    chosen = own[start : start + few]
    whole = sides[side]
    place = np.full(whole.entries.height, -1, np.int64)
    place[chosen] = np.arange(len(chosen))
    entries = whole.entries[chosen]
    into = entries["into"].to_numpy()
    entries = entries.with_columns(
        pl.Series("into", np.where(into < 0, -1, place[np.maximum(into, 0)]))
    )
    edges = place[whole.edges]
    edges = edges[(edges >= 0).all(axis=1)]
    after = len(own) - start - len(chosen)
    return Part(
        entries=entries,
        pairs=_placed(whole.pairs, place),
        edges=edges,
        complete=not start + after,
        before=start,
        after=after,
    )


def rolled_up(sides: Mapping[Side, Whole], side: Side, most: int) -> Part:
    """One entry a group; a group of one op on either side is that op."""
    keys = dict(_keys(sides, most))
    sizes = pl.concat([keys[one].value_counts(name="size") for one in _SIDES])
    many = sizes.filter(pl.col("size") > 1).to_series(0).unique()
    whole, key = sides[side], keys[side].rename("key")
    entries = whole.entries.with_columns(key)
    alone = ~pl.col("key").is_in(many.to_list())
    groups = entries.group_by("key", maintain_order=True).agg(
        pl.first("label", "kind", "type", "module", "group", "reason", "fused"),
        pl.last("label").alias("last"),
        pl.len().cast(pl.Int64).alias("count"),
    )
    place = key.replace_strict(
        groups["key"], np.arange(groups.height), return_dtype=pl.Int64
    ).to_numpy()
    loose = pl.col("group") == ""
    run = (
        pl.when(pl.col("count") > 1).then(pl.format("{} … {}", "label", "last")).otherwise("label")
    )
    named = pl.when(loose).then(run).otherwise(pl.col("key"))
    blank = pl.lit("")
    found = groups.select(
        pl.when(alone).then("label").otherwise(named).alias("label"),
        pl.when(alone).then("kind").otherwise(pl.lit("g")).alias("kind"),
        pl.when(alone).then("type").otherwise(blank).alias("type"),
        pl.when(alone).then("module").otherwise(blank).alias("module"),
        pl.when(alone).then("group").otherwise("key").alias("group"),
        pl.when(alone).then("reason").otherwise(blank).alias("reason"),
        pl.when(alone).then("fused").otherwise(pl.lit(1, pl.Int64)).alias("fused"),
        pl.lit(-1, pl.Int64).alias("into"),
        "count",
    )
    edges: NDArray[np.int64] = np.unique(place[whole.edges], axis=0).reshape(-1, 2)
    edges = edges[edges[:, 0] != edges[:, 1]]
    edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
    return Part(entries=found, pairs=_placed(whole.pairs, place), edges=edges, complete=False)


def _placed(pairs: pl.DataFrame, place: NDArray[np.int64]) -> pl.DataFrame:
    own = place[pairs["entry"].to_numpy()]
    return pairs.with_columns(pl.Series("entry", own)).filter(pl.col("entry") >= 0)


def _end(whole: Whole, inside: NDArray[np.int64], row: int) -> int:
    """Which of these entries is the end of a sync point, -1 if none is."""
    ends = whole.pairs.filter(pl.col("row") == row)["entry"]
    at = int(np.searchsorted(inside, ends[0])) if len(ends) else len(inside)
    return at if at < len(inside) and inside[at] == ends[0] else -1


def _keys(sides: Mapping[Side, Whole], most: int) -> list[tuple[Side, pl.Series]]:
    """What every entry is rolled up under, by side: its group, or its turn between the modules.

    A run of the reference has the name of the run of the target that its first sync point is in,
    so that the two share a place; only one of them may, or they would hold modules between them.
    """
    target, reference = (_turns(sides[one], most) for one in _SIDES)
    runs = (
        _turned(sides["target"].pairs, target, "turn")
        .join(_turned(sides["reference"].pairs, reference, "other"), on="row", how="inner")
        .sort("at")
    )
    runs = runs.unique("other", keep="first", maintain_order=True)
    runs = runs.unique("turn", keep="first", maintain_order=True)
    # What has no partner has numbers that no run of the target has.
    names = np.arange(int(reference.max(initial=0)) + 1) + int(target.max(initial=0))
    names[0] = 0
    names[runs["other"].to_numpy()] = runs["turn"].to_numpy()
    turns = (target, names[reference])
    return [(one, _named(sides[one], own)) for one, own in zip(_SIDES, turns, strict=True)]


def _turned(pairs: pl.DataFrame, turns: NDArray[np.int64], name: str) -> pl.DataFrame:
    """Sync points with an end that no module made: row, the number of its run, and its place."""
    own = pl.Series(name, turns[pairs["entry"].to_numpy()])
    place = pl.Series("at", np.arange(pairs.height))
    return pairs.select("row", own, place).filter(pl.col(name) > 0)


def _turns(whole: Whole, most: int) -> NDArray[np.int64]:
    """For ops that no module made the number of their run, from 1; 0 for the others."""
    loose = (whole.entries["group"] == "").to_numpy()
    begins = loose & ~np.concatenate([[False], loose[:-1]])
    turns: NDArray[np.int64] = np.cumsum(begins)
    # Where they come between every two ops of modules, runs would be as many as ops.
    together = -(-int(turns[-1]) // max(most // 4, 1)) if len(turns) else 1
    return np.where(loose, (turns - 1) // max(together, 1) + 1, 0)


def _named(whole: Whole, turns: NDArray[np.int64]) -> pl.Series:
    loose = pl.col("group") == ""
    named = pl.format(f"{TOP_LEVEL} {{}}", pl.Series("turn", turns))
    chosen = pl.when(loose).then(named).otherwise("group").alias("key")
    return whole.entries.select(chosen).to_series()
