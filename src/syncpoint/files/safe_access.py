"""Careful access to files that may come from elsewhere, and writes that are whole or absent.

Everything a run or a dump reads passes through here: only regular files inside their folder,
sizes known before memory is taken, JSON without repeated keys.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError, InputError
from syncpoint.files.partial import Partial

Bytes = NDArray[np.uint8]

_SMALL = 16 * 1024
"""Below this a read is cheaper than a mapping and its page faults."""


def one_line(error: BaseException) -> str:
    """What an exception says, fit for one line of an error."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())
    return text or type(error).__name__


def inside(root: Path, name: str) -> Path:
    """The file `name` below `root`; a name or link that leads out of it is a FormatError."""
    path = root / name
    if _without_links(str(root), name):
        return path
    try:
        leads_out = not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:  # a link in circles is a RuntimeError up to 3.12
        raise FormatError(f"a file inside {root}", f"{name}: {one_line(error)}") from error
    if leads_out:
        raise FormatError(f"a file inside {root}", f"{name}, which leads out of it")
    return path


def _without_links(root: str, name: str) -> bool:
    """Whether `name` goes straight down from `root`, by folders and files that are no links.

    Such a name cannot lead out, whatever `root` itself is, and asking each part takes a fifth of
    the time of resolving both paths. Of every other name this says nothing.
    """
    parts = name.split("/")
    if os.name != "posix" or name.startswith("/") or ".." in parts:
        return False
    at = root
    for part in parts:
        at = f"{at}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(at).st_mode):
                return False
        except (OSError, ValueError):
            return False
    return True


def open_regular(path: Path) -> int:
    """A descriptor for reading; anything but a regular file is a FormatError.

    A named pipe would block the reader for ever, so it is opened without waiting and refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FormatError(f"a regular file at {path}", "something else")
    return handle


def starts_with(path: Path, magic: bytes) -> bool:
    """Whether a file that can be read begins with these bytes."""
    try:
        handle = open_regular(path)
    except (OSError, FormatError):
        return False
    try:
        return os.pread(handle, len(magic), 0) == magic
    finally:
        os.close(handle)


def read_whole(path: Path, limit: int) -> bytes:
    """All of a file that should be small; more than `limit` bytes is a FormatError."""
    handle = open_regular(path)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        if size > limit:
            raise FormatError(f"at most {limit} bytes in {path}", f"{size}")
        return file.read(size)


def map_bytes(path: Path, offset: int, nbytes: int) -> Bytes:
    """Bytes of a file, read-only, mapped just for this array and freed with it.

    Raises FormatError where the file is missing or shorter than asked.
    """
    try:
        handle = open_regular(path)
    except OSError as error:
        cure = ""
        if isinstance(error, FileNotFoundError):
            cure = "the recording is damaged; restore the file, or record it again"
        raise FormatError(f"the file {path}", one_line(error), cure) from error
    try:
        size = os.fstat(handle).st_size
        if offset < 0 or nbytes < 0 or offset + nbytes > size:
            raise FormatError(
                f"{nbytes} bytes at offset {offset} of {path}",
                f"a file of {size} bytes",
                "it is damaged (truncated), or its index is wrong; record it again",
            )
        if nbytes == 0:
            return _frozen(np.empty(0, np.uint8))
        if nbytes <= _SMALL:
            data = os.pread(handle, nbytes, offset)
            if len(data) != nbytes:
                raise FormatError(f"{nbytes} bytes at offset {offset} of {path}", f"{len(data)}")
            return np.frombuffer(data, np.uint8)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        length = offset - start + nbytes
        mapped = mmap.mmap(handle, length, access=mmap.ACCESS_READ, offset=start)
        return np.frombuffer(mapped, np.uint8, count=nbytes, offset=offset - start)
    except OSError as error:
        raise FormatError(f"{nbytes} readable bytes in {path}", one_line(error)) from error
    finally:
        os.close(handle)


def _frozen(array: Bytes) -> Bytes:
    array.flags.writeable = False
    return array


def write_all(handle: int, data: bytes | bytearray | memoryview | Bytes, offset: int) -> None:
    """Write every byte at `offset`; the kernel may take a large write in pieces."""
    left = memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B")
    while left:
        done = os.pwrite(handle, left, offset)
        left = left[done:]
        offset += done


def start_writing_back(handle: int, offset: int, nbytes: int) -> None:
    """Have the kernel begin to bring these bytes to the disk, without waiting for it.

    Left to itself it would begin when the file is synced at its end, while the one who records
    waits. Where the system has no such call, that is how it stays.
    """
    call = _sync_file_range()
    if call is not None:
        call(handle, offset, nbytes, _SYNC_FILE_RANGE_WRITE)


_SYNC_FILE_RANGE_WRITE = 2


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    found: Callable[[int, int, int, int], int] = call
    return found


def write_atomically(path: Path, data: bytes) -> None:
    """The file appears with all of `data` or, if anything fails, stays as it was."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


class replacing:  # noqa: N801  # reads as a verb where it is used: with replacing(path) as ...
    """Gives a temporary path; on success syncs it and renames it to `path`.

    For files in folders of our own: a link at `path` is replaced, never followed. Where another
    writer of the same path is at work, each writes its own file, and the last one stays; with
    `new` the first one stays, and the others get a FileExistsError.
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


def parse_json(data: bytes | str, what: str) -> Any:
    """Parse JSON from elsewhere; damage, a repeated key or deep nesting is a FormatError."""
    try:
        if isinstance(data, bytes):
            data = data.decode(json.detect_encoding(data), "surrogatepass")
        return _DECODER.decode(data)
    except _Repeated as error:
        raise FormatError(f"each key once in {what}", f"{error.key!r} twice") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"valid JSON in {what}", one_line(error)) from error


def parse_foreign_json(data: bytes | str, what: str) -> Any:
    """The same for files of other tools, whose names must be whole characters too: half of one,
    as `\\ud800` alone, cannot be written into any table."""
    body = parse_json(data, what)
    try:
        text = data.decode(json.detect_encoding(data)) if isinstance(data, bytes) else data
        if "\\ud" in text.lower():
            json.dumps(body, ensure_ascii=False).encode()
        elif not text.isascii():
            text.encode()
    except UnicodeError as error:
        raise FormatError(f"whole characters in {what}", one_line(error)) from error
    return body


class _Repeated(Exception):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Repeated(key)
            seen.add(key)
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
"""One for all, as making one costs more than most texts do."""


def folder(path: Path, what: str) -> Path:
    """`path` if it is a folder that can be listed, else an InputError."""
    try:
        next(os.scandir(path), None)
    except OSError as error:
        raise InputError(what, f"{path}: {one_line(error)}", "check the path") from error
    return path
