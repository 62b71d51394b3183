"""Constants: the names of the files in a comparison folder, and the cure for damaged ones."""

from __future__ import annotations

RESTORE = "restore it from a copy, or compare the two runs again"
"""The cure for a damaged comparison."""


JSON_NAME = "comparison.json"


TABLE_NAME = "syncpoints.parquet"


PROGRESS_LOG = "progress.log"
"""The log of an unfinished comparison."""
