"""Write a file or folder atomically: temporary locked name, sync (in parallel), rename (main file
last); remove what killed writers left behind.

A partial is called `.NAME.PID-RANDOM.partial`, so no two writers share one. Its writer locks it for
as long as that process lives. A partial without a lock was left by a process that was killed; the
next process that writes the same path removes it. On file systems without locks nothing is removed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path

SUFFIX = ".partial"
_NAME = re.compile(r"\.(?P<final>.+)\.[0-9]+-[0-9a-f]{8}\.partial", re.DOTALL)
_MAX_NAME_BYTES = 200
"""Longest name that a partial's name repeats whole; file systems allow 255 bytes in total."""
_SYNC_THREADS = 16
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_NO_SYNC = (errno.EINVAL, errno.EBADF, errno.EACCES, errno.EPERM, errno.ENOTSUP, errno.EISDIR)
"""Error codes of systems that cannot sync a folder, or may not read it."""

Rename = Callable[[int, bytes, int, bytes, int], int]


def final_name_of(name: str) -> str:
    """The final name of a partial; "" if `name` is not the name of a partial."""
    match = _NAME.fullmatch(name)
    return match["final"] if match else ""


class Partial:
    """A new, empty file or folder next to `final`: published under that name or discarded."""

    def __init__(self, final: Path, *, folder: bool = False) -> None:
        """A file gets the permissions of the file that it replaces, or the default ones."""
        self.final = final
        self._folder = folder
        _remove_abandoned_partials(final)
        while True:
            self.path = final.with_name(_partial_name(final.name))
            try:
                self._handle = _create(self.path, folder)
            except FileExistsError:
                continue
            if self._handle >= 0 and _lock_partial(self._handle, self.path):
                break
            # Another writer took it for an abandoned one before it was locked, and removed it.
            if self._handle >= 0:
                os.close(self._handle)
        if not folder:
            _copy_permissions(final, self._handle)

    def __enter__(self) -> Partial:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()  # does nothing if it is published

    def publish(self, *, new: bool = False) -> None:
        """Sync everything to the disk, then rename; with `new`, FileExistsError if `final` exists.
        If anything fails, an older `final` stays and the partial is discarded."""
        try:
            self._sync()
            if new:
                _rename_new(self.path, self.final)
                self._release()
            else:
                self._rename()
        except BaseException:
            self.discard()
            raise
        sync_folder(self.final.parent)

    def publish_after(self, other: Partial) -> None:
        """Publish two files of one folder that belong together, `other` first. An older `final` is
        removed before, so that an old and a new file never stand together: without a file at
        `final` the pair is not complete."""
        try:
            other._sync()
            self._sync()
            # From here on nothing needs disk space.
            self.final.unlink(missing_ok=True)
            with suppress(OSError):
                sync_folder(self.final.parent)
            other._rename()
            self._rename()
        except BaseException:
            other.discard()
            self.discard()
            raise
        sync_folder(self.final.parent)

    def publish_files(self) -> None:
        """Move the files of a partial folder next to it, the one named like `final` last."""
        self._sync()
        others = sorted(p.name for p in self.path.iterdir() if p.name != self.final.name)
        for name in (*others, self.final.name):
            (self.path / name).replace(self.final.with_name(name))
        self.discard()
        sync_folder(self.final.parent)

    def discard(self) -> None:
        """Remove it, unless it was published or discarded already."""
        if self._handle < 0:
            return
        if self._folder:
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)
        self._release()

    def _sync(self) -> None:
        if self._folder:
            _sync_tree(self.path)
        os.fsync(self._handle)

    def _rename(self) -> None:
        self.path.replace(self.final)
        self._release()

    def _release(self) -> None:
        handle, self._handle = self._handle, -1
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, if the system supports that."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)


def _sync_tree(folder: Path) -> None:
    """Sync all files, many in parallel: the file system then writes one journal entry for them."""
    folders, files = [], []
    for parent, _, names in os.walk(folder):
        folders.append(Path(parent))
        files += [Path(parent, name) for name in names]
    with ThreadPoolExecutor(_SYNC_THREADS) as pool:
        list(pool.map(sync, files))
    for path in folders:
        sync_folder(path)


def sync(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _partial_prefix(name: str) -> str:
    """The beginning of the names of all partials of `name`, after the dot."""
    data = os.fsencode(name)
    if len(data) <= _MAX_NAME_BYTES:
        return name
    import xxhash

    return (
        f"{data[: _MAX_NAME_BYTES - 20].decode('utf-8', 'ignore')}~{xxhash.xxh3_64_hexdigest(data)}"
    )


def _partial_name(name: str) -> str:
    return f".{_partial_prefix(name)}.{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"


def _create(path: Path, folder: bool) -> int:
    """Create a file or folder and return its descriptor; -1 if a folder was removed meanwhile."""
    if not folder:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(path, flags, 0o666)
    path.mkdir()
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return -1


def _copy_permissions(final: Path, handle: int) -> None:
    """Give a file the owner and mode of the regular file that it will replace."""
    try:
        old = final.lstat()
    except OSError:
        return
    if not stat.S_ISREG(old.st_mode):
        return
    with suppress(OSError):  # only root may give a file away
        if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(handle, old.st_uid, old.st_gid)
    with suppress(OSError):
        os.fchmod(handle, stat.S_IMODE(old.st_mode))


def _lock_partial(handle: int, path: Path) -> bool:
    """Lock a new partial; False if another process removed it."""
    return _lock(handle) is not False and _is_same_file(handle, path)


def _lock(handle: int) -> bool | None:
    """Try to lock; True if this process holds the lock now, None if locks are not supported."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


_abandoned_partials: dict[tuple[int, str], dict[str, list[str]]] = {}
"""Names of the partials that were in a folder when this process first wrote to it, by final name.
Each folder is listed only once: some writers write thousands of files into one."""


def _remove_abandoned_partials(final: Path) -> None:
    """Remove the partials that killed writers of `final` left; those of running writers stay."""
    folder = str(final.parent.absolute())
    key = (os.getpid(), folder)
    if key not in _abandoned_partials:
        partials: dict[str, list[str]] = {}
        with suppress(OSError):
            for name in (entry.name for entry in os.scandir(folder)):
                final_name = final_name_of(name)
                if final_name:
                    partials.setdefault(final_name, []).append(name)
        _abandoned_partials[key] = partials
    for name in _abandoned_partials[key].pop(_partial_prefix(final.name), ()):
        remove_abandoned(Path(folder, name))


def remove_abandoned(path: Path) -> None:
    """Remove a partial that no running process has locked."""
    try:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except IsADirectoryError:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        kind = os.fstat(handle).st_mode
        if _lock(handle) and _is_same_file(handle, path):
            if stat.S_ISDIR(kind):
                shutil.rmtree(path, ignore_errors=True)
            elif stat.S_ISREG(kind):
                with suppress(OSError):
                    path.unlink()
    finally:
        os.close(handle)


def _rename_new(source: Path, final: Path) -> None:
    """Rename unless `final` exists: in one step, or in two if the system has no such call."""
    call = _renameat2()
    if call is not None:
        ctypes.set_errno(0)
        if not call(
            _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(final), _RENAME_NOREPLACE
        ):
            return
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(code, os.strerror(code), str(final))
    if os.path.lexists(final):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
    source.rename(final)


@cache
def _renameat2() -> Rename | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    call.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    )
    rename: Rename = call
    return rename


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole; if anything fails, an older file stays unchanged."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


class replacing:  # noqa: N801  # reads as a verb where it is used: with replacing(path) as ...
    """Yield a temporary path; on success sync it and rename it to `path`.

    For files in folders that this package owns: a link at `path` is replaced, never followed. If
    several writers write the same path, each writes its own file, and the last one wins; with `new`
    the first one wins, and the others get a FileExistsError.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self._path = path
        self._new = new

    def __enter__(self) -> Path:
        if self._new and os.path.lexists(self._path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self._path))
        if not self._path.is_symlink() and self._path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self._path))
        self._partial = Partial(self._path)
        return self._partial.path

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._partial.discard()
        else:
            self._partial.publish(new=self._new)
