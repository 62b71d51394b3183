"""Lines of the navigator's list: a window of rows and groups with their cells, and the line at
which a row is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncpoint.page.encoding import json_number
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_states import GUILTS, LEVELS
from syncpoint.page.row_table import RowQuery, RowSelection, RowTable
from syncpoint.page.schema import GroupBrief, GroupCell, RowBrief, RowPlace, RowWindow

_MAX_CELLS = 24
"""Cells of a group line; each shows the worst row of its bin."""


def build_window(opened: OpenComparison, query: RowQuery, offset: int, limit: int) -> RowWindow:
    """Return lines `offset` to `offset + limit` of the list."""
    table = opened.table
    selection = table.select(query)
    if query.grouped:
        lines, total = _build_grouped_lines(table, query, selection, offset, limit)
    else:
        rows = selection.rows[offset : offset + limit]
        lines = [*build_row_briefs(table, query.metric, rows)]
        total = len(selection.rows)
    return RowWindow(
        total=total,
        matching=len(selection.rows),
        offset=offset,
        items=lines,
        counts=selection.counts,
    )


def _build_grouped_lines(
    table: RowTable, query: RowQuery, selection: RowSelection, offset: int, limit: int
) -> tuple[list[RowBrief | GroupBrief], int]:
    """Return the lines of a window, and how many lines the whole list has."""
    lines: list[RowBrief | GroupBrief] = []
    line = 0
    for name, rows in selection.groups:
        is_open = name in query.open
        if offset <= line < offset + limit:
            lines.append(build_group_brief(table, query.metric, name, rows, is_open))
        line += 1
        if is_open:
            first, last = max(offset - line, 0), min(offset + limit - line, len(rows))
            if first < last:
                lines += build_row_briefs(table, query.metric, rows[first:last])
            line += len(rows)
    return lines, line


def locate_row(opened: OpenComparison, query: RowQuery, row: int) -> RowPlace:
    """Return the line of a row in the list, as if its group were open."""
    table = opened.table
    selection = table.select(query)
    group = str(table.groups[row]) if 0 <= row < table.size else ""
    if not query.grouped:
        return RowPlace(index=_index_of(row, selection.rows), group=group)
    line = 0
    for name, rows in selection.groups:
        line += 1
        if name == group:
            index = _index_of(row, rows)
            return RowPlace(index=None if index is None else line + index, group=group)
        if name in query.open:
            line += len(rows)
    return RowPlace(index=None, group=group)


def _index_of(row: int, rows: NDArray[np.int64]) -> int | None:
    indices = np.flatnonzero(rows == row)
    return int(indices[0]) if len(indices) else None


def build_row_briefs(table: RowTable, metric: str, rows: NDArray[np.int64]) -> list[RowBrief]:
    """Return rows as lines."""
    levels = table.levels(metric)[rows]
    scores, is_bound = (column[rows] for column in table.scores_or_bounds(metric))
    lengths, ticks = table.bar_lengths(metric, rows)
    frame = table.frame[rows.tolist()].select(
        "target_type", "target_role", "verdict", "reason", "reason_code", "basis", "same_bytes"
    )
    labels, references = table.labels(rows), table.labels(rows, "reference")
    modules, groups = (column.gather(rows).to_list() for column in (table.modules, table.groups))
    parts = table.part_labels(rows)
    briefs = []
    for index, fields in enumerate(frame.iter_rows(named=True)):
        row, score, tick = int(rows[index]), float(scores[index]), float(ticks[index])
        verdict, basis = fields["verdict"], fields["basis"]
        briefs.append(
            RowBrief(
                row=row,
                order=int(table.order[row]),
                target=labels[index],
                reference=references[index],
                module=modules[index],
                group=groups[index],
                type=fields["target_type"],
                role=fields["target_role"],
                part=parts[index],
                level=LEVELS[levels[index]],
                verdict=verdict,
                guilt=GUILTS[table.guilts[row]],
                score=None if score != score else json_number(score),
                bound=bool(is_bound[index]),
                same_bytes=fields["same_bytes"] if basis == "digest" else None,
                bad=int(table.mismatched[row]),
                fill=float(lengths[index]),
                ticks=[] if tick != tick else [0.5, tick],
                reason=fields["reason"] if verdict == "none" else "",
                reason_code=fields["reason_code"],
                basis=basis,
            )
        )
    return briefs


def build_group_brief(
    table: RowTable, metric: str, name: str, rows: NDArray[np.int64], is_open: bool
) -> GroupBrief:
    """Return a group as one line: its worst row, and at most _MAX_CELLS cells."""
    rows = rows[np.argsort(table.order[rows], kind="stable")]
    worst_first, ranks = table.severity_ranks(metric)
    group_ranks = ranks[rows]
    worst = int(worst_first[group_ranks.min()])
    bins = np.array_split(group_ranks, min(len(rows), _MAX_CELLS))
    worst_of_bins = [worst_first[bin_ranks.min()] for bin_ranks in bins]
    levels, guilts = table.levels(metric), table.guilts
    scores, is_bound = table.scores_or_bounds(metric)
    score = float(scores[worst])
    return GroupBrief(
        group=name,
        count=len(rows),
        open=is_open,
        level=LEVELS[levels[worst]],
        guilt=GUILTS[guilts[worst]],
        score=None if score != score else json_number(score),
        bound=bool(is_bound[worst]),
        same_bytes=_same_bytes(table, worst),
        cells=[
            GroupCell(level=LEVELS[levels[row]], guilt=GUILTS[guilts[row]]) for row in worst_of_bins
        ],
    )


def _same_bytes(table: RowTable, row: int) -> bool | None:
    basis, same_bytes = table.frame["basis"][row], table.frame["same_bytes"][row]
    return bool(same_bytes) if basis == "digest" and same_bytes is not None else None
