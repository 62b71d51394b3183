"""Files and folders that are whole or absent, and what killed writers left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncpoint.files import atomic_writes
from syncpoint.files.atomic_writes import Partial, final_name_of, replacing, write_atomically
from syncpoint.files.outputs import output_file, output_folder, write_output


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture(autouse=True)
def no_memory_of_folders(monkeypatch):
    monkeypatch.setattr(atomic_writes, "_abandoned_partials", {})


@pytest.mark.parametrize("one_step", [True, False])
def test_of_two_writers_of_a_new_file_the_first_stays(tmp_path, monkeypatch, one_step):
    if not one_step:
        monkeypatch.setattr(atomic_writes, "_renameat2", lambda: None)
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


def test_inside_our_folders_a_link_is_replaced_and_never_followed(tmp_path):
    (tmp_path / "precious").write_text("theirs")
    link = tmp_path / "comparison.json"
    link.symlink_to("precious")
    write_atomically(link, b"ours")
    assert not link.is_symlink() and link.read_bytes() == b"ours"
    assert (tmp_path / "precious").read_text() == "theirs"


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
    atomic_writes._abandoned_partials.clear()
    write_output(tmp_path / "a", "1")
    assert not leftover.exists() and not dump.exists()
    assert names(tmp_path) == sorted([".a.notes.partial", other.name, "a"])


def test_what_a_living_writer_holds_is_left_alone(tmp_path):
    path = tmp_path / "a"
    with output_file(path) as mine:
        mine.write_text("mine")
        atomic_writes._abandoned_partials.clear()
        write_output(path, "theirs")
        assert mine.read_text() == "mine"
    assert path.read_text() == "mine"
    with output_folder(tmp_path / "dump") as folder:
        atomic_writes._abandoned_partials.clear()
        with output_folder(tmp_path / "dump2"):
            pass
        Partial(tmp_path / "dump").discard()
        assert folder.is_dir()


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    leftover = abandoned(tmp_path / "a")
    atomic_writes._abandoned_partials.clear()
    monkeypatch.setattr(atomic_writes, "_lock", lambda handle: None)
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
    assert final_name_of(name) == final
