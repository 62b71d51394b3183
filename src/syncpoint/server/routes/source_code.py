"""Routes for the source files that ops come from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page.schema import Side, SourceFile
from syncpoint.page.source_code import read_source
from syncpoint.server.routes.parameters import ERRORS, PREFIX, Comparison

router = APIRouter(prefix=PREFIX, responses=ERRORS)


@router.get("/sources/{side}")
def get_source(
    comparison: Comparison, side: Side, file: Annotated[str, Query(max_length=4000)]
) -> SourceFile:
    """A file as it was when the run was recorded, with marks for the ops of its lines."""
    return read_source(comparison, side, file)
