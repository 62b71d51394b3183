"""Filter, sort and group the rows of a comparison for the navigator."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from syncpoint.page.row_states import INHERITED, LARGE, LEVELS, MODERATE

if TYPE_CHECKING:
    from syncpoint.page.table import RowTable

ROLES = ("model-input", "model-output", "parameter", "state")
"""Roles that the filter by type offers beside the types of ops."""
LEVEL_FILTERS = (*LEVELS, "inherited")
"""Values of the filter by level."""


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
