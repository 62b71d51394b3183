"""Routes for one comparison: overview, rows, place of a row, unmatched tensors, states, drift."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page.drift import build_drift_strip
from syncpoint.page.navigator import build_window, locate_row
from syncpoint.page.overview import build_overview
from syncpoint.page.row_states import pack_states
from syncpoint.page.schema import (
    DriftStrip,
    Overview,
    RowPlace,
    RowStates,
    RowWindow,
    UnmatchedWindow,
)
from syncpoint.page.unmatched_list import list_unmatched
from syncpoint.server.routes.parameters import (
    ERRORS,
    PREFIX,
    Comparison,
    Limit,
    Metric,
    Offset,
    QueryParameters,
    Row,
)

router = APIRouter(prefix=PREFIX, responses=ERRORS)


@router.get("/overview")
def get_overview(comparison: Comparison) -> Overview:
    """The comparison as a whole."""
    return build_overview(comparison)


@router.get("/rows")
def get_rows(
    comparison: Comparison, query: QueryParameters, offset: Offset = 0, limit: Limit = 100
) -> RowWindow:
    """A window of the navigator's list."""
    return build_window(comparison, query, offset, limit)


@router.get("/rows/{row}/place")
def get_place(comparison: Comparison, query: QueryParameters, row: Row) -> RowPlace:
    """The place of a row in the navigator's list."""
    return locate_row(comparison, query, row)


@router.get("/unmatched")
def get_unmatched(
    comparison: Comparison,
    text: Annotated[str, Query(max_length=500)] = "",
    offset: Offset = 0,
    limit: Limit = 100,
) -> UnmatchedWindow:
    """A window of the list of tensors without a counterpart."""
    return list_unmatched(comparison, text, offset, limit)


@router.get("/states")
def get_states(comparison: Comparison, metric: Metric = "psnr") -> RowStates:
    """Level, guilt and score of every row."""
    return pack_states(comparison, metric)


@router.get("/drift")
def get_drift(comparison: Comparison, metric: Metric = "psnr") -> DriftStrip:
    """What the drift strip shows beside the curve."""
    return build_drift_strip(comparison, metric)
