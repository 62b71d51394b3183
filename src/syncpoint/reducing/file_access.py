"""Open, read, list, check (size, time, inode) and delete data files that another process may still
write or change."""

from __future__ import annotations

import os
import stat
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
"""Size, modification time and inode of a file. It changes when the file changes."""

CHANGED_FILE_CURE = "make sure that no other program changes the file, then try again"
"""The cure for a file that changes while it is read."""

_MAX_FOLDER_DEPTH = 32


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return (status.st_size, status.st_mtime_ns, status.st_ino)


@contextmanager
def open_data_file(path: Path) -> Iterator[int]:
    """The descriptor of a regular file; a FormatError if it is a link or cannot be opened."""
    if path.is_symlink():
        raise FormatError(
            "the file is a symbolic link, and reduce reads only the files of the dump itself",
            cure="replace the link by a copy of the file that it points to",
        )
    try:
        handle = open_regular(path)
    except OSError as error:
        raise FormatError(
            f"the file cannot be opened: {describe_error(error)}",
            cure="check that you may read it",
        ) from error
    try:
        yield handle
    finally:
        os.close(handle)


def read_signature(path: Path) -> bytes:
    """The first bytes of a file, as many as the signature of a .npy file has."""
    handle = open_regular(path)
    try:
        return os.pread(handle, len(MAGIC), 0)
    finally:
        os.close(handle)


def read_into(handle: int, buffer: NDArray[np.uint8], offset: int, tensor: Tensor) -> None:
    """Fill `buffer` with the bytes at `offset`; a FormatError if the file is too short."""
    remaining = memoryview(buffer.data)
    while remaining:
        count = os.preadv(handle, [remaining], offset)
        if not count:
            raise FormatError(
                f"the file is cut off inside the tensor {tensor.key}",
                cure="copy the file again, or dump it again",
            )
        remaining = remaining[count:]
        offset += count


def remove_unchanged(path: Path, stamp: Stamp) -> bool:
    """Delete a regular file if it still has this stamp; return whether it was deleted."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or stamp_of(status) != stamp:
            return False
        path.unlink()
    except OSError:
        return False
    return True


def check_unchanged(path: Path, handle: int, stamp: Stamp) -> None:
    """Raise a FormatError if a file, open as `handle`, has changed or is gone."""
    try:
        status = path.lstat()
    except OSError as error:
        raise FormatError(
            f"the file disappeared while it was being read: {describe_error(error)}",
            cure=CHANGED_FILE_CURE,
        ) from error
    if stamp_of(os.fstat(handle)) != stamp or stamp_of(status) != stamp:
        raise FormatError("the file changed while it was being read", cure=CHANGED_FILE_CURE)


def walk_files(root: Path) -> Iterator[tuple[str, Stamp]]:
    """All regular files below a folder, with their stamps.

    Links are not followed. Hidden files are skipped: other programs keep unfinished data in them.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # a folder may be deleted meanwhile
            raise InputError(
                f"cannot list the folders in {root}: {describe_error(error)}",
                cure="check that you may read them",
            ) from error

    for parent, folders, files in os.walk(root, onerror=refuse):
        base = Path(parent).relative_to(root)
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        if len(base.parts) > _MAX_FOLDER_DEPTH:
            raise InputError(
                f"the folders in {root} are nested more than {_MAX_FOLDER_DEPTH} levels deep",
                cure="give the path of the dump's own folder, not of a folder above it",
            )
        for file in sorted(files):
            name = (base / file).as_posix()
            if file.startswith(".") or not name.isprintable():
                continue
            try:
                status = (root / name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield name, stamp_of(status)
