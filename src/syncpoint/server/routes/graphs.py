"""Questions about the graphs of the two runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page import graphs
from syncpoint.page.schema import Graph, Side
from syncpoint.server.routes.asking import ERRORS, PREFIX, Comparison

router = APIRouter(prefix=PREFIX, responses=ERRORS)


@router.get("/graphs/{side}")
def get_graph(
    comparison: Comparison, side: Side, group: Annotated[str, Query(max_length=2000)] = ""
) -> Graph:
    """The ops of one run, or of one of its groups."""
    return graphs.graph(comparison, side, group)
