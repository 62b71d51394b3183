"""Looking at comparisons before they are finished: each look is a comparison of its own, written by
a process of its own, and gone with the session."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from syncpoint.comparison.storage.file_names import PROGRESS_LOG
from syncpoint.errors import CaptureError, InputError, describe_error
from syncpoint.files.writer_lock import RunLock, is_locked
from syncpoint.server.comparison_request import ComparisonPlan
from syncpoint.server.worker_process import Process

_LOOKS = "syncpoint-looks-"
"""What folders for looks at unfinished comparisons are called in the folder for passing files."""
_BEGINNING = 60.0
"""Seconds after which a folder without a lock is nobody's."""
_LONGEST = 120.0
"""Seconds that pairing two runs again may take."""


class Glimpses:
    """One look at a time; a comparison that has not changed since is not written again."""

    def __init__(self, add: Callable[[Path], str]) -> None:
        """`add` lets a comparison be looked at, and gives its name."""
        self._add = add
        self._one = threading.Lock()
        self._place: Path | None = None
        self._lock: RunLock | None = None
        self._known: dict[tuple[Path, int], str] = {}
        self._process: Process | None = None

    def look(self, folder: Path, plan: ComparisonPlan) -> str:
        """The name of what the unfinished comparison in `folder` has come to."""
        with self._one:
            try:
                key = (folder, (folder / PROGRESS_LOG).stat().st_size)
            except OSError as error:
                raise InputError(f"a comparison at {folder.name}", describe_error(error)) from error
            if key not in self._known:
                if self._place is None:
                    self._place, self._lock = place_for_looks()
                into = self._place / str(len(self._known)) / folder.name
                into.parent.mkdir()
                call = {k: plan.call()[k] for k in ("target", "reference", "preset", "introduced")}
                self._write({"folder": str(folder), "into": str(into), "call": call})
                self._known[key] = self._add(into)
            return self._known[key]

    def close(self) -> None:
        """End what runs, and leave nothing behind."""
        if self._process is not None:
            self._process.end()
        if self._place is not None:
            shutil.rmtree(self._place, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _write(self, order: dict[str, Any]) -> None:
        self._process = process = Process({"so far": order})
        limit = threading.Timer(_LONGEST, process.end)
        limit.start()
        threading.Thread(target=lambda: deque(process.printed(), 0), daemon=True).start()
        said: dict[str, Any] = {}
        for event in process.events():
            said = event
        process.wait()
        limit.cancel()
        self._process = None
        if said.get("kind") == "problem":
            raise InputError(str(said["problem"]), cure=str(said["cure"]))
        if said.get("kind") != "written":
            raise CaptureError(
                f"cannot read the unfinished comparison: {process.failure().problem}"
            )


def place_for_looks() -> tuple[Path, RunLock]:
    """A folder that is ours as long as we live, without those of servers that live no more."""
    for folder in Path(gettempdir()).glob(f"{_LOOKS}*"):
        with suppress(OSError):
            facts = folder.lstat()
            ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
            # Whoever was killed has let go of its lock; one that just begins may have none yet.
            if ours and time.time() - facts.st_mtime > _BEGINNING and not is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(mkdtemp(prefix=_LOOKS))
    return folder, RunLock(folder)
