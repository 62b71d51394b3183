"""What a session remembers survives the server, and damage to it is no error."""

import pytest

from syncpoint.server.session_memory import SessionMemory
from syncpoint.server.session_schema import SessionSpec

SPEC = SessionSpec(target={"path": "a.onnx"}, reference={"path": "b.py:model"}, inputs="ones")


def test_what_is_filled_in_is_there_for_the_next_server(tmp_path):
    first = SessionMemory(tmp_path)
    assert first.form.version == 0
    form = first.save_form({"target.path": "a.onnx"})
    assert first.save_form({"target.path": "a.onnx"}).version == form.version
    assert SessionMemory(tmp_path).form == form
    named = SessionMemory(tmp_path, "other.onnx").form
    assert (named.fields, named.version) == ({"target.path": "other.onnx"}, form.version + 1)
    assert SessionMemory(tmp_path, "a.onnx").form == form


def test_what_was_asked_for_is_known_until_it_is_done(tmp_path):
    folder = tmp_path / "a.cmp"
    SessionMemory(tmp_path).save_request(folder, SPEC)
    memory = SessionMemory(tmp_path)
    assert memory.load_request(folder) == SPEC
    assert memory.load_request(tmp_path / "b.cmp") is None
    assert memory.load_request(tmp_path / "elsewhere" / "a.cmp") is None
    memory.forget_request(folder)
    memory.forget_request(folder)
    assert memory.load_request(folder) is None


def test_nothing_is_written_before_there_is_a_comparison(tmp_path):
    memory = SessionMemory(tmp_path / "out")
    memory.save_form({"target.path": "a.onnx"})
    assert not (tmp_path / "out").exists()
    assert memory.form.fields == {"target.path": "a.onnx"}
    (tmp_path / "out").mkdir()
    memory.save_request(tmp_path / "out" / "a.cmp", SPEC)
    assert SessionMemory(tmp_path / "out").form == memory.form


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": "x"}', b"\xff\xfe"])
def test_damage_is_forgotten(tmp_path, content):
    memory = SessionMemory(tmp_path)
    memory.save_form({"target.path": "a.onnx"})
    memory.save_request(tmp_path / "a.cmp", SPEC)
    for file in (tmp_path / ".session").rglob("*.json"):
        file.write_bytes(content)
    again = SessionMemory(tmp_path)
    assert again.form.fields == {}
    assert again.load_request(tmp_path / "a.cmp") is None


def test_a_changed_letter_is_forgotten_and_a_file_without_a_checksum_is_not(tmp_path):
    SessionMemory(tmp_path).save_form({"target.path": "a.onnx"})
    file = tmp_path / ".session" / "form.json"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"a.onnx", b"b.onnx"))
    assert SessionMemory(tmp_path).form.fields == {}
    file.write_bytes(whole.partition(b',\n "checksum"')[0] + b"}")
    assert SessionMemory(tmp_path).form.fields == {"target.path": "a.onnx"}
