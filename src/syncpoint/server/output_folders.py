"""Folders that a session writes comparisons to: choose a free name, create it, clear what an
unfinished one leaves unless it is worth keeping."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from syncpoint.comparison.storage.comparison_folder import is_comparison, is_comparison_file
from syncpoint.comparison.storage.file_names import PROGRESS_LOG
from syncpoint.comparison.storage.progress_log import can_resume
from syncpoint.errors import SyncpointError
from syncpoint.files.write_errors import write_errors
from syncpoint.run.storage.journal import read_journal
from syncpoint.run.storage.open_run import open_run


def free_output_path(out: Path, name: str) -> Path:
    """Return a path in `out` that does not exist: NAME.cmp, or NAME-2.cmp and so on."""
    path, number = out / f"{name}.cmp", 1
    while os.path.lexists(path):
        number += 1
        path = out / f"{name}-{number}.cmp"
    return path


def create_output_folder(out: Path, name: str) -> Path:
    """Create a new folder for a comparison; nothing is overwritten, even by concurrent writers."""
    with write_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        while True:
            path = free_output_path(out, name)
            with suppress(FileExistsError):
                path.mkdir()
                return path


def clear_output_folder(folder: Path) -> bool:
    """Delete the folder of an unfinished comparison unless it is worth keeping; return whether the
    comparison can be resumed."""
    keep = is_worth_keeping(folder)
    if (
        not keep
        and folder.is_dir()
        and all(is_comparison_file(entry) for entry in folder.iterdir())
    ):
        shutil.rmtree(folder, ignore_errors=True)
    return keep and (folder / PROGRESS_LOG).is_file()


def has_measurements(folder: Path) -> bool:
    """Whether the log of an unfinished comparison has measurements."""
    with suppress(SyncpointError, OSError):
        return any(kind == "measured" for kind, _ in read_journal(folder / PROGRESS_LOG).frames)
    return False


def is_worth_keeping(folder: Path) -> bool:
    """Whether a folder has a comparison, or a log that can be resumed with measurements or a
    complete run. A saved comparison that still has its log was ended during its diagnosis."""
    if is_comparison(folder):
        return True
    if not can_resume(folder):
        return False
    if has_measurements(folder):
        return True
    for path in folder.glob("*.run"):
        with suppress(SyncpointError, OSError):
            if open_run(path).info.complete:
                return True
    return False
