"""Errors for files that are not what was written."""

import pickle
from pathlib import Path

import pytest

from syncpoint.errors import FormatError
from syncpoint.files.file_checksums import DamagedFileError


@pytest.mark.parametrize("name", ["run.json", "a damaged: b.json"])
def test_a_damaged_file_says_which_it_is_and_what_is_wrong(name):
    """Whatever its name is: the message is for people alone."""
    error = DamagedFileError(Path("it.run") / name, "its checksum differs", "restore it")
    assert isinstance(error, FormatError)
    assert (error.name, error.damage) == (name, "its checksum differs")
    assert error.problem == f"it.run/{name} is damaged: its checksum differs"
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, DamagedFileError) and str(copy) == str(error)
