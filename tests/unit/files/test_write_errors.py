"""A path that cannot be written is one sentence."""

from __future__ import annotations

import errno
import os
import pickle

import pytest

from syncpoint.errors import InputError
from syncpoint.files.write_errors import cannot_write, write_errors


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.ENOSPC, "disk full (No space left on device); free space or choose another path"),
        (errno.EACCES, "Permission denied; check that you may write there, or choose another path"),
        (
            errno.EROFS,
            "Read-only file system; check that you may write there, or choose another path",
        ),
        (errno.EISDIR, "a folder has this name; choose another name"),
        (errno.ENOENT, "its folder does not exist; create it or choose another path"),
        (errno.EIO, "Input/output error; choose another path"),
    ],
)
def test_what_cannot_be_written_is_one_sentence(code, text):
    with pytest.raises(InputError) as raised, write_errors("a/b.csv"):
        raise OSError(code, os.strerror(code))
    assert str(raised.value) == f"cannot write a/b.csv: {text}"
    assert raised.value.exit_code == 2
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_the_cure_of_the_caller_wins():
    error = cannot_write("a", OSError(errno.ENOSPC, "No space left on device"), "record less")
    assert str(error) == "cannot write a: disk full (No space left on device); record less"


def test_a_reader_of_a_pipe_that_goes_away_is_no_error_of_the_path():
    with pytest.raises(BrokenPipeError), write_errors("a"):
        raise BrokenPipeError
