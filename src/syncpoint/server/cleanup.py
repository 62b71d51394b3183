"""What a comparison that was not finished has left, and what a server that was killed has."""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from syncpoint.comparison.storage.comparison_folder import PROGRESS_LOG, is_comparison
from syncpoint.comparison.storage.progress_log import can_resume
from syncpoint.errors import SyncpointError
from syncpoint.files.writer_lock import RunLock, is_locked
from syncpoint.run.storage.journal import read_journal
from syncpoint.run.storage.open_run import open_run

_LOOKS = "syncpoint-looks-"
"""What folders for looks at unfinished comparisons are called in the folder for passing files."""

_BEGINNING = 60.0
"""Seconds after which a folder without a lock is nobody's."""


def has_numbers(folder: Path) -> bool:
    """Whether anything is measured in the log of an unfinished comparison."""
    with suppress(SyncpointError, OSError):
        return any(kind == "measured" for kind, _ in read_journal(folder / PROGRESS_LOG).frames)
    return False


def worth_keeping(folder: Path) -> bool:
    """Whether a comparison is there, or the log of one and with it numbers or a run that is
    whole. One that is saved and still has its log was ended during its diagnosis."""
    if is_comparison(folder):
        return True
    if not can_resume(folder):
        return False
    if has_numbers(folder):
        return True
    for path in folder.glob("*.run"):
        with suppress(SyncpointError, OSError):
            if open_run(path).info.complete:
                return True
    return False


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
