"""Files that may come from elsewhere: only regular files inside their folder, of a known size.

Everything a run or a dump reads passes through here, or through `byte_ranges` for values and
`untrusted_json` for JSON.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from syncpoint.errors import FormatError, InputError, describe_error


def path_inside(root: Path, name: str) -> Path:
    """The file `name` below `root`; a name or link that leads out of it is a FormatError."""
    path = root / name
    if _without_links(str(root), name):
        return path
    try:
        leads_out = not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError) as error:  # a link in circles is a RuntimeError up to 3.12
        raise FormatError(f"a file inside {root}", f"{name}: {describe_error(error)}") from error
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


def require_folder(path: Path, what: str) -> Path:
    """`path` if it is a folder that can be listed, else an InputError."""
    try:
        next(os.scandir(path), None)
    except OSError as error:
        raise InputError(what, f"{path}: {describe_error(error)}", "check the path") from error
    return path
