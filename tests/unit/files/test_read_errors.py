"""A file that cannot be read is one sentence that names it."""

from __future__ import annotations

import errno
import os

import pytest

from syncpoint.errors import FormatError, InputError
from syncpoint.files.read_errors import read_errors


def test_what_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(InputError) as raised, read_errors(tmp_path / "a.npy"):
        (tmp_path / "a.npy").read_bytes()
    assert str(raised.value) == (
        f"cannot read {tmp_path}/a.npy: No such file or directory;"
        " check that the file exists and that you may read it"
    )
    assert isinstance(raised.value.__cause__, FileNotFoundError)


def test_the_kind_and_the_cure_are_those_of_the_caller():
    with (
        pytest.raises(FormatError) as raised,
        read_errors("the map", FormatError, cure="save it again"),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert str(raised.value) == "cannot read the map: Input/output error; save it again"


def test_other_errors_pass():
    with pytest.raises(FormatError, match=r"^damaged$"), read_errors("a"):
        raise FormatError("damaged")
