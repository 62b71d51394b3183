"""Routes for the graphs of the two runs."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.errors import InputError
from syncpoint.page.graphs import MAX_ENTRIES, MAX_GROUP_ENTRIES, build_graph
from syncpoint.page.schema import GraphColumns, Side
from syncpoint.server.routes.parameters import ERRORS, PREFIX, Comparison

router = APIRouter(prefix=PREFIX, responses=ERRORS)


MAX_ENTRIES_VARIABLE = "SYNCPOINT_GRAPH_OPS"
"""Environment variable: graphs of more ops are sent as groups."""
MAX_GROUP_ENTRIES_VARIABLE = "SYNCPOINT_GROUP_OPS"
"""Environment variable: how many ops of a group are sent at once."""


@router.get("/graphs/{side}")
def get_graph(
    comparison: Comparison,
    side: Side,
    group: Annotated[str, Query(max_length=2000)] = "",
    row: Annotated[int | None, Query(ge=0)] = None,
) -> GraphColumns:
    """The ops of one run, or of one of its groups; of a group that is too large those around a
    sync point, or the first ones."""
    max_entries = _read_limit(MAX_ENTRIES_VARIABLE, MAX_ENTRIES)
    max_group_entries = _read_limit(MAX_GROUP_ENTRIES_VARIABLE, MAX_GROUP_ENTRIES)
    return build_graph(comparison, side, group, row, max_entries, max_group_entries)


def _read_limit(variable: str, default: int) -> int:
    value = os.environ.get(variable, "")
    if not value:
        return default
    if not value.isdecimal() or int(value) < 1:
        raise InputError(
            f"{variable} is {value!r}, which is not a positive number of ops",
            cure=f"set {variable} to a positive number, or unset it",
        )
    return int(value)
