"""Turn an OSError during writing into a WriteError: disk full, permission denied, name taken
(context manager)."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.errors import WriteError, describe_error

_DISK_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)
_PERMISSION_CODES = (errno.EACCES, errno.EPERM, errno.EROFS)


def cannot_write(path: object, error: OSError, cure: str = "") -> WriteError:
    """Build the WriteError for an OSError that was raised while `path` was written."""
    reason = describe_error(error)
    if error.errno in _DISK_FULL_CODES:
        reason, default_cure = f"disk full ({reason})", "free space or choose another path"
    elif error.errno in _PERMISSION_CODES:
        default_cure = "check that you may write there, or choose another path"
    elif error.errno == errno.EEXIST:
        blocking_path = str(error.filename or path)
        reason, default_cure = "it already exists", "choose another name"
        if blocking_path != str(path):  # a file where a folder above it should be
            reason, default_cure = f"{blocking_path} is not a folder", "choose another path"
    elif error.errno == errno.EISDIR:
        reason, default_cure = "a folder has this name", "choose another name"
    elif error.errno == errno.ENOENT:
        reason, default_cure = "its folder does not exist", "create it or choose another path"
    else:
        default_cure = "choose another path"
    return WriteError(path, reason, cure or default_cure)


@contextmanager
def write_errors(path: object, cure: str = "") -> Iterator[None]:
    """Turn every OSError of the block into a WriteError for `path`."""
    try:
        yield
    except BrokenPipeError:  # the reader of a pipe has exited; this is not a write error
        raise
    except OSError as error:
        raise cannot_write(path, error, cure) from error
