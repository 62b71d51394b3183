"""Windows of the navigator's list."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncpoint.page.encoding import json_number
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_selection import RowQuery, RowSelection
from syncpoint.page.row_states import GUILTS, LEVELS
from syncpoint.page.schema import (
    Found,
    GroupBrief,
    GroupCell,
    RowBrief,
    RowWindow,
)
from syncpoint.page.table import Table

_CELLS = 24
"""Cells of a group row; each is the worst of its bin."""


def window(opened: Opened, query: RowQuery, offset: int, limit: int) -> RowWindow:
    """Lines `offset` to `offset + limit` of the list."""
    table = opened.table
    found = table.select(query)
    if not query.grouped:
        rows = found.rows[offset : offset + limit]
        items: list[RowBrief | GroupBrief] = list(briefs(table, query.metric, rows))
        total = len(found.rows)
    else:
        items, total = _grouped(table, query, found, offset, limit)
    return RowWindow(
        total=total, matching=len(found.rows), offset=offset, items=items, counts=found.counts
    )


def _grouped(
    table: Table, query: RowQuery, found: RowSelection, offset: int, limit: int
) -> tuple[list[RowBrief | GroupBrief], int]:
    items: list[RowBrief | GroupBrief] = []
    at = 0
    for name, rows in found.groups:
        is_open = name in query.open
        if offset <= at < offset + limit:
            items.append(group_brief(table, query.metric, name, rows, is_open))
        at += 1
        if is_open:
            first, last = max(offset - at, 0), min(offset + limit - at, len(rows))
            if first < last:
                items += briefs(table, query.metric, rows[first:last])
            at += len(rows)
    return items, at


def locate(opened: Opened, query: RowQuery, row: int) -> Found:
    """Where a row stands in the list, its group taken as open."""
    table = opened.table
    found = table.select(query)
    group = str(table.groups[row]) if 0 <= row < table.size else ""
    if not query.grouped:
        places = np.flatnonzero(found.rows == row)
        return Found(index=int(places[0]) if len(places) else None, group=group)
    at = 0
    for name, rows in found.groups:
        at += 1
        if name == group:
            places = np.flatnonzero(rows == row)
            return Found(index=at + int(places[0]) if len(places) else None, group=group)
        if name in query.open:
            at += len(rows)
    return Found(index=None, group=group)


def briefs(table: Table, metric: str, rows: NDArray[np.int64]) -> list[RowBrief]:
    """Rows as lines."""
    levels = table.levels(metric)[rows]
    scores, bounded = (column[rows] for column in table.scores_or_bounds(metric))
    fills, ticks = table.bar_lengths(metric, rows)
    frame = table.frame[rows.tolist()].select(
        "target_type", "target_role", "verdict", "reason", "reason_code", "basis", "same_bytes"
    )
    labels, references = table.labels(rows), table.labels(rows, "reference")
    modules, groups = (column.gather(rows).to_list() for column in (table.modules, table.groups))
    parts = table.part_labels(rows)
    made = []
    for at, (kind, role, verdict, reason, code, basis, same) in enumerate(frame.iter_rows()):
        row, score, tick = int(rows[at]), float(scores[at]), float(ticks[at])
        made.append(
            RowBrief(
                row=row,
                order=int(table.order[row]),
                target=labels[at],
                reference=references[at],
                module=modules[at],
                group=groups[at],
                type=kind,
                role=role,
                part=parts[at],
                level=LEVELS[levels[at]],
                verdict=verdict,
                guilt=GUILTS[table.guilts[row]],
                score=None if score != score else json_number(score),
                bound=bool(bounded[at]),
                same_bytes=same if basis == "digest" else None,
                bad=int(table.mismatched[row]),
                fill=float(fills[at]),
                ticks=[] if tick != tick else [0.5, tick],
                reason=reason if verdict == "none" else "",
                reason_code=code,
                basis=basis,
            )
        )
    return made


def group_brief(
    table: Table, metric: str, name: str, rows: NDArray[np.int64], is_open: bool
) -> GroupBrief:
    """A group as one line: its worst sync point, and at most so many cells."""
    rows = rows[np.argsort(table.order[rows], kind="stable")]
    worst_first, places = table.severity_ranks(metric)
    own = places[rows]
    worst = int(worst_first[own.min()])
    cells = [worst_first[piece.min()] for piece in np.array_split(own, min(len(own), _CELLS))]
    levels, guilts = table.levels(metric), table.guilts
    scores, bounded = table.scores_or_bounds(metric)
    score = float(scores[worst])
    return GroupBrief(
        group=name,
        count=len(rows),
        open=is_open,
        level=LEVELS[levels[worst]],
        guilt=GUILTS[guilts[worst]],
        score=None if score != score else json_number(score),
        bound=bool(bounded[worst]),
        same_bytes=_same_bytes(table, worst),
        cells=[GroupCell(level=LEVELS[levels[c]], guilt=GUILTS[guilts[c]]) for c in cells],
    )


def _same_bytes(table: Table, row: int) -> bool | None:
    basis, same = table.frame["basis"][row], table.frame["same_bytes"][row]
    return bool(same) if basis == "digest" and same is not None else None
