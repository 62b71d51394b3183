"""Turn an OSError during reading into an error that names the file: missing, permission denied
(context manager)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncpoint.errors import FormatError, InputError, describe_error

CHECK_FILE = "check that the file exists and that you may read it"
CHECK_FOLDER = "check that its files exist and that you may read them"


@contextmanager
def read_errors(
    what: object,
    kind: type[InputError | FormatError] = InputError,
    *,
    cure: str = CHECK_FILE,
) -> Iterator[None]:
    """Turn every OSError of the block into an error of this kind; `what` says what is read."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot read {what}: {describe_error(error)}", cure=cure) from error
