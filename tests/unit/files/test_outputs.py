"""Files and folders that the user named: whole or absent, where links lead, with usual rights."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from syncpoint.errors import InputError, WriteError
from syncpoint.files import partial
from syncpoint.files.lock import RunLock, sole_writer
from syncpoint.files.outputs import (
    cannot_write,
    output_file,
    output_folder,
    write_errors,
    write_output,
)
from syncpoint.files.partial import Partial, partial_of
from syncpoint.files.safe_access import replacing, write_atomically

ROOT = os.geteuid() == 0


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture(autouse=True)
def no_memory_of_folders(monkeypatch):
    monkeypatch.setattr(partial, "_leftovers", {})


# What is there before, during and after.


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old")
    with output_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == tmp_path and temporary.name.startswith(".a.csv.")
    assert path.read_text() == "new" and names(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.csv"
    path.write_text("old")
    with pytest.raises(error), output_file(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old" and names(tmp_path) == ["a.csv"]


def test_a_folder_appears_with_all_its_files(tmp_path):
    path = tmp_path / "deep" / "dump"
    with output_folder(path) as temporary:
        (temporary / "x").mkdir()
        (temporary / "x" / "a").write_text("1")
        assert not path.exists()
    assert (path / "x" / "a").read_text() == "1" and names(path.parent) == ["dump"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ValueError), output_folder(tmp_path / "dump") as temporary:
        (temporary / "a").write_text("1")
        raise ValueError
    assert names(tmp_path) == []


def test_a_folder_never_replaces_one_that_came_meanwhile(tmp_path):
    path = tmp_path / "dump"
    with (
        pytest.raises(WriteError, match="it already exists; choose another name"),
        output_folder(path) as temporary,
    ):
        (temporary / "a").write_text("mine")
        path.mkdir()
        (path / "a").write_text("theirs")
    assert (path / "a").read_text() == "theirs" and names(tmp_path) == ["dump"]


@pytest.mark.parametrize("one_step", [True, False])
def test_of_two_writers_of_a_new_file_the_first_stays(tmp_path, monkeypatch, one_step):
    if not one_step:
        monkeypatch.setattr(partial, "_renameat2", lambda: None)
    path = tmp_path / "a"
    with pytest.raises(FileExistsError), replacing(path, new=True) as mine:
        mine.write_text("mine")
        with replacing(path, new=True) as theirs:
            theirs.write_text("theirs")
    assert path.read_text() == "theirs" and names(tmp_path) == ["a"]


def test_a_name_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("é" * 127)
    write_atomically(path, b"1")
    write_atomically(path, b"2")
    assert path.read_bytes() == b"2" and names(tmp_path) == [path.name]


# Rights and links.


def test_a_new_file_has_the_rights_of_any_new_file(tmp_path):
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "a", "1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_file_that_is_replaced_keeps_its_rights(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o606)
    with output_file(path) as temporary:
        # From the start: what is secret is never readable by others.
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o606
        temporary.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o606


@pytest.mark.skipif(ROOT, reason="root may write everything")
def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(WriteError, match="Permission denied"):
        write_output(path, "new")
    assert path.read_text() == "old"


def test_a_report_goes_where_a_link_leads(tmp_path):
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "1.csv").write_text("old")
    link = tmp_path / "latest.csv"
    link.symlink_to("reports/1.csv")
    write_output(link, "new")
    assert link.is_symlink() and (tmp_path / "reports" / "1.csv").read_text() == "new"
    (tmp_path / "next.csv").symlink_to("reports/2.csv")
    write_output(tmp_path / "next.csv", "new too")
    assert (tmp_path / "reports" / "2.csv").read_text() == "new too"
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(WriteError, match="cannot write"):
        write_output(tmp_path / "round", "")


def test_inside_our_folders_a_link_is_replaced_and_never_followed(tmp_path):
    (tmp_path / "precious").write_text("theirs")
    link = tmp_path / "comparison.json"
    link.symlink_to("precious")
    write_atomically(link, b"ours")
    assert not link.is_symlink() and link.read_bytes() == b"ours"
    assert (tmp_path / "precious").read_text() == "theirs"


def test_a_lock_that_is_a_link_makes_no_file_elsewhere(tmp_path):
    folder = tmp_path / "theirs.cmp"
    folder.mkdir()
    (folder / "run.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match="cannot write"), write_errors(folder), sole_writer(folder):
        pass
    assert not (tmp_path / "elsewhere").exists()


# Pipes and devices.


def test_a_pipe_gets_the_whole_report(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    write_output(pipe, "report")
    reader.join()
    assert got == ["report"] and stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["pipe"]


def test_a_device_stays_one():
    write_output(Path("/dev/null"), "report")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_output_by_its_name_keeps_what_was_printed(tmp_path, kind):
    code = (
        "from pathlib import Path\nfrom syncpoint.files.outputs import write_output\n"
        "print('before')\nwrite_output(Path('/dev/stdout'), 'report\\n')\nprint('after')\n"
    )
    with (tmp_path / "out").open("w") as file:
        target = file if kind == "file" else subprocess.PIPE
        done = subprocess.run([sys.executable, "-c", code], stdout=target, check=True)
    text = (tmp_path / "out").read_bytes() if kind == "file" else done.stdout
    assert text == b"before\nreport\nafter\n"


# What killed writers left.


def abandoned(path: Path, *, folder: bool = False) -> Path:
    """A partial as a killed process leaves it: there, and locked by nobody."""
    made = Partial(path, folder=folder)
    os.close(made._handle)
    made._handle = -1
    return made.path


def test_the_next_writer_of_a_path_removes_what_a_killed_one_left(tmp_path):
    leftover = abandoned(tmp_path / "a")
    dump = abandoned(tmp_path / "a", folder=True)
    (dump / "x").write_text("half")
    other = abandoned(tmp_path / "b")
    (tmp_path / ".a.notes.partial").write_text("the user's")
    partial._leftovers.clear()
    write_output(tmp_path / "a", "1")
    assert not leftover.exists() and not dump.exists()
    assert names(tmp_path) == sorted([".a.notes.partial", other.name, "a"])


def test_what_a_living_writer_holds_is_left_alone(tmp_path):
    path = tmp_path / "a"
    with output_file(path) as mine:
        mine.write_text("mine")
        partial._leftovers.clear()
        write_output(path, "theirs")
        assert mine.read_text() == "mine"
    assert path.read_text() == "mine"
    with output_folder(tmp_path / "dump") as folder:
        partial._leftovers.clear()
        with output_folder(tmp_path / "dump2"):
            pass
        Partial(tmp_path / "dump").discard()
        assert folder.is_dir()


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    leftover = abandoned(tmp_path / "a")
    partial._leftovers.clear()
    monkeypatch.setattr(partial, "_lock", lambda handle: None)
    write_output(tmp_path / "a", "1")
    assert leftover.exists() and (tmp_path / "a").read_text() == "1"


def test_a_folder_of_many_files_is_listed_once(tmp_path, monkeypatch):
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place: listed.append(place) or scandir(place))
    for number in range(5):
        write_atomically(tmp_path / str(number), b"")
    assert len(listed) == 1


@pytest.mark.parametrize(
    ("name", "final"),
    [
        (".a.npz.17-0123abcd.partial", "a.npz"),
        (".a.17-0123abcd.partial.18-0123abcd.partial", "a.17-0123abcd.partial"),
        ("a.npz.17-0123abcd.partial", ""),
        (".a.npz.17-0123abc.partial", ""),
        (".a.npz.partial", ""),
        ("tensors-00000.partial", ""),
    ],
)
def test_names_of_partials_are_told_from_others(name, final):
    assert partial_of(name) == final


# Errors.


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.ENOSPC, "disk full (No space left on device); free space or choose another path"),
        (errno.EACCES, "Permission denied; check its permissions or choose another path"),
        (errno.EROFS, "Read-only file system; check its permissions or choose another path"),
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


def test_a_file_of_a_folder_in_the_making_is_named_by_the_folder(tmp_path):
    with (
        pytest.raises(WriteError) as raised,
        output_folder(tmp_path / "dump") as temporary,
        write_errors(temporary / "a.npy"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(raised.value).startswith(f"cannot write {tmp_path}/dump/a.npy: disk full")


# One writer of a comparison at a time.


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
    assert "no other writer of" in str(raised[0])
