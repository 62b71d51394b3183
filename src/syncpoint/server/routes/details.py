"""Questions about one sync point: everything known of it, and its values."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page import distributions, heatmaps, row_details
from syncpoint.page.heatmaps import Wish
from syncpoint.page.schema import Distribution, HeatMap, RowDetail
from syncpoint.server.routes.parameters import ERRORS, PREFIX, Comparison, Metric, Row

router = APIRouter(prefix=PREFIX, responses=ERRORS)
Pixels = Annotated[int, Query(ge=1, le=1024)]


@router.get("/rows/{row}")
def get_row(comparison: Comparison, row: Row, metric: Metric = "psnr") -> RowDetail:
    """Everything about one sync point but its values."""
    return row_details.detail(comparison, row, metric)


@router.get("/rows/{row}/heatmap")
def get_heatmap(
    comparison: Comparison,
    row: Row,
    row_axis: Annotated[int | None, Query(ge=0, le=64)] = None,
    column_axis: Annotated[int | None, Query(ge=0, le=64)] = None,
    at: Annotated[list[int] | None, Query(max_length=64)] = None,
    window: Annotated[list[int] | None, Query(max_length=4)] = None,
    rows: Pixels = 128,
    columns: Pixels = 128,
) -> HeatMap:
    """A plane of both tensors and of their difference, pooled."""
    wish = Wish(
        row_axis=row_axis, column_axis=column_axis, at=at, window=window, rows=rows, columns=columns
    )
    return heatmaps.heatmap(comparison, row, wish)


@router.get("/rows/{row}/distribution")
def get_distribution(comparison: Comparison, row: Row) -> Distribution:
    """Histograms of both sides, and the worst elements."""
    return distributions.distribution(comparison, row)
