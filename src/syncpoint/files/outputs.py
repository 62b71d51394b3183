"""Write reports and converted files to a path of the user, whole or not at all; also to links,
pipes and stdout or stderr, recognised by file identity.

The user named every path here. A link is followed, `/dev/stdout` and pipes work, and a path that
cannot be written is a WriteError.
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
    """Yield a temporary path; at the end of the block its content appears at `path`, whole.

    An older file stays unchanged until then. A link is followed, so that it keeps pointing to the
    newest report. A pipe or a device gets the content in one go.
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
    """Write a report: either all of `text`, or nothing and a WriteError."""
    with output_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")
    return path


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """Yield a new, empty folder; at the end of the block it appears at `path` with all its files.

    If `path` exists, before or after the block, WriteError is raised.
    """
    with write_errors(path), partial_folder(path) as partial:
        try:
            yield partial.path
        except WriteError as error:
            if str(partial.path) not in error.path:
                raise
            final_name = error.path.replace(str(partial.path), str(path))
            raise WriteError(final_name, error.reason, error.cure) from error
        partial.publish(new=True)


@contextmanager
def output_files(path: Path) -> Iterator[Path]:
    """Yield an empty folder for a file called `path.name` and the files that it refers to. At the
    end of the block they appear next to each other, whole; the one at `path` comes last."""
    with write_errors(path), Partial(path, folder=True) as partial:
        yield partial.path
        partial.publish_files()


def partial_folder(path: Path) -> Partial:
    """Create a partial folder that will become `path`; FileExistsError if `path` exists."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    return Partial(path, folder=True)


def _is_stream(path: Path) -> bool:
    """Whether `path` is a pipe, a device, or the file of standard output or error."""
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
        # Opening a file that output is redirected to by its name would truncate it.
        for standard in (sys.stdout, sys.stderr):
            if standard is not None:
                standard.flush()
        with os.fdopen(os.dup(handle), "wb") as stream:
            shutil.copyfileobj(content, stream)
