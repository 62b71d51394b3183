"""All rows as columns: levels, scores, ranks, search texts; the query that filters, sorts and
groups them; counts of a column's values.

The rows that the page shows are chosen and ranked here; `navigator.py` makes lines of them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.limits import Limits, limits_in_force
from syncpoint.page.labels import END_LABEL_FIELDS, label_ends
from syncpoint.page.module_groups import group_modules
from syncpoint.page.row_states import (
    INHERITED,
    LARGE,
    LEVELS,
    MODERATE,
    NONE,
    LevelJudge,
    LimitColumns,
    code_guilts,
    count_mismatched,
    number_column,
)

INPUTS, PARAMETERS = "inputs", "parameters"
"""The groups of the model's inputs and of its parameters."""
_BOUNDED_METRICS = ("psnr", "sqnr")
"""Metrics that statistics of both sides bound from above."""
_MAX_CACHED_SELECTIONS = 8
_UNSCORED_LARGE, _UNSCORED_MODERATE = -1e300, -1e299
"""Badness of rows without a score, by their level: worse than any that was measured."""
ROLES = ("model-input", "model-output", "parameter", "state")
"""Roles that the filter by type offers beside the types of ops."""
LEVEL_FILTERS = (*LEVELS, "inherited")
"""Values of the filter by level."""


class RowTable:
    """The rows of a comparison, read as columns. Safe to use from several threads."""

    def __init__(self, frame: pl.DataFrame, limits: Limits | None = None) -> None:
        self.frame = frame
        self.limits = limits
        """The limits of every row; None where each row has those of its precision."""
        self.size = frame.height
        self._levels: dict[str, NDArray[np.int8]] = {}
        self._ranks: dict[str, NDArray[np.int64]] = {}
        self._badness: dict[str, NDArray[np.float64]] = {}
        self._scores_or_bounds: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}
        self._severities: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        # Several panes ask at once; each column is computed by one of them only.
        self._lock = threading.RLock()
        self._selections: dict[RowQuery, RowSelection] = {}

    # ---- columns that do not depend on the metric -------------------------------------------

    @cached_property
    def execution(self) -> NDArray[np.int64]:
        """Rows in the target's execution order; those without a place come last."""
        order = number_column(self.frame, "target_order")
        order = np.where(order < 0, np.inf, order)
        role = self.frame["target_role"]
        order[(role == "model-input").to_numpy()] = -1
        order[(role == "parameter").to_numpy()] = np.inf
        steps = [self.frame[f"target_{name}"].to_numpy() for name in ("step", "sample", "rank")]
        # A model's output comes after the op that makes it.
        is_output = (role == "model-output").to_numpy()
        keys = (np.arange(self.size), is_output, order, *steps)
        return np.lexsort(keys).astype(np.int64)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The place of every row in execution order."""
        places = np.empty(self.size, np.int64)
        places[self.execution] = np.arange(self.size)
        return places

    @cached_property
    def verdicts(self) -> NDArray[Any]:
        """The verdict of every row, as text."""
        return self.frame["verdict"].to_numpy()

    @cached_property
    def guilts(self) -> NDArray[np.int8]:
        """The guilt of every row, as an index into GUILTS."""
        return code_guilts(self.frame)

    @cached_property
    def modules(self) -> pl.Series:
        """The module of every row: the target's, else that of the reference."""
        target, reference = pl.col("target_module"), pl.col("reference_module")
        return self.frame.select(
            pl.when(target == "").then(reference).otherwise(target).alias("module")
        ).to_series()

    @cached_property
    def groups(self) -> pl.Series:
        """The group of every row; "" for one outside of all modules. Inputs and parameters of the
        model are groups of their own."""
        counts = self.modules.value_counts()
        op_counts = dict(zip(counts["module"], counts["count"], strict=True))
        groups = group_modules({module: count for module, count in op_counts.items() if module})
        module_groups = self.modules.replace_strict({**groups, "": ""}, return_dtype=pl.String)
        role = pl.col("target_role")
        return self.frame.select(
            pl.when(role == "model-input")
            .then(pl.lit(INPUTS))
            .when(role == "parameter")
            .then(pl.lit(PARAMETERS))
            .otherwise(module_groups)
            .alias("group")
        ).to_series()

    @cached_property
    def computed(self) -> int:
        """How many rows, in execution order, come before the parameters."""
        return int((self.frame["target_role"] != "parameter").sum())

    def labels(self, rows: NDArray[np.int64], side: str = "target") -> list[str]:
        """The names of these rows on one side."""
        ends = self.frame.select(f"{side}_{name}" for name in END_LABEL_FIELDS)
        return label_ends(ends[rows], side).to_list()

    def label(self, row: int, side: str = "target") -> str:
        """The name of one row on one side."""
        return self.labels(np.array([row]), side)[0]

    def part_labels(self, rows: NDArray[np.int64]) -> list[str]:
        """The part of each of these rows: `step=3`, or ""."""
        labels = [
            pl.when(pl.col(f"target_{name}") >= 0)
            .then(pl.format(f"{name}={{}}", pl.col(f"target_{name}")))
            .otherwise(None)
            for name in ("sample", "step", "rank")
        ]
        label = pl.concat_str(labels, separator=" ", ignore_nulls=True)
        parts = self.frame.select("target_sample", "target_step", "target_rank")
        return parts[rows].select(label.alias("part")).to_series().to_list()

    @cached_property
    def mismatched(self) -> NDArray[np.int64]:
        """How many elements are NaN, infinite or masked on one side only."""
        return count_mismatched(self.frame)

    @cached_property
    def search_texts(self) -> pl.Series:
        """The text of every row that the filter by text searches."""
        return self.frame.select(
            pl.concat_str(
                [
                    label_ends(self.frame, "target").alias("a"),
                    label_ends(self.frame, "reference").alias("b"),
                    pl.col("target_op"),
                    pl.col("reference_op"),
                    pl.col("target_module"),
                    pl.col("reference_module"),
                ],
                separator="\n",
            ).str.to_lowercase()
        ).to_series()

    @cached_property
    def group_codes(self) -> tuple[NDArray[Any], list[str]]:
        """A number for the group of every row, and the name of each group by its number."""
        names = self.groups.unique(maintain_order=True).to_list()
        is_small = len(names) <= np.iinfo(np.uint16).max
        codes = self.groups.replace_strict(
            {name: code for code, name in enumerate(names)}, return_dtype=pl.Int64
        )
        # NumPy sorts two-byte integers by radix, in linear time.
        return codes.to_numpy().astype(np.uint16 if is_small else np.int64), names

    # ---- columns by metric ---------------------------------------------------------------------

    @cached_property
    def _judge(self) -> LevelJudge:
        return LevelJudge(self.frame, self.limits, self.guilts)

    def levels(self, metric: str) -> NDArray[np.int8]:
        """The level of every row by this metric, as an index into LEVELS."""
        with self._lock:
            if metric not in self._levels:
                self._levels[metric] = self._judge.judge(metric)
            return self._levels[metric]

    def limit_columns(self, metric: str) -> LimitColumns:
        """The two limits of every row; NaN where the metric has none."""
        with self._lock:
            return self._judge.limit_columns(metric)

    def scores(self, metric: str) -> NDArray[np.float64]:
        """The metric of every row; NaN where it has none."""
        return number_column(self.frame, metric)

    def bounds(self, metric: str) -> NDArray[np.float64]:
        """Upper bounds of a metric by statistics, where it was not measured; NaN elsewhere."""
        if metric not in _BOUNDED_METRICS:
            return np.full(self.size, np.nan)
        is_unmeasured = np.isnan(self.scores(metric)) & (self.mismatched == 0)
        bounds = number_column(self.frame, f"{metric}_bound")
        return np.where(is_unmeasured & np.isfinite(bounds), bounds, np.nan)

    def scores_or_bounds(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The score or the bound of every row, and which of them are bounds."""
        with self._lock:
            if metric not in self._scores_or_bounds:
                scores, bounds = self.scores(metric), self.bounds(metric)
                is_bound = ~np.isnan(bounds)
                self._scores_or_bounds[metric] = np.where(is_bound, bounds, scores), is_bound
            return self._scores_or_bounds[metric]

    def badness(self, metric: str) -> NDArray[np.float64]:
        """A sort key of every row: smaller is worse; infinite for a close row without a score."""
        with self._lock:
            if metric not in self._badness:
                self._badness[metric] = self._compute_badness(metric)
            return self._badness[metric]

    def _compute_badness(self, metric: str) -> NDArray[np.float64]:
        score = self.scores(metric)
        better = CATALOGUE[metric].better
        key = score if better == "higher" else -np.abs(score - 1) if better == "one" else -score
        levels = self.levels(metric)
        if metric in _BOUNDED_METRICS:
            key = np.where(np.isnan(key), number_column(self.frame, f"{metric}_bound"), key)
        unscored_key = np.where(
            levels == LARGE,
            _UNSCORED_LARGE,
            np.where(levels == MODERATE, _UNSCORED_MODERATE, np.inf),
        )
        key = np.where(np.isnan(key), unscored_key, key)
        return np.where(self.mismatched > 0, -np.inf, key)

    def similarity_ranks(self, metric: str) -> NDArray[np.int64]:
        """Rows with the least similar first; rows without a verdict come last."""
        with self._lock:
            if metric not in self._ranks:
                has_no_level = self.levels(metric) == NONE
                self._ranks[metric] = np.lexsort((self.order, self.badness(metric), has_no_level))
            return self._ranks[metric]

    def severity_ranks(self, metric: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows with the worst first, by level, then guilt, then the metric; and the place of every
        row among them."""
        with self._lock:
            if metric not in self._severities:
                levels = self.levels(metric).astype(np.int64)
                severity = np.where(levels == NONE, -1, 2 * levels)
                severity -= (self.guilts == INHERITED) & (levels > 0)
                rows = np.lexsort((self.order, self.badness(metric), -severity))
                places = np.empty(self.size, np.int64)
                places[rows] = np.arange(self.size)
                self._severities[metric] = rows, places
            return self._severities[metric]

    def bar_lengths(self, metric: str, rows: NDArray[np.int64]) -> LimitColumns:
        """Length of the bars, and where the moderate limit stands on them; the close limit is in
        the middle."""
        score = self.scores(metric)[rows]
        close, moderate = (limit[rows] for limit in self.limit_columns(metric))
        with np.errstate(all="ignore"):
            if metric in ("psnr", "sqnr"):
                length, tick = score / (2 * close), moderate / (2 * close)
            else:
                if metric == "cosine":
                    score, close, moderate = 1 - score, 1 - close, 1 - moderate
                presets = self.frame["preset"].gather(rows)
                span = 2 * np.array([self._close_psnr_db(name) for name in presets])
                length = 0.5 + 20 * np.log10(close / score) / span
                tick = 0.5 + 20 * np.log10(close / moderate) / span
        length = np.where(np.isposinf(length), 1.0, np.nan_to_num(length, nan=0.0, neginf=0.0))
        return np.clip(length, 0.0, 1.0), tick

    def _close_psnr_db(self, preset: str) -> float:
        limits = limits_in_force(preset, self.limits)
        return limits.psnr[0] if limits and limits.psnr[0] else 100.0

    # ---- queries -------------------------------------------------------------------------------

    def select(self, query: RowQuery) -> RowSelection:
        """The rows that match a query; the last few answers are cached, for scrolling."""
        with self._lock:
            if query not in self._selections:
                selection = select_rows(self, query)
                while len(self._selections) >= _MAX_CACHED_SELECTIONS:
                    del self._selections[next(iter(self._selections))]
                self._selections[query] = selection
            return self._selections[query]


def count_values(frame: pl.DataFrame, column: str) -> dict[str, int]:
    """Count the values of a column, without empty ones."""
    counts = frame[column].value_counts()
    return {name: count for name, count in counts.iter_rows() if name}


@dataclass(frozen=True, kw_only=True)
class RowQuery:
    """Which rows to show, in which order."""

    metric: str = "psnr"
    sort: str = "similarity"
    descending: bool = False
    text: str = ""
    types: tuple[str, ...] = ()
    module: str = ""
    levels: tuple[str, ...] = ()
    """Some of LEVEL_FILTERS; empty for all."""
    start: int = 0
    """Brush: first place in execution order, and one after the last; 0 for no end."""
    stop: int = 0
    grouped: bool = False
    open: frozenset[str] = frozenset()


@dataclass
class RowSelection:
    """The rows that match a query, in its order."""

    rows: NDArray[np.int64]
    counts: dict[str, int]
    """Rows by level, before the filter by level."""
    groups: list[tuple[str, NDArray[np.int64]]] = field(default_factory=list)


def select_rows(table: RowTable, query: RowQuery) -> RowSelection:
    """Return the rows that match a query, sorted, and grouped if the query asks for it."""
    matches = _match_rows(table, query)
    filters = code_level_filters(table, query.metric)
    counts = {
        name: int(np.count_nonzero(matches & (filters == code)))
        for code, name in enumerate(LEVEL_FILTERS)
    }
    if query.levels:
        codes = [LEVEL_FILTERS.index(name) for name in query.levels if name in LEVEL_FILTERS]
        matches &= np.isin(filters, codes)
    by_similarity = query.sort == "similarity"
    order = table.similarity_ranks(query.metric) if by_similarity else table.execution
    rows = order[matches[order]]
    if query.descending:
        rows = rows[::-1]
    selection = RowSelection(rows, counts)
    if query.grouped:
        selection.groups = _group_rows(table, rows)
    return selection


def _match_rows(table: RowTable, query: RowQuery) -> NDArray[np.bool_]:
    """Apply every filter but the one by level."""
    matches = np.ones(table.size, bool)
    if query.text:
        matches &= table.search_texts.str.contains(query.text.lower(), literal=True).to_numpy()
    if query.types:
        has_type = table.frame["target_type"].is_in(list(query.types))
        roles = [name for name in query.types if name in ROLES]
        has_role = table.frame["target_role"].is_in(roles)
        matches &= (has_type | has_role).to_numpy()
    if query.module:
        is_inside = (table.modules == query.module) | table.modules.str.starts_with(
            f"{query.module}."
        )
        matches &= (is_inside | (table.groups == query.module)).to_numpy()
    if query.start or query.stop:
        matches &= table.order >= query.start
        if query.stop:
            matches &= table.order < query.stop
    return matches


def code_level_filters(table: RowTable, metric: str) -> NDArray[np.int8]:
    """Return the filter value of every row, as an index into LEVEL_FILTERS: its level, or
    `inherited` where the error is passed on."""
    levels = table.levels(metric)
    is_inherited = (table.guilts == INHERITED) & ((levels == MODERATE) | (levels == LARGE))
    return np.where(is_inherited, LEVEL_FILTERS.index("inherited"), levels).astype(np.int8)


def _group_rows(table: RowTable, rows: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
    """Split rows by group; groups are in the order of their first row."""
    codes, names = table.group_codes
    row_codes = codes[rows]
    places = np.argsort(row_codes, kind="stable")
    sorted_codes = row_codes[places]
    is_start = np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]])[: len(rows)]
    starts = np.flatnonzero(is_start)
    pieces = np.split(rows[places], starts[1:]) if len(rows) else []
    groups = [(names[codes[piece[0]]], piece) for piece in pieces]
    # The sort is stable: the first row of a piece is the first of its group in the list.
    return [groups[index] for index in np.argsort(places[starts])]
