"""Routes for one sync point: its details, its heat map, its histograms and worst elements."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page.heatmaps import HeatMapRequest, build_heatmap
from syncpoint.page.histograms_and_worst_elements import build_distribution
from syncpoint.page.row_details import build_row_detail
from syncpoint.page.schema import Distribution, HeatMap, RowDetail
from syncpoint.server.routes.parameters import ERRORS, PREFIX, Comparison, Metric, Row

router = APIRouter(prefix=PREFIX, responses=ERRORS)
Pixels = Annotated[int, Query(ge=1, le=1024)]


@router.get("/rows/{row}")
def get_row(comparison: Comparison, row: Row, metric: Metric = "psnr") -> RowDetail:
    """Everything about one sync point except its values."""
    return build_row_detail(comparison, row, metric)


@router.get("/rows/{row}/heatmap")
def get_heatmap(
    comparison: Comparison,
    row: Row,
    row_axis: Annotated[int | None, Query(ge=0, le=64)] = None,
    column_axis: Annotated[int | None, Query(ge=0, le=64)] = None,
    index: Annotated[list[int] | None, Query(max_length=64, alias="at")] = None,
    window: Annotated[list[int] | None, Query(max_length=4)] = None,
    rows: Pixels = 128,
    columns: Pixels = 128,
) -> HeatMap:
    """A plane of both tensors and of their difference, pooled."""
    request = HeatMapRequest(
        row_axis=row_axis,
        column_axis=column_axis,
        index=index,
        window=window,
        rows=rows,
        columns=columns,
    )
    return build_heatmap(comparison, row, request)


@router.get("/rows/{row}/distribution")
def get_distribution(comparison: Comparison, row: Row) -> Distribution:
    """Histograms of both sides, and the worst elements."""
    return build_distribution(comparison, row)
