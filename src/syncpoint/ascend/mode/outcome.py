"""The result and the files of one comparison of a mode."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from syncpoint.comparison.result import Result


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
