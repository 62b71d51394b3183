"""Data class of the result and files of one comparison of a mode; unused paths for these files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from syncpoint.comparison.result import Result
from syncpoint.files.write_errors import write_errors


@dataclass(frozen=True)
class Outcome:
    """The result of one comparison, and the files that it wrote."""

    result: Result
    report: Path
    comparison: Path
    others: tuple[Path, ...] = ()
    """The advisor's summary and the files of a single op."""

    def exit_code(self, fail_on: str = "large", min_coverage: float | None = None) -> int:
        """The exit code of the comparison."""
        return self.result.exit_code(fail_on, min_coverage)


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
