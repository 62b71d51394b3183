"""Show an unfinished comparison: a worker writes it as a temporary comparison in a locked folder;
folders of dead servers are deleted."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from syncpoint.comparison.storage.file_names import PROGRESS_LOG
from syncpoint.errors import CaptureError, InputError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.writer_lock import RunLock, is_locked
from syncpoint.server.form_request import RequestedComparison
from syncpoint.server.worker_process import WorkerProcess

_FOLDER_PREFIX = "syncpoint-looks-"
"""Prefix of the temporary folders with views of unfinished comparisons."""
_MIN_AGE_SECONDS = 60.0
"""A folder without a lock that is older belongs to no running server."""
_TIMEOUT_SECONDS = 120.0
"""Time that pairing two runs again may take."""


class UnfinishedViews:
    """Writes one view at a time; a comparison that has not changed is not written again."""

    def __init__(self, register: Callable[[Path], str]) -> None:
        """`register` allows a comparison to be shown, and returns its name in URLs."""
        self._register = register
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._folder_lock: RunLock | None = None
        self._name_by_log_size: dict[tuple[Path, int], str] = {}
        self._process: WorkerProcess | None = None

    def show(self, folder: Path, plan: RequestedComparison) -> str:
        """Return the name in URLs of a view of the unfinished comparison in `folder`."""
        with self._lock:
            with read_errors(f"the unfinished comparison {folder.name}", cure="reload the page"):
                key = (folder, (folder / PROGRESS_LOG).stat().st_size)
            if key not in self._name_by_log_size:
                if self._folder is None:
                    self._folder, self._folder_lock = create_view_folder()
                into = self._folder / str(len(self._name_by_log_size)) / folder.name
                into.parent.mkdir()
                arguments = plan.build_call()
                call = {k: arguments[k] for k in ("target", "reference", "preset", "introduced")}
                self._write({"folder": str(folder), "into": str(into), "call": call})
                self._name_by_log_size[key] = self._register(into)
            return self._name_by_log_size[key]

    def close(self) -> None:
        """Stop the process that runs, and delete all views."""
        if self._process is not None:
            self._process.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._folder_lock is not None:
            self._folder_lock.release()
            self._folder_lock = None

    def _write(self, order: dict[str, Any]) -> None:
        self._process = process = WorkerProcess({"so far": order})
        last_event = process.run_to_end(_TIMEOUT_SECONDS)
        self._process = None
        if last_event.get("kind") == "problem":
            raise InputError(str(last_event["problem"]), cure=str(last_event["cure"]))
        if last_event.get("kind") != "written":
            raise CaptureError(
                f"cannot read the unfinished comparison: {process.describe_failure().problem}"
            )


def create_view_folder() -> tuple[Path, RunLock]:
    """Create a temporary folder that is locked by this process; delete those of dead servers."""
    for folder in Path(gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            # A killed server has released its lock; one that just starts may have none yet.
            is_old = time.time() - status.st_mtime > _MIN_AGE_SECONDS
            if is_own and is_old and not is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)
    folder = Path(mkdtemp(prefix=_FOLDER_PREFIX))
    return folder, RunLock(folder)
