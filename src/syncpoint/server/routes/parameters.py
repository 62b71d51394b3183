"""What the questions about a comparison share."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi import Path as InPath

from syncpoint.errors import InputError
from syncpoint.page.open_comparison import Opened
from syncpoint.page.overview import CHOOSABLE
from syncpoint.page.row_selection import RowQuery
from syncpoint.page.schema import Problem, Sort
from syncpoint.server.open_comparisons import Library

PREFIX = "/comparisons/{name}"
ERRORS: dict[int | str, dict[str, Any]] = {404: {"model": Problem}, 422: {"model": Problem}}
MOST = 1000
"""Lines in one answer."""


def opened(request: Request, name: str, limits: str = "") -> Opened:
    """The comparison that a question is about."""
    library: Library = request.app.state.library
    return library.get(name, limits)


Comparison = Annotated[Opened, Depends(opened)]
Metric = Annotated[str, Query(pattern=f"^({'|'.join(CHOOSABLE)})$")]
Offset = Annotated[int, Query(ge=0, le=1 << 31)]
Limit = Annotated[int, Query(ge=0, le=MOST)]


def known(comparison: Comparison, row: Annotated[int, InPath(ge=0, le=1 << 31)]) -> int:
    """A row that there is."""
    if row >= comparison.table.size:
        raise InputError(f"a row below {comparison.table.size}", str(row))
    return row


Row = Annotated[int, Depends(known)]


def wanted(
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
    """Which rows, in which order."""
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


Asked = Annotated[RowQuery, Depends(wanted)]
