"""Questions about one comparison: as a whole, its rows, its states."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page import overview as overviews
from syncpoint.page.drift import drift
from syncpoint.page.navigator import locate, window
from syncpoint.page.row_states import pack_states
from syncpoint.page.schema import Drift, Found, Overview, RowStates, RowWindow, UnmatchedWindow
from syncpoint.page.unmatched_list import unmatched
from syncpoint.server.routes.parameters import (
    ERRORS,
    PREFIX,
    Asked,
    Comparison,
    Limit,
    Metric,
    Offset,
    Row,
)

router = APIRouter(prefix=PREFIX, responses=ERRORS)


@router.get("/overview")
def get_overview(comparison: Comparison) -> Overview:
    """The comparison as a whole."""
    return overviews.overview(comparison)


@router.get("/rows")
def get_rows(
    comparison: Comparison, asked: Asked, offset: Offset = 0, limit: Limit = 100
) -> RowWindow:
    """A window of the navigator's list."""
    return window(comparison, asked, offset, limit)


@router.get("/rows/{row}/place")
def get_place(comparison: Comparison, asked: Asked, row: Row) -> Found:
    """Where a row stands in that list."""
    return locate(comparison, asked, row)


@router.get("/unmatched")
def get_unmatched(
    comparison: Comparison,
    text: Annotated[str, Query(max_length=500)] = "",
    offset: Offset = 0,
    limit: Limit = 100,
) -> UnmatchedWindow:
    """A window of what stayed without a partner."""
    return unmatched(comparison, text, offset, limit)


@router.get("/states")
def get_states(comparison: Comparison, metric: Metric = "psnr") -> RowStates:
    """Level, guilt and score of every row."""
    return pack_states(comparison, metric)


@router.get("/drift")
def get_drift(comparison: Comparison, metric: Metric = "psnr") -> Drift:
    """What the drift strip shows beside the curve."""
    return drift(comparison, metric)
