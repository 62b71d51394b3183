"""Where the error of a row comes from: the first divergence, and the op upstream that makes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.row_states import ERROR_MAKERS

OpFields = tuple[Any, ...]
OP_FIELDS = ("op", "call", "graph", "path", "iteration")
PART_FIELDS = ("sample", "step", "rank")
_MAX_VISITED_OPS = 200_000
"""Ops that are visited upstream; a longer search takes too long for a click."""


def find_first_divergence(opened: OpenComparison) -> list[int]:
    """Return the rows where the two runs begin to differ; computed once."""
    if "first_divergence" not in opened.cache:
        opened.cache["first_divergence"] = _compute_first_divergence(opened)
    rows: list[int] = opened.cache["first_divergence"]
    return rows


def _compute_first_divergence(opened: OpenComparison) -> list[int]:
    if opened.decisive_rows is not None:
        comparison, rows = opened.decisive_rows
        row_by_id = {id(row): index for row, index in zip(comparison.rows, rows, strict=True)}
        return [row_by_id[id(row)] for row in comparison.first_divergence]
    # Too many rows are off: the first in execution order is taken.
    table = opened.table
    is_maker = np.isin(table.guilts, ERROR_MAKERS)
    is_off = np.isin(table.verdicts, ["moderate", "large"])
    is_off &= (table.frame["target_role"] == "output").to_numpy()
    candidates = np.flatnonzero(is_maker & is_off if (is_maker & is_off).any() else is_off)
    return [int(row) for row in candidates[np.argsort(table.order[candidates])][:1]]


def find_error_source(
    opened: OpenComparison, row: int, fields: Mapping[str, Any]
) -> tuple[int | None, str]:
    """Return the row of the nearest op upstream that makes error, or is the first that is off; and
    how it is known. `fields` are those of the row."""
    table = opened.table
    makers = set(np.flatnonzero(np.isin(table.guilts, ERROR_MAKERS)).tolist())
    makers |= set(find_first_divergence(opened))
    makers.discard(row)
    if not makers:
        return None, ""
    part = tuple(fields[f"target_{name}"] for name in PART_FIELDS)
    row_by_op: dict[OpFields, int] = {}
    frame = table.frame[sorted(makers)]
    keys = frame.select([f"target_{name}" for name in (*OP_FIELDS, *PART_FIELDS)]).rows()
    for maker, key in zip(sorted(makers), keys, strict=True):
        if key[len(OP_FIELDS) :] == part:
            row_by_op.setdefault(key[: len(OP_FIELDS)], maker)
    start: OpFields = tuple(fields[f"target_{name}"] for name in OP_FIELDS)
    source = _search_upstream(opened.edges, start, row_by_op)
    if source is not None and source != row:
        distance = int(table.order[row] - table.order[source])
        return source, f"{distance} sync point{'s' if distance != 1 else ''} before"
    if not opened.has_edges:
        return None, ""  # a dump that does not record what its ops read
    # Between the steps of a loop there are no edges; the order decides.
    makers_before = [maker for maker in makers if table.order[maker] < table.order[row]]
    if not makers_before:
        return None, ""
    return max(
        makers_before, key=lambda maker: int(table.order[maker])
    ), "the last one off before it"


def _search_upstream(
    edges: Mapping[OpFields, list[OpFields]], start: OpFields, row_by_op: Mapping[OpFields, int]
) -> int | None:
    """Return the row of the nearest op, breadth first, that is a key of `row_by_op`."""
    queue, visited = deque([start]), {start}
    while queue and len(visited) < _MAX_VISITED_OPS:
        op = queue.popleft()
        if op in row_by_op and op != start:
            return row_by_op[op]
        for producer in edges.get(op, ()):
            if producer not in visited:
                visited.add(producer)
                queue.append(producer)
    return None
