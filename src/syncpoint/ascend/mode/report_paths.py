"""Paths of the report files of both modes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from syncpoint.files.write_errors import write_errors


def unused_paths(
    folder: Path, stem: str, now: datetime, suffixes: tuple[str, ...]
) -> tuple[Path, ...]:
    """New paths with one stem and one time in seconds, one path for each suffix. Creates the
    folder."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    while True:
        paths = tuple(folder / f"{stem}_{now:%Y%m%d%H%M%S}{suffix}" for suffix in suffixes)
        if not any(path.exists() for path in paths):
            return paths
        now += timedelta(seconds=1)
