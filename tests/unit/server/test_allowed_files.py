"""A session looks only into the folders it was given, whatever path it is handed."""

from contextlib import chdir

import pytest

from helpers.session_server import write_dumps, write_models
from syncpoint.errors import InputError
from syncpoint.server.allowed_files import AllowedFolders
from syncpoint.server.path_preview import preview_path


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.npz").write_bytes(b"x")
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / ".hidden").mkdir()
    (inside / ".hidden" / "a.npz").write_bytes(b"x")
    write_dumps(inside)
    write_models(inside)
    (inside / "way_out").symlink_to(tmp_path / "secret")
    (inside / "key.npz").symlink_to(tmp_path / "secret" / "key.npz")
    (inside / "sub" / "within.npz").symlink_to(inside / "target.npz")
    (inside / "circle").symlink_to("circle")
    with chdir(inside):
        yield inside


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "..", "../secret", "../secret/key.npz", "sub/../../secret", "~root/x"),
        *("way_out", "way_out/key.npz", "key.npz", ".hidden", ".hidden/a.npz", "sub/.x", "circle"),
        *("", " ", "a\0b", "/proc/self/environ", "../inside2", "/etc/hosts.py:x", "../x.py:model"),
        *("../secret/*.npz", "way_out/*.npz", "*/../../secret/*.npz", "k*.npz"),
    ],
)
def test_paths_outside_are_refused(place, path):
    with pytest.raises(InputError):
        AllowedFolders([place]).check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("target.npz", ".", "sub", "sub/within.npz", "sub/../target.npz", "net.py:shipped"),
        *("t*.npz", "package.module:model", "nothing.onnx"),
    ],
)
def test_paths_inside_are_taken_as_they_are_written(place, path):
    assert AllowedFolders([place]).check_path(path) == path
    absolute = str(place / "target.npz")
    assert AllowedFolders([place]).check_path(absolute) == absolute


def test_a_folder_is_listed_without_what_is_hidden_or_leads_out(place):
    listing = AllowedFolders([place]).list_folder()
    assert [(entry.name, entry.kind) for entry in listing.entries] == [
        ("sub", "folder"),
        ("net.py", "python"),
        ("reference.npz", "inputs"),
        ("target.npz", "inputs"),
    ]
    assert listing.parent is None
    below = AllowedFolders([place]).list_folder("sub")
    assert (below.parent, [e.path for e in below.entries]) == (".", ["sub/within.npz"])
    with pytest.raises(InputError):
        AllowedFolders([place]).list_folder("..")


def test_several_folders_are_listed_side_by_side(place):
    folders = AllowedFolders([place, place.parent / "secret"])
    assert [entry.name for entry in folders.list_folder().entries] == list(map(str, folders.roots))
    assert folders.list_folder(str(place)).parent == ""
    with pytest.raises(InputError):
        AllowedFolders([place / "nothing"])


def test_looking_runs_no_code(place):
    (place / "evil.py").write_text("open('ran', 'w')\nmodel = 1\ndef other(): ...\n")
    folders = AllowedFolders([place])
    for path in ("evil.py", "evil.py:model", "evil.py:nothing", "evil.py:other.deep"):
        preview_path(folders, path)
    assert not (place / "ran").exists()
    assert preview_path(folders, "evil.py").candidates == ["evil.py:other", "evil.py:model"]
    seen = preview_path(folders, "evil.py:model")
    assert (seen.kind, seen.sure, seen.problem) == ("model", False, None)
    assert {"torch", "inductor"} == {runtime.name for runtime in seen.runtimes}
    assert "does not seem to define nothing" in preview_path(folders, "evil.py:nothing").text


def test_what_is_at_a_path_is_said_in_words(place):
    folders = AllowedFolders([place])
    seen = preview_path(folders, "target.npz")
    assert (seen.kind, seen.precision) == ("recording", "f32")
    assert seen.text.startswith("opens; 2 ops, f32, ")
    (place / "broken.npz").write_bytes(b"PK nonsense")
    (place / "broken.onnx").write_bytes(b"nonsense")
    (place / "broken.py").write_text("def (:")
    for path in ("broken.npz", "broken.onnx", "broken.py", "nothing.run", "/etc/passwd"):
        problem = preview_path(folders, path).problem
        assert problem is not None, path
        assert problem.problem, path


def test_options_become_fields(place):
    runtimes = {r.name: r for r in preview_path(AllowedFolders([place]), "net.py:shipped").runtimes}
    fields = {option.name: option for option in runtimes["inductor"].options}
    assert fields["fullgraph"].type == "boolean"
    assert fields["fullgraph"].default == "false"
    assert fields["fusion"].type == "choice"
    assert fields["fusion"].choices == ["as-executed", "unfused"]
    assert fields["seed"].type == "integer"
    assert fields["config"].type == "text"
    assert all(option.help for option in fields.values())
