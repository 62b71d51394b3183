"""Open and read files of runs and dumps safely: regular files only, inside their folder, no links,
up to a size limit; test first bytes, require a folder.

Everything a run or a dump reads passes through here, or through `byte_ranges` for values and
`untrusted_json` for JSON.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from syncpoint.errors import FormatError, InputError, describe_error

_OUTSIDE_CURE = "put the file itself into this folder"


def path_inside(root: Path, name: str) -> Path:
    """Return the path of `name` below `root`; raise FormatError if it leads out of `root`."""
    path = root / name
    if _is_free_of_links(str(root), name):
        return path
    try:
        leads_out = not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:  # a link in circles is a RuntimeError up to 3.12
        raise FormatError(
            f"cannot resolve {name} inside {root}: {describe_error(error)}", cure=_OUTSIDE_CURE
        ) from error
    if leads_out:
        raise FormatError(f"{name} leads out of its folder {root}", cure=_OUTSIDE_CURE)
    return path


def _is_free_of_links(root: str, name: str) -> bool:
    """Whether `name` leads straight down from `root` through folders and files, no links.

    Such a name cannot lead out, whatever `root` itself is, and checking each part takes a fifth of
    the time of resolving both paths. False does not mean that the name leads out.
    """
    parts = name.split("/")
    if os.name != "posix" or name.startswith("/") or ".." in parts:
        return False
    path = root
    for part in parts:
        path = f"{path}/{part}"
        try:
            if stat.S_ISLNK(os.lstat(path).st_mode):
                return False
        except (OSError, ValueError):
            return False
    return True


def open_regular(path: Path) -> int:
    """Open a file for reading and return its descriptor; not a regular file is a FormatError.

    A named pipe would block the reader forever, so it is opened without blocking and refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FormatError(f"{path} is not a regular file")
    return handle


def starts_with(path: Path, magic: bytes) -> bool:
    """Whether the file can be read and begins with these bytes."""
    try:
        handle = open_regular(path)
    except (OSError, FormatError):
        return False
    try:
        return os.pread(handle, len(magic), 0) == magic
    finally:
        os.close(handle)


def read_whole(path: Path, limit: int) -> bytes:
    """Read a whole file; more than `limit` bytes is a FormatError."""
    handle = open_regular(path)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(handle).st_size
        if size > limit:
            raise FormatError(f"{path} has {size:,} bytes, more than the limit of {limit:,}")
        return file.read(size)


def require_folder(path: Path, what: str) -> Path:
    """Return `path` if it is a folder that can be listed, else raise InputError."""
    try:
        next(os.scandir(path), None)
    except OSError as error:
        raise InputError(
            f"cannot open {what} at {path}: {describe_error(error)}",
            cure="check that it exists and that you may read it",
        ) from error
    return path
