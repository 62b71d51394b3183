"""WriteError from an OSError: disk full, permission denied, a name that is taken."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.errors import WriteError, describe_error

_FULL = (errno.ENOSPC, errno.EDQUOT)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def cannot_write(path: object, error: OSError, cure: str = "") -> WriteError:
    """The error for what the system said while `path` was written."""
    reason = describe_error(error)
    if error.errno in _FULL:
        reason, usual = f"disk full ({reason})", "free space or choose another path"
    elif error.errno in _DENIED:
        usual = "check its permissions or choose another path"
    elif error.errno == errno.EEXIST:
        in_the_way = str(error.filename or path)
        reason, usual = "it already exists", "choose another name"
        if in_the_way != str(path):  # a file where a folder above it should be
            reason, usual = f"{in_the_way} is not a folder", "choose another path"
    elif error.errno == errno.EISDIR:
        reason, usual = "a folder has this name", "choose another name"
    elif error.errno == errno.ENOENT:
        reason, usual = "its folder does not exist", "create it or choose another path"
    else:
        usual = "choose another path"
    return WriteError(path, reason, cure or usual)


@contextmanager
def write_errors(path: object, cure: str = "") -> Iterator[None]:
    """Turn every OSError of the block into the WriteError that says `path` cannot be written."""
    try:
        yield
    except BrokenPipeError:  # the reader of a pipe went away, which is its right
        raise
    except OSError as error:
        raise cannot_write(path, error, cure) from error
