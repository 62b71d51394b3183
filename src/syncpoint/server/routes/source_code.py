"""Questions about the source that the ops came from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from syncpoint.page import source_code
from syncpoint.page.schema import Side, SourceFile
from syncpoint.server.routes.parameters import ERRORS, PREFIX, Comparison

router = APIRouter(prefix=PREFIX, responses=ERRORS)


@router.get("/sources/{side}")
def get_source(
    comparison: Comparison, side: Side, file: Annotated[str, Query(max_length=4000)]
) -> SourceFile:
    """A file as it was when the run was recorded, with marks for the ops of its lines."""
    return source_code.source(comparison, side, file)
