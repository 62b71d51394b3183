"""One writer of a run or comparison at a time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from syncpoint.errors import InputError, WriteError
from syncpoint.files.write_errors import write_errors
from syncpoint.files.writer_lock import RunLock, sole_writer


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp_path):
    folder = tmp_path / "theirs.cmp"
    folder.mkdir()
    (folder / "run.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match="cannot write"), write_errors(folder), sole_writer(folder):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_short_write_waits_for_another_writer(tmp_path):
    order = []

    def write():
        with sole_writer(tmp_path):
            order.append("second")

    with sole_writer(tmp_path):
        thread = threading.Thread(target=write)
        thread.start()
        with sole_writer(tmp_path):  # this thread holds it already
            order.append("first")
    thread.join()
    assert order == ["first", "second"] and names(tmp_path) == []


def test_a_writer_that_stays_is_one_line(tmp_path):
    lock = RunLock(tmp_path)
    raised: list[BaseException] = []

    def write():
        try:
            with sole_writer(tmp_path, seconds=0):
                pass
        except InputError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    lock.release()
    assert "is locked: another process is writing it" in str(raised[0])
