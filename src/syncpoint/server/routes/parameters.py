"""Request parameters that the routes of a comparison share: the comparison, the row number
(checked), the query of rows."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi import Path as InPath

from syncpoint.errors import InputError
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import CHOOSABLE_METRICS
from syncpoint.page.row_table import RowQuery
from syncpoint.page.schema import Problem, Sort
from syncpoint.server.comparison_library import Library

PREFIX = "/comparisons/{name}"
ERRORS: dict[int | str, dict[str, Any]] = {404: {"model": Problem}, 422: {"model": Problem}}
MAX_LINES = 1000
"""Lines in one answer."""


def open_comparison(request: Request, name: str, limits: str = "") -> OpenComparison:
    """Return the comparison of a request."""
    library: Library = request.app.state.library
    return library.get(name, limits)


Comparison = Annotated[OpenComparison, Depends(open_comparison)]
Metric = Annotated[str, Query(pattern=f"^({'|'.join(CHOOSABLE_METRICS)})$")]
Offset = Annotated[int, Query(ge=0, le=1 << 31)]
Limit = Annotated[int, Query(ge=0, le=MAX_LINES)]


def check_row(comparison: Comparison, row: Annotated[int, InPath(ge=0, le=1 << 31)]) -> int:
    """Return the row of a request if it exists; else InputError."""
    if row >= comparison.table.size:
        raise InputError(
            f"the comparison has no row {row}, only rows 0 to {comparison.table.size - 1}"
        )
    return row


Row = Annotated[int, Depends(check_row)]


def parse_query(
    metric: Metric = "psnr",
    sort: Sort = "similarity",
    descending: bool = False,
    text: Annotated[str, Query(max_length=500)] = "",
    type: Annotated[list[str] | None, Query(max_length=50)] = None,
    module: Annotated[str, Query(max_length=2000)] = "",
    level: Annotated[list[str] | None, Query(max_length=5)] = None,
    start: Offset = 0,
    stop: Offset = 0,
    grouped: bool = False,
    open: Annotated[list[str] | None, Query(max_length=200)] = None,
) -> RowQuery:
    """Return which rows to show, in which order."""
    return RowQuery(
        metric=metric,
        sort=sort,
        descending=descending,
        text=text,
        types=tuple(type or ()),
        module=module,
        levels=tuple(level or ()),
        start=start,
        stop=stop,
        grouped=grouped,
        open=frozenset(open or ()),
    )


QueryParameters = Annotated[RowQuery, Depends(parse_query)]
