"""Files and folders that the user named: whole or absent, where links lead, with usual rights."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from syncpoint.errors import WriteError
from syncpoint.files import atomic_writes
from syncpoint.files.outputs import output_file, output_folder, write_output
from syncpoint.files.write_errors import write_errors

ROOT = os.geteuid() == 0


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture(autouse=True)
def no_memory_of_folders(monkeypatch):
    monkeypatch.setattr(atomic_writes, "_abandoned_partials", {})


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


def test_a_file_of_a_folder_in_the_making_is_named_by_the_folder(tmp_path):
    with (
        pytest.raises(WriteError) as raised,
        output_folder(tmp_path / "dump") as temporary,
        write_errors(temporary / "a.npy"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert str(raised.value).startswith(f"cannot write {tmp_path}/dump/a.npy: disk full")
