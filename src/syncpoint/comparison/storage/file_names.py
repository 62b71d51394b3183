"""Names of the files of a comparison folder."""

from __future__ import annotations

RESTORE = "restore it from a copy, or compare the two runs again"
"""The cure for a damaged comparison."""


JSON_NAME = "comparison.json"


TABLE_NAME = "syncpoints.parquet"


PROGRESS_LOG = "progress.log"
"""The log of an unfinished comparison."""
