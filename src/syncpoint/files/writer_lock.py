"""One writer per run or comparison: a lock file that the kernel lets go of when its holder dies."""

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
_held: set[tuple[int, int, str]] = set()
"""Process, thread and folder of the locks that this process holds."""


class AnotherWriter(InputError):
    """Somebody else is writing the run or comparison."""

    def __init__(self, folder: Path, cure: str = "wait for it, or choose another name") -> None:
        super().__init__(f"no other writer of {folder}", "one at work", cure)
        self.folder = folder
        self.args = (folder, cure)


class RunLock:
    """Held from construction to `release`; a second holder is AnotherWriter."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        while True:
            # Not through a link: a folder from elsewhere must not have files made outside of it.
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self._path, flags, 0o666)
            try:
                locked = _locked(handle)
            except BaseException:
                os.close(handle)
                raise
            if not locked:
                os.close(handle)
                raise AnotherWriter(folder)
            if _same_file(handle, self._path):
                self._handle = handle
                self._holder = _holder(folder)
                _held.add(self._holder)
                return
            # The former holder removed its file between our opening and our locking it.
            os.close(handle)

    def release(self) -> None:
        """Let others write; removing the file first keeps the folder free of it."""
        _held.discard(self._holder)
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


@contextmanager
def sole_writer(folder: Path, seconds: float = 10.0) -> Iterator[None]:
    """Hold the lock of a folder for a short write, unless this thread holds it already.

    Another writer is waited for; after `seconds` it is an InputError.
    """
    if _holder(folder) in _held:
        yield
        return
    lock = _wait_for_lock(folder, time.monotonic() + seconds)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _wait_for_lock(folder: Path, deadline: float) -> RunLock | None:
    """None where the system or the file system has no locks."""
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


def _holder(folder: Path) -> tuple[int, int, str]:
    return os.getpid(), threading.get_ident(), os.path.realpath(folder)


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
