"""No name leads out of its folder: the quick look says what resolving both paths says."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from syncpoint.errors import FormatError
from syncpoint.files import untrusted_files
from syncpoint.files.untrusted_files import path_inside

PARTS = ("plain", "out", "up", "within", "file", "missing", "loop", "..", ".", "")


@pytest.fixture
def root(tmp_path):
    """A folder with links of all kinds, seen through a link itself."""
    real = tmp_path / "real"
    (real / "plain" / "plain").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for folder in (real, real / "plain", real / "plain" / "plain", tmp_path / "outside"):
        (folder / "file").write_text("x")
        (folder / "out").symlink_to(tmp_path / "outside")
        (folder / "up").symlink_to("..")
        (folder / "within").symlink_to(real / "plain")
        (folder / "loop").symlink_to("loop")
    (tmp_path / "root").symlink_to("real")
    return tmp_path / "root"


def stays(root: Path, name: str) -> bool:
    """The definition."""
    try:
        return Path(os.path.realpath(root / name, strict=False)).is_relative_to(root.resolve())
    except OSError:
        return False


def found(root: Path, name: str) -> bool:
    try:
        return path_inside(root, name) == root / name
    except FormatError as error:
        assert "leads out of its folder" in str(error) or "cannot resolve" in str(error)
        return False


def test_every_way_through_links_is_judged_by_where_it_ends(root):
    for depth in (1, 2, 3):
        for parts in itertools.product(PARTS, repeat=depth):
            name = "/".join(parts)
            if "loop" not in parts:  # Python 3.13 no longer refuses these by itself
                assert found(root, name) == stays(root, name), name


def test_absolute_names_and_steps_up_do_not_pass(root):
    assert not found(root, str(root.parent / "outside" / "file"))
    assert not found(root, "/etc/passwd")
    assert not found(root, "plain/../../outside/file")


def test_names_without_links_need_no_resolving(root, monkeypatch):
    asked = []
    monkeypatch.setattr(untrusted_files.Path, "resolve", lambda path: asked.append(path) or path)
    assert path_inside(root, "plain/plain/file") == root / "plain/plain/file"
    assert not asked
    path_inside(root, "within/file")
    assert asked
