"""Watch a folder that another process writes (`--watch`): which files to read now, and when to stop
waiting."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from syncpoint.reducing.file_access import Stamp

Progress = Callable[[str], None]
"""Called with a line of text that says how far the work is."""

INTERVAL = 0.5
"""Seconds between two scans."""


@dataclass(kw_only=True)
class FolderWatch:
    """Decides which files to read at a scan, and whether to scan again."""

    enabled: bool = False
    until_idle: float | None = None
    """Stop after so many seconds without a change."""
    _last_scan: dict[str, Stamp] = field(default_factory=dict)
    _read: dict[str, Stamp] = field(default_factory=dict)
    _changed_at: float = field(default_factory=time.monotonic)
    _unchanged_scans: int = 0
    """Scans since the last change."""

    def files_to_read(self, stamps: dict[str, Stamp]) -> list[str]:
        """The files to read at this scan.

        While another process writes, a file is read only if it is the same as at the last scan:
        its format must say that it is complete, and it must be at rest. A file that was read is
        returned again only after it changed.
        """
        self._unchanged_scans += 1
        if any(self._last_scan.get(file) != stamp for file, stamp in stamps.items()):
            self._changed_at, self._unchanged_scans = time.monotonic(), 0
        files = [
            file
            for file, stamp in stamps.items()
            if self._read.get(file) != stamp
            and (not self.enabled or self._last_scan.get(file) == stamp)
        ]
        self._last_scan = stamps
        return files

    def mark_read(self, file: str, stamp: Stamp) -> None:
        """Do not return a file again unless it changes."""
        self._read[file] = stamp

    def should_continue(self, worked: bool, finished: bool) -> bool:
        """Whether to scan again; waits for a while if there was nothing to do."""
        if not self.enabled or (finished and self._unchanged_scans):
            return False
        idle_seconds = time.monotonic() - self._changed_at
        if (
            self.until_idle is not None
            and self._unchanged_scans
            and idle_seconds >= self.until_idle
        ):
            return False
        if not worked:
            wait = INTERVAL if self.until_idle is None else min(INTERVAL, self.until_idle / 2)
            time.sleep(max(wait, 0.01))
        return True
