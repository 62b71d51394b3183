"""Where the error of a row came from: the first divergence, and the op upstream that makes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_states import GUILTS

Op = tuple[Any, ...]
OP_FIELDS = ("op", "call", "graph", "path", "iteration")
PART_FIELDS = ("sample", "step", "rank")
_MOST_STEPS = 200_000
"""Ops that are looked at on the way back; a search that long is no answer to a click."""


def first_divergence(opened: Opened) -> list[int]:
    """Rows where the two runs part."""
    if "first" not in opened.told:
        opened.told["first"] = _first(opened)
    found: list[int] = opened.told["first"]
    return found


def _first(opened: Opened) -> list[int]:
    if opened.telling is not None:
        result, places = opened.telling
        place = {id(row): at for row, at in zip(result.rows, places, strict=True)}
        return [place[id(row)] for row in result.first_divergence]
    # So many are off that the order has to tell.
    table = opened.table
    makers = np.isin(table.guilts, [GUILTS.index("guilty"), GUILTS.index("first-non-finite")])
    off = np.isin(table.verdicts, ["moderate", "large"])
    off &= (table.frame["target_role"] == "output").to_numpy()
    rows = np.flatnonzero(makers & off if (makers & off).any() else off)
    return [int(row) for row in rows[np.argsort(table.order[rows])][:1]]


def came_from(opened: Opened, row: int, flat: Mapping[str, Any]) -> tuple[int | None, str]:
    """The nearest op upstream that makes error, or that is known to be the first that is off."""
    table = opened.table
    wanted = [GUILTS.index("guilty"), GUILTS.index("first-non-finite")]
    makers = set(np.flatnonzero(np.isin(table.guilts, wanted)).tolist())
    makers |= set(first_divergence(opened))
    makers.discard(row)
    if not makers:
        return None, ""
    part = tuple(flat[f"target_{name}"] for name in PART_FIELDS)
    ops: dict[Op, int] = {}
    frame = table.frame[sorted(makers)]
    keys = frame.select([f"target_{name}" for name in (*OP_FIELDS, *PART_FIELDS)]).rows()
    for maker, key in zip(sorted(makers), keys, strict=True):
        if key[len(OP_FIELDS) :] == part:
            ops.setdefault(key[: len(OP_FIELDS)], maker)
    start: Op = tuple(flat[f"target_{name}"] for name in OP_FIELDS)
    found = _upstream(opened.edges, start, ops)
    if found is not None and found != row:
        apart = int(table.order[row] - table.order[found])
        return found, f"{apart} sync point{'s' if apart != 1 else ''} before"
    if not opened.knows_reads:
        return None, ""  # a dump that does not say what its ops read
    # Across the steps of a loop only the order tells.
    before = [maker for maker in makers if table.order[maker] < table.order[row]]
    if not before:
        return None, ""
    return max(before, key=lambda maker: int(table.order[maker])), "the last one off before it"


def _upstream(edges: Mapping[Op, list[Op]], start: Op, wanted: Mapping[Op, int]) -> int | None:
    queue, seen = deque([start]), {start}
    while queue and len(seen) < _MOST_STEPS:
        op = queue.popleft()
        if op in wanted and op != start:
            return wanted[op]
        for before in edges.get(op, ()):
            if before not in seen:
                seen.add(before)
                queue.append(before)
    return None
