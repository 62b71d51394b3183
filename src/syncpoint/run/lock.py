"""One writer per run: a lock file that the kernel lets go of when its holder dies."""

from __future__ import annotations

import os
from pathlib import Path

from syncpoint.errors import InputError, Unsupported

LOCK = "run.lock"


class RunLock:
    """Held from construction to `release`; a second holder is an InputError."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        while True:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if not _locked(handle):
                os.close(handle)
                raise InputError(
                    f"no other writer of {folder}",
                    "one at work",
                    "wait for it, or choose another name",
                )
            if _same_file(handle, self._path):
                self._handle = handle
                return
            # The former holder removed its file between our opening and our locking it.
            os.close(handle)

    def release(self) -> None:
        """Let others write; removing the file first keeps the folder free of it."""
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


def is_locked(folder: Path) -> bool:
    """Whether a living process writes this run."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not _locked(handle, shared=True)
    except OSError:
        return False
    finally:
        os.close(handle)


def _locked(handle: int, *, shared: bool = False) -> bool:
    try:
        import fcntl
    except ImportError as error:
        raise Unsupported(
            "an operating system with flock", os.name, "record on Linux or macOS"
        ) from error
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same_file(handle: int, path: Path) -> bool:
    ours = os.fstat(handle)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
