"""The list of files: one line for each file, from its docstring."""

import importlib.util

from helpers.paths import ROOT


def load():
    spec = importlib.util.spec_from_file_location("list_files", ROOT / "tools" / "list_files.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_is_listed_with_the_first_line_of_its_docstring(tmp_path, monkeypatch):
    tool = load()
    room = tmp_path / "package" / "room"
    room.mkdir(parents=True)
    (room / "__init__.py").write_text('"""A room."""\n')
    (room / "thing.py").write_text('"""Makes\nthings.\n\nMore.\n"""\n')
    monkeypatch.setattr(tool, "PACKAGE", tmp_path / "package")
    text = tool.list_files()
    assert "## package/room\n\nA room.\n" in text
    assert "- `thing.py`: Makes things.\n" in text


def test_a_document_that_is_out_of_date_fails_the_check(tmp_path, monkeypatch, capsys):
    tool = load()
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "DOCUMENT", tmp_path / "FILES.md")
    assert tool.main(["--check"]) == 1
    assert "make files" in capsys.readouterr().err
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0
