"""Files that others may still be writing: list, open and read them, see changes, delete them."""

from __future__ import annotations

import os
import stat as file_modes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.npy_header import MAGIC
from syncpoint.errors import FormatError, InputError, describe_error
from syncpoint.files.untrusted_files import open_regular
from syncpoint.run.model import Tensor

Stamp = tuple[int, int, int]
"""Size, time of the last change, and number of the file: what changes when a file does."""

_MAX_DEPTH = 32


def stamp(found: os.stat_result) -> Stamp:
    """What tells that a file is not what it was."""
    return (found.st_size, found.st_mtime_ns, found.st_ino)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a regular file; a link is a FormatError, as is what cannot be opened."""
    if path.is_symlink():
        raise FormatError("a file of the dump itself", f"a link at {path.name}")
    try:
        handle = open_regular(path)
    except OSError as error:
        raise FormatError(f"a readable file {path.name}", describe_error(error)) from error
    try:
        yield handle
    finally:
        os.close(handle)


def first_bytes(path: Path) -> bytes:
    """As many bytes from the start of a file as tell that it is a .npy array."""
    handle = open_regular(path)
    try:
        return os.pread(handle, len(MAGIC), 0)
    finally:
        os.close(handle)


def read_into(handle: int, raw: NDArray[np.uint8], offset: int, tensor: Tensor) -> None:
    """Fill `raw` with the bytes at `offset`; a file that is too short is a FormatError."""
    left = memoryview(raw.data)
    while left:
        done = os.preadv(handle, [left], offset)
        if not done:
            raise FormatError(f"all bytes of {tensor.key}", "a file that was cut short")
        left = left[done:]
        offset += done


def remove(path: Path, seen: Stamp) -> bool:
    """Delete a regular file if it is still the one that was seen; whether that was done."""
    try:
        found = path.lstat()
        if not file_modes.S_ISREG(found.st_mode) or stamp(found) != seen:
            return False
        path.unlink()
    except OSError:
        return False
    return True


def check_unchanged(path: Path, handle: int, before: Stamp) -> None:
    """A FormatError if a file, open as `handle`, is not what it was, or not there any more."""
    try:
        now = path.lstat()
    except OSError as error:
        raise FormatError(f"{path.name} until it is read", describe_error(error)) from error
    if stamp(os.fstat(handle)) != before or stamp(now) != before:
        raise FormatError(f"{path.name} to stay as it is while it is read", "it changed")


def walk(root: Path) -> Iterator[tuple[str, Stamp]]:
    """All regular files below a folder; links are not followed, and hidden files, in which others
    keep what is not ready, are not looked at."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a folder may go while we look
            raise InputError(f"readable folders in {root}", describe_error(error)) from error

    for parent, folders, files in os.walk(root, onerror=refuse):
        base = Path(parent).relative_to(root)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if len(base.parts) > _MAX_DEPTH:
            raise InputError(f"at most {_MAX_DEPTH} folders inside each other in {root}", "more")
        for file in sorted(files):
            name = (base / file).as_posix()
            if file.startswith(".") or not name.isprintable():
                continue
            try:
                entry = (root / name).lstat()
            except OSError:
                continue
            if file_modes.S_ISREG(entry.st_mode):
                yield name, stamp(entry)
