"""Looking at a folder again and again, until there is nothing more to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from syncpoint.reducing.file_access import Stamp

Progress = Callable[[str], None]
"""Told in words how far the work is."""

INTERVAL = 0.5
"""Seconds between two looks."""


@dataclass(kw_only=True)
class Watch:
    """When to look again, and which files to take at a look."""

    on: bool = False
    until_idle: float | None = None
    """Seconds after which nothing more is waited for if nothing came."""
    _before: dict[str, Stamp] = field(default_factory=dict)
    _done: dict[str, Stamp] = field(default_factory=dict)
    _changed: float = field(default_factory=time.monotonic)
    _alike: int = 0
    """Looks since the last one at which something was new."""

    def fresh(self, there: dict[str, Stamp]) -> list[str]:
        """The files to look into now.

        While others write, only those that are as they were at the last look: besides what its
        format says, a file must have come to rest. One that was looked into comes again only
        after it changed.
        """
        self._alike += 1
        if any(self._before.get(file) != seen for file, seen in there.items()):
            self._changed, self._alike = time.monotonic(), 0
        found = [
            file
            for file, seen in there.items()
            if self._done.get(file) != seen and (not self.on or self._before.get(file) == seen)
        ]
        self._before = there
        return found

    def looked_into(self, file: str, seen: Stamp) -> None:
        """Do not come again with a file unless it changes."""
        self._done[file] = seen

    def goes_on(self, worked: bool, finished: bool) -> bool:
        """Whether to look again; waits a while where there was nothing to do."""
        if not self.on or (finished and self._alike):
            return False
        quiet = time.monotonic() - self._changed
        if self.until_idle is not None and self._alike and quiet >= self.until_idle:
            return False
        if not worked:
            wait = INTERVAL if self.until_idle is None else min(INTERVAL, self.until_idle / 2)
            time.sleep(max(wait, 0.01))
        return True
