"""Questions about the graphs of the two runs."""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.errors import InputError
from syncpoint.page import graphs
from syncpoint.page.schema import Graph, Side
from syncpoint.server.routes.parameters import ERRORS, PREFIX, Comparison

router = APIRouter(prefix=PREFIX, responses=ERRORS)


WHOLE = "SYNCPOINT_GRAPH_OPS"
"""The environment variable that says from how many ops on graphs are sent as groups."""
OF_GROUP = "SYNCPOINT_GROUP_OPS"
"""And the one that says how many ops of a group are sent at once."""


@router.get("/graphs/{side}")
def get_graph(
    comparison: Comparison,
    side: Side,
    group: Annotated[str, Query(max_length=2000)] = "",
    row: Annotated[int | None, Query(ge=0)] = None,
) -> Graph:
    """The ops of one run, or of one of its groups; of a group that is too large those around a
    sync point, or the first."""
    most, of_group = _most(WHOLE, graphs.MOST), _most(OF_GROUP, graphs.MOST_OF_GROUP)
    return graphs.graph(comparison, side, group, row, most, of_group)


def _most(variable: str, otherwise: int) -> int:
    asked = os.environ.get(variable, "")
    if not asked:
        return otherwise
    if not asked.isdecimal() or int(asked) < 1:
        raise InputError(f"{variable} to be a number of ops, or unset", repr(asked))
    return int(asked)
