"""What the user asked for, written whole or not at all: reports and converted files.

Every path here was named by the user. A report goes where a link leads, to `/dev/stdout` and to
pipes as well, and what cannot be written is one sentence: a WriteError.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from syncpoint.errors import WriteError
from syncpoint.files.atomic_writes import Partial, replacing
from syncpoint.files.write_errors import write_errors
from syncpoint.supervision.scratch_folder import scratch_folder


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Give a temporary path; at the end of the block its content appears at `path`, whole.

    An older file stays as it was until then. A link is followed, so that it goes on leading to
    the newest report. A pipe or a device gets the content in one go.
    """
    with write_errors(path):
        if _is_stream(path):
            with scratch_folder() as folder:
                temporary = Path(folder, "output")
                yield temporary
                _copy_to_stream(temporary, path)
            return
        final = Path(os.path.realpath(path))
        if final.is_file() and not os.access(final, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        with replacing(final) as temporary:
            yield temporary


def write_output(path: Path, text: str) -> Path:
    """Write a report: all of `text`, or nothing and a WriteError."""
    with output_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
    return path


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """Give a new, empty folder; at the end of the block it appears at `path` with all its files.

    Something at `path`, before or after the block, is a WriteError.
    """
    with write_errors(path), partial_folder(path) as partial:
        try:
            yield partial.path
        except WriteError as error:
            if str(partial.path) not in error.path:
                raise
            named = error.path.replace(str(partial.path), str(path))
            raise WriteError(named, error.reason, error.cure) from error
        partial.publish(new=True)


@contextmanager
def output_files(path: Path) -> Iterator[Path]:
    """Give an empty folder for a file called `path.name` and for those that it refers to; at the
    end of the block they appear beside each other, whole, the others before the one at `path`."""
    with write_errors(path), Partial(path, folder=True) as partial:
        yield partial.path
        partial.publish_files()


def partial_folder(path: Path) -> Partial:
    """A new folder that will be `path`; FileExistsError if something has that name."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    return Partial(path, folder=True)


def _is_stream(path: Path) -> bool:
    """Whether `path` is a pipe, a device, or what standard output or error go to."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode):
        return False
    return not stat.S_ISREG(status.st_mode) or _standard_handle(status) is not None


def _standard_handle(status: os.stat_result) -> int | None:
    for handle in (1, 2):
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(handle)):
                return handle
    return None


def _copy_to_stream(source: Path, path: Path) -> None:
    handle = _standard_handle(path.stat())
    with source.open("rb") as content:
        if handle is None:
            with path.open("wb") as stream:
                shutil.copyfileobj(content, stream)
            return
        # Opened by its name, a file that output is redirected to would be cut and written over.
        for standard in (sys.stdout, sys.stderr):
            if standard is not None:
                standard.flush()
        with os.fdopen(os.dup(handle), "wb") as stream:
            shutil.copyfileobj(content, stream)
