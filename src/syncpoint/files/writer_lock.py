"""Lock a run or comparison for one writer, by a lock file that the kernel releases when the process
dies; see who holds it, and whether it was replaced."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syncpoint.errors import InputError, Unsupported

LOCK = "run.lock"
_POLL_SECONDS = 0.01
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
_locks_held: set[tuple[int, int, str]] = set()
"""The locks that this process holds: process id, thread id and folder."""


class AnotherWriter(InputError):
    """Another process or thread is writing the run or comparison."""

    def __init__(self, folder: Path, cure: str = "wait for it, or choose another name") -> None:
        super().__init__(f"{folder} is locked: another process is writing it", cure=cure)
        self.folder = folder
        self.args = (folder, cure)


class RunLock:
    """Locks a folder from construction to `release`; if it is locked, AnotherWriter is raised."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        while True:
            # Links are not followed: a hostile folder must not make us create files elsewhere.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self._path, flags, 0o666)
            try:
                locked = _try_lock(handle)
            except BaseException:
                os.close(handle)
                raise
            if not locked:
                os.close(handle)
                raise AnotherWriter(folder)
            if _is_same_file(handle, self._path):
                self._handle = handle
                self._holder_of = _holder_of(folder)
                _locks_held.add(self._holder_of)
                return
            # The previous holder removed its file after we opened it and before we locked it.
            os.close(handle)

    def release(self) -> None:
        """Unlock the folder. The file is removed first, so that the folder is left without it."""
        _locks_held.discard(self._holder_of)
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


@contextmanager
def sole_writer(folder: Path, seconds: float = 10.0) -> Iterator[None]:
    """Lock a folder for a short write, unless this thread holds the lock already.

    Waits for another writer for up to `seconds`, then raises InputError.
    """
    if _holder_of(folder) in _locks_held:
        yield
        return
    lock = _wait_for_lock(folder, time.monotonic() + seconds)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _wait_for_lock(folder: Path, deadline: float) -> RunLock | None:
    """Acquire the lock; None if the system or the file system has no locks."""
    while True:
        try:
            return RunLock(folder)
        except Unsupported:
            return None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            (folder / LOCK).unlink(missing_ok=True)
            return None
        except InputError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


def _holder_of(folder: Path) -> tuple[int, int, str]:
    return os.getpid(), threading.get_ident(), os.path.realpath(folder)


def is_locked(folder: Path) -> bool:
    """Whether a running process is writing this run."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not _try_lock(handle, shared=True)
    except OSError:
        return False
    finally:
        os.close(handle)


def _try_lock(handle: int, *, shared: bool = False) -> bool:
    try:
        import fcntl
    except ImportError as error:
        raise Unsupported(
            f"recording needs an operating system with flock, not {os.name}",
            cure="record on Linux or macOS",
        ) from error
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(handle: int, path: Path) -> bool:
    opened = os.fstat(handle)
    try:
        current = path.stat()
    except FileNotFoundError:
        return False
    return (opened.st_dev, opened.st_ino) == (current.st_dev, current.st_ino)
