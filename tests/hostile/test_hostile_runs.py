"""Run folders that lie, break off or lead astray: one line of error each, of the right class."""

from __future__ import annotations

import json
import os
import struct
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xxhash

from helpers.refusals import refused
from helpers.reseal_checksums import reseal
from syncpoint.errors import FormatError, InputError, SyncpointError
from syncpoint.files.untrusted_json import parse_json
from syncpoint.run.model import Edge, Op, OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JOURNAL, MAGIC, encode_frame
from syncpoint.run.storage.record_json import op_to_json, tensor_to_json
from syncpoint.run.storage.run_json import info_to_json
from syncpoint.run.storage.writer import RunWriter

SHARD = "tensors-00000.safetensors"


@pytest.fixture
def path(tmp_path) -> Path:
    """A sound run of two tensors in one shard."""
    path = tmp_path / "a.run"
    with RunWriter(path) as writer:
        writer.op(Op(OpKey("a"), "T"))
        writer.op(Op(OpKey("b"), "T", (Edge(OpKey("a")),)))
        for name in "ab":
            data = np.full(50_000, ord(name), np.uint8)
            writer.tensor(Tensor(TensorKey(OpKey(name)), "u8", (50_000,)), data)
    return path


def edit_table(path: Path, **columns: pl.Expr) -> None:
    table = pl.read_parquet(path / "tensors.parquet")
    changed = table.with_columns(**columns).cast({k: table.schema[k] for k in columns})
    changed.write_parquet(path / "tensors.parquet")
    reseal(path)


def edit_json(path: Path, **changes: object) -> None:
    reseal(path, **changes)


# Values: the run opens, the values that are gone raise, the others read.


def test_a_truncated_shard_loses_only_what_was_cut(path):
    shard = path / SHARD
    shard.write_bytes(shard.read_bytes()[:-10])
    run = Run.open(path)
    assert run.values(run.tensors[0]).max() == ord("a")
    refused(run.values, run.tensors[1], match="50000 bytes at offset .* the file has only")
    # The part that is there cannot be verified without the rest.
    refused(run.window, run.tensors[1], 0, 100, match="the file has only")


def test_a_missing_shard_is_told_when_values_are_asked_for(path):
    (path / SHARD).unlink()
    run = Run.open(path)
    refused(run.values, run.tensors[0], match="No such file")
    refused(run.window, run.tensors[0], 0, 5, match="No such file")
    assert len(run.digest()) == 32


@pytest.mark.parametrize("offset", [10**6, 2**62])
def test_an_offset_outside_its_shard_is_told_when_values_are_asked_for(path, offset):
    edit_table(path, offset=pl.lit(offset))
    run = Run.open(path)
    refused(run.values, run.tensors[0], match=f"at offset {offset}")


def test_a_shard_that_is_a_pipe_or_a_folder_is_refused_without_waiting(path):
    (path / SHARD).unlink()
    os.mkfifo(path / SHARD)
    run = Run.open(path)
    refused(run.values, run.tensors[0], match="not a regular file")
    (path / SHARD).unlink()
    (path / SHARD).mkdir()
    refused(run.values, run.tensors[0], match="not a regular file")


def test_a_shard_that_links_out_of_the_run_is_refused(path, tmp_path):
    secret = tmp_path / "secret"
    (path / SHARD).rename(secret)
    (path / SHARD).symlink_to(secret)
    run = Run.open(path)
    refused(run.values, run.tensors[0], match="leads out of it")


def test_a_source_copy_that_leads_out_of_the_run_is_refused(path, tmp_path):
    (path / "source").mkdir()
    (tmp_path / "secret").write_text("secret")
    (path / "source" / "0000-link").symlink_to(tmp_path / "secret")
    files = {"x.py": "../../secret", "y.py": "0000-link", "z.py": "0001-none"}
    (path / "source" / "index.json").write_text(json.dumps({"schema": 1, "files": files}))
    run = Run.open(path)
    refused(run.source_text, "x.py", match="invalid file name")
    refused(run.source_text, "y.py", match="leads out")
    refused(run.source_text, "z.py", match="No such file")
    (path / "source" / "index.json").write_text("[1]")
    refused(Run.open(path).source_text, "x.py", match="no object .files.")


# Structure: the run does not open.


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "damaged"),
        ("", "damaged"),
        ("[1, 2]", "damaged"),
        ('{"format": "other"}', "its key .format. is missing"),
        ("[" * 200_000, "damaged"),
        ('{"format": "syncpoint-run", "format": "syncpoint-run"}', "'format' twice"),
        ('{"format": "syncpoint-run", "schema": 1, "notes": 5}', "a malformed record"),
        (
            '{"format": "syncpoint-run", "schema": 1, "record": "all"}',
            "a malformed record",
        ),
        ('{"format": "syncpoint-run", "schema": 1}', "counts"),
        ('{"format": "syncpoint-run", "schema": 2}', "damaged.*its checksum is missing"),
        ("\udcff", "damaged"),
    ],
)
def test_a_run_json_that_is_not_one_is_a_format_error(path, text, match):
    (path / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    refused(Run.open, path, match=match)


def test_a_newer_schema_is_a_format_error_with_a_cure(path):
    edit_json(path, schema=3)
    refused(
        Run.open,
        path,
        match="has schema 3; this version reads schema 2 or older; upgrade syncpoint",
    )


@pytest.mark.parametrize("schema", [0, "1", None, True])
def test_a_schema_that_never_was_is_damage(path, schema):
    edit_json(path, schema=schema)
    refused(Run.open, path, match="run.json is damaged: its schema is")


def test_counts_that_disagree_with_the_tables_are_a_format_error(path):
    edit_json(path, counts={"ops": 2, "tensors": 3})
    refused(Run.open, path, match="tensors.parquet is damaged: 2 rows instead of 3")


@pytest.mark.parametrize("table", ["ops.parquet", "tensors.parquet"])
def test_a_table_that_is_missing_damaged_or_no_table_is_a_format_error(path, table):
    data = (path / table).read_bytes()
    for broken in (
        b"",
        b"PAR1",
        b"not parquet at all",
        data[: len(data) // 2],
        data[:-4] + b"XXXX",
    ):
        (path / table).write_bytes(broken)
        refused(Run.open, path, match="damaged")
        reseal(path)
        refused(Run.open, path, match="damaged")
        (path / table).write_bytes(data)
        reseal(path)
    (path / table).unlink()
    refused(Run.open, path, match="damaged: it is missing")


def test_a_table_with_flipped_bytes_never_brings_anything_but_our_errors(path):
    data = (path / "tensors.parquet").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(data)
        for position in rng.integers(0, len(data), 5):
            broken[position] = rng.integers(0, 256)
        (path / "tensors.parquet").write_bytes(broken)
        refused(Run.open, path, match="damaged")
        reseal(path)
        try:
            run = Run.open(path)
            for tensor in run.tensors:
                run.values(tensor)
        except SyncpointError as error:
            assert "\n" not in str(error)


def test_a_missing_or_wrongly_typed_column_is_a_format_error(path):
    table = pl.read_parquet(path / "tensors.parquet")
    table.drop("offset").write_parquet(path / "tensors.parquet")
    reseal(path)
    refused(Run.open, path, match="no column 'offset'")
    table.with_columns(offset=pl.lit("0")).write_parquet(path / "tensors.parquet")
    reseal(path)
    refused(Run.open, path, match="column 'offset' is String, not Int64")
    table.with_columns(dtype=pl.lit(None, pl.String)).write_parquet(path / "tensors.parquet")
    reseal(path)
    refused(Run.open, path, match="column 'dtype' .* has a missing value")


def test_a_column_that_is_not_known_is_ignored(path):
    table = pl.read_parquet(path / "tensors.parquet")
    table.with_columns(extra=pl.lit(1)).write_parquet(path / "tensors.parquet")
    reseal(path)
    assert len(Run.open(path).tensors) == 2


def test_a_key_that_occurs_twice_is_a_format_error(path):
    edit_table(path, op=pl.lit("a"))
    refused(Run.open, path, match="has the key .* twice")


def test_an_op_that_occurs_twice_is_a_format_error(path):
    table = pl.read_parquet(path / "ops.parquet")
    table.with_columns(op=pl.lit("a")).write_parquet(path / "ops.parquet")
    reseal(path)
    refused(Run.open, path, match="has the key .* twice")


def test_attributes_that_are_no_object_are_told_when_the_op_is_asked_for(path):
    table = pl.read_parquet(path / "ops.parquet")
    for text in ("{", "[1]", '{"a":1,"a":2}'):
        table.with_columns(attributes=pl.lit(text)).write_parquet(path / "ops.parquet")
        reseal(path)
        run = Run.open(path)
        assert run.values(run.tensors[1]).max() == ord("b")
        with pytest.raises(FormatError):
            run.op(OpKey("a"))


@pytest.mark.parametrize(
    ("column", "value", "match"),
    [
        ("shard", "../other/tensors-00000.safetensors", "shards are named tensors-NNNNN"),
        ("shard", "/etc/passwd", "shards are named tensors-NNNNN"),
        ("shard", "..", "shards are named tensors-NNNNN"),
        ("shard", "sub/tensors-00000.safetensors", "shards are named tensors-NNNNN"),
        ("shard", "", "shards are named tensors-NNNNN"),
        ("offset", -64, "a negative offset, nbytes or index"),
        ("nbytes", -1, "a negative offset, nbytes or index"),
        ("index", -1, "a negative offset, nbytes or index"),
        ("call", -1, "negative call or iteration: -1"),
        ("nbytes", 49_999, "nbytes 49999, but u8 of shape .* takes 50000 bytes"),
        ("dtype", "f32", "f32 of shape .* takes 200000 bytes"),
        ("dtype", "float999", "unknown dtype 'float999'"),
        ("role", "villain", "a malformed record"),
        ("kept", "some", "a malformed record"),
        ("kept", "digest", "marked digest and has 50000 bytes"),
        ("quantization", "{", "valid JSON"),
        ("quantization", "{}", "a malformed record"),
        ("shape", [-1], "no negative ones"),
        ("shape", [2**62, 2**62], "too large for any machine"),
        ("shape", [0, 2**62], "too large for any machine"),
        ("shape", [1] * 65, "at most 64 axes"),
        ("shape", [1, None], "a malformed record"),
    ],
)
def test_a_row_that_breaks_a_rule_is_a_format_error(path, column, value, match):
    edit_table(path, **{column: pl.lit(value, dtype=pl.Object) if value is None else pl.lit(value)})
    refused(Run.open, path, match=match)


def test_a_table_that_claims_a_billion_rows_is_not_believed(path, monkeypatch):
    monkeypatch.setattr("syncpoint.run.storage.checked_parquet._MAX_ROWS", 1)
    refused(Run.open, path, match="2 rows, more than the limit of 1")


def test_a_table_that_would_take_far_more_memory_than_its_size_is_refused(path, monkeypatch):
    monkeypatch.setattr("syncpoint.run.storage.checked_parquet._MAX_MEMORY", 100)
    Run.open(path)
    monkeypatch.setattr("syncpoint.run.storage.table_reader._ROW_BYTES", 10**9)
    refused(Run.open, path, match="2 rows, which take 2.0 GB", error_class=InputError)


# The folder itself.


def test_a_path_without_a_run_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name in ("none", "file", "empty"):
        refused(Run.open, tmp_path / name, match="a run folder", error_class=InputError)


@pytest.mark.skipif(sys.platform != "linux", reason="drops the rights of a child process")
def test_a_folder_that_may_not_be_read_is_an_input_error(path):
    """In a child without rights, as root may read everything."""
    Run.open(path)
    path.chmod(0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            Run.open(path)
        except InputError as error:
            code = 0 if "Permission denied" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    path.chmod(0o755)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_run_json_that_is_a_pipe_is_refused_without_waiting(path):
    (path / "run.json").unlink()
    os.mkfifo(path / "run.json")
    refused(Run.open, path, match="not a regular file")


# Journals.


def journal(tmp_path: Path, *frames: bytes) -> Path:
    path = tmp_path / "j.run"
    path.mkdir(exist_ok=True)
    first = encode_frame("info", info_to_json(RunInfo(complete=False)))
    (path / JOURNAL).write_bytes(MAGIC + first + b"".join(frames))
    return path


def raw_frame(payload: bytes) -> bytes:
    return struct.pack("<IQ", len(payload), xxhash.xxh3_64_intdigest(payload)) + payload


def tensor_frame(**changes: object) -> bytes:
    tensor = Tensor(TensorKey(OpKey("a")), "u8", (3,), shard=SHARD, offset=64, nbytes=3)
    return encode_frame("tensor", tensor_to_json(tensor) | changes)


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        ([raw_frame(b"{")], "valid JSON"),
        ([raw_frame(b"[]")], "not an object with one key"),
        ([raw_frame(b'{"surprise": 1}')], "unknown kind 'surprise'"),
        ([raw_frame(b'{"op": {}}')], "a malformed record"),
        ([raw_frame(b'{"op": 5}')], "a malformed record"),
        ([raw_frame(b'{"source": ["a"]}')], "a malformed record"),
        ([tensor_frame(), tensor_frame()], "has the key .* twice"),
        ([tensor_frame(shard="../../x")], "shards are named tensors-NNNNN"),
        ([tensor_frame(shape=[4])], "u8 of shape .* takes 4 bytes"),
        ([tensor_frame(shape=["3"])], "not an integer"),
        ([tensor_frame(offset=-1)], "a negative offset, nbytes or index"),
        ([tensor_frame(dtype=3)], "a malformed record"),
    ],
)
def test_a_journal_with_whole_but_wrong_frames_is_a_format_error(tmp_path, frames, match):
    refused(Run.open, journal(tmp_path, *frames), match=match)


def test_a_journal_frame_of_giant_length_ends_the_run_there(tmp_path):
    path = journal(tmp_path, struct.pack("<IQ", 2**32 - 1, 0) + b"x" * 100)
    run = Run.open(path)
    assert "ends inside a frame" in run.info.missing
    assert not run.info.complete


@pytest.mark.parametrize("position", [0, 3, 6, 40])
def test_a_journal_damaged_before_its_end_is_called_damaged(tmp_path, position):
    """A writer that died leaves a frame that breaks off, and none behind it."""
    frames = [encode_frame("op", op_to_json(Op(OpKey(name), "T"))) for name in "abc"]
    path = journal(tmp_path, *frames)
    data = bytearray((path / JOURNAL).read_bytes())
    data[len(data) - len(frames[2]) - len(frames[1]) + position] ^= 4
    (path / JOURNAL).write_bytes(data)
    run = Run.open(path)
    assert [op.key.op for op in run.ops] == ["a"]
    assert "damaged at byte" in run.info.missing and "complete frames follow" in run.info.missing


def test_a_journal_that_says_it_is_complete_is_not_believed(tmp_path):
    path = journal(tmp_path, encode_frame("info", info_to_json(RunInfo(complete=True))))
    assert not Run.open(path).info.complete


def test_a_journal_of_another_kind_is_a_format_error(tmp_path):
    for data in (b"", b"syncpoint journal 2\n", b"something else entirely"):
        path = journal(tmp_path)
        (path / JOURNAL).write_bytes(data)
        refused(Run.open, path, match="not a journal of version 1")


def test_a_tensor_whose_shard_never_came_is_told_when_read(tmp_path):
    run = Run.open(journal(tmp_path, tensor_frame()))
    refused(run.values, run.tensors[0], match="No such file")


def test_repeated_keys_are_found_at_any_depth():
    refused(parse_json, b'{"a": [{"b": 1, "b": 2}]}', "x.json", match="'b' twice")
