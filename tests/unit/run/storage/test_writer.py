"""One writer per run, and a run that is readable however the writing ends."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from syncpoint.errors import CaptureError, InputError
from syncpoint.run.model import Kept, Op, OpKey, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.shards import BLOCK
from syncpoint.run.storage.writer import RunWriter


def tensor(name: str, count: int) -> Tensor:
    return Tensor(TensorKey(OpKey(name)), "u8", (count,))


def test_an_exception_leaves_a_readable_run_that_says_why(tmp_path):
    with (
        pytest.raises(CaptureError),
        RunWriter(tmp_path / "a.run", RunInfo(model="m")) as writer,
    ):
        writer.op(Op(OpKey("a"), "T"))
        writer.tensor(tensor("a", 3), b"abc")
        raise CaptureError("the model failed: a matrix of the wrong size")
    run = Run.open(tmp_path / "a.run")
    assert not run.info.complete
    assert "a matrix of the wrong size" in run.info.missing
    assert run.values(run.tensors[0]).tobytes() == b"abc"
    assert not (tmp_path / "a.run" / "journal.log").exists()


def test_a_run_without_a_record_is_not_left(tmp_path):
    """The next try would otherwise have to overwrite an empty run."""
    existing = tmp_path / "existing.run"
    existing.mkdir()
    for path in (tmp_path / "a.run", existing):
        with pytest.raises(CaptureError), RunWriter(path):
            raise CaptureError("the input x is missing")
    assert not (tmp_path / "a.run").exists()
    assert list(existing.iterdir()) == []
    with RunWriter(existing) as writer:
        writer.tensor(tensor("a", 3), b"abc")
    with pytest.raises(CaptureError), RunWriter(existing, overwrite=True):
        raise CaptureError("the input x is missing")
    assert list(existing.iterdir()) == []


def test_a_finished_run_leaves_no_journal_lock_or_temporary_file(tmp_path):
    with RunWriter(tmp_path / "a.run") as writer:
        writer.tensor(tensor("a", 3), b"abc")
    assert sorted(p.name for p in (tmp_path / "a.run").iterdir()) == [
        "ops.parquet",
        "run.json",
        "tensors-00000.safetensors",
        "tensors.parquet",
    ]


def test_a_second_writer_is_refused_while_the_first_is_at_work(tmp_path):
    first = RunWriter(tmp_path / "a.run")
    with pytest.raises(InputError, match="is locked: another process"):
        RunWriter(tmp_path / "a.run", overwrite=True)
    assert "still running" in Run.open(tmp_path / "a.run").info.missing
    first.finish()
    RunWriter(tmp_path / "a.run", overwrite=True).finish()


def test_an_existing_run_is_overwritten_only_when_asked(tmp_path):
    path = tmp_path / "a.run"
    with RunWriter(path) as writer:
        writer.tensor(tensor("old", 3), b"abc")
        writer.source(__file__)
    with pytest.raises(InputError, match="already exists; add --force to overwrite"):
        RunWriter(path)
    with RunWriter(path, overwrite=True) as writer:
        writer.tensor(tensor("new", 3), b"xyz")
    run = Run.open(path)
    assert [t.key.op.op for t in run.tensors] == ["new"]
    assert run.values(run.tensors[0]).tobytes() == b"xyz"
    assert run.source_text(__file__) is None


def test_a_folder_that_is_not_a_run_is_never_overwritten(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    (tmp_path / "run.json").write_text('{"format": "another tool"}')
    with pytest.raises(InputError, match="other files"):
        RunWriter(tmp_path, overwrite=True)
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_what_a_user_put_beside_a_run_stays_when_it_is_overwritten(tmp_path):
    RunWriter(tmp_path / "a.run").finish()
    (tmp_path / "a.run" / "notes.txt").write_text("mine")
    RunWriter(tmp_path / "a.run", overwrite=True).finish()
    assert (tmp_path / "a.run" / "notes.txt").read_text() == "mine"


def test_repeated_keys_and_wrong_sizes_are_input_errors(tmp_path):
    with RunWriter(tmp_path / "a.run") as writer:
        writer.op(Op(OpKey("a"), "T"))
        writer.tensor(tensor("a", 3), b"abc")
        with pytest.raises(InputError, match=r"op .* is recorded twice"):
            writer.op(Op(OpKey("a"), "T"))
        with pytest.raises(InputError, match=r"tensor .* is recorded twice"):
            writer.tensor(tensor("a", 3), b"abc")
        with pytest.raises(InputError, match=r"b has 3 bytes, but u8 .* takes 4 bytes"):
            writer.tensor(tensor("b", 4), b"abc")
        with pytest.raises(InputError, match="b has no bytes"):
            writer.tensor(tensor("b", 4))
        with pytest.raises(TypeError, match="nonsense"):
            writer.update(nonsense=1)
    with pytest.raises(InputError, match="finished"):
        writer.op(Op(OpKey("b"), "T"))
    assert len(Run.open(tmp_path / "a.run").tensors) == 1


def test_facts_change_and_notes_add_up(tmp_path):
    with RunWriter(tmp_path / "a.run", RunInfo(notes=("first",))) as writer:
        writer.update(device="cpu", notes=("second",))
        writer.note("third")
        writer.note("third")
    info = Run.open(tmp_path / "a.run").info
    assert (info.device, info.notes) == ("cpu", ("first", "second", "third"))


def test_of_a_tensor_without_values_only_the_digest_is_taken(tmp_path):
    with RunWriter(tmp_path / "a.run") as writer:
        kept = writer.tensor(Tensor(TensorKey(OpKey("a")), "u8", (3,), kept=Kept.DIGEST), b"abc")
    assert (kept.shard, kept.nbytes, kept.digest_kind) == ("", 0, "xxh3-128")
    assert list((tmp_path / "a.run").glob("tensors-*.safetensors")) == []


def test_source_files_are_copied_once_and_only_as_text(tmp_path):
    text, binary = tmp_path / "net.py", tmp_path / "weights.bin"
    text.write_text("x = 1\n")
    binary.write_bytes(b"\0\xff")
    with RunWriter(tmp_path / "a.run") as writer:
        for path in (text, text, binary, tmp_path, tmp_path / "none.py"):
            writer.source(path)
        writer.source("/gone/other.py", "y = 2\n")
    text.write_text("changed")
    run = Run.open(tmp_path / "a.run")
    assert run.source_text(str(text)) == "x = 1\n"
    assert run.source_text("/gone/other.py") == "y = 2\n"
    assert run.source_text(str(binary)) is None
    assert len(list((tmp_path / "a.run" / "source").iterdir())) == 3


@pytest.mark.parametrize("room", [0, 100_000, 6 << 20])
def test_a_full_disk_is_one_error_and_all_before_it_is_readable(tmp_path, monkeypatch, room):
    """The disk takes `room` more bytes of values, half a write included, and then no more."""
    left = room
    real = os.pwrite

    def pwrite(handle: int, data: memoryview, offset: int) -> int:
        nonlocal left
        name = Path(f"/proc/self/fd/{handle}").readlink().name
        if not name.endswith(".partial") or offset == 0:
            return real(handle, data, offset)
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(handle, data[:left], offset)
        left -= done
        return done

    rng = np.random.default_rng(0)
    written = {}
    with (
        pytest.raises(InputError, match="No space left"),
        RunWriter(tmp_path / "a.run") as writer,
    ):
        small = rng.integers(0, 256, 1000, dtype=np.uint8)
        written["small"] = small
        writer.tensor(tensor("small", 1000), small)
        writer.flush()
        monkeypatch.setattr(os, "pwrite", pwrite)
        for i in range(4):
            large = rng.integers(0, 256, 5 << 20, dtype=np.uint8)
            written[f"large{i}"] = large
            writer.tensor(tensor(f"large{i}", large.size), large)
    monkeypatch.undo()
    run = Run.open(tmp_path / "a.run")
    assert not run.info.complete
    assert "No space left" in run.info.missing
    assert len(run.tensors) == (2 if room > 5 << 20 else 1)
    for found in run.tensors:
        assert run.values(found).tobytes() == written[found.key.op.op].tobytes()


def test_a_run_whose_tables_cannot_be_written_stays_readable_from_its_journal(
    tmp_path, monkeypatch
):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(InputError, match="No space"), RunWriter(tmp_path / "a.run") as writer:
        writer.tensor(tensor("a", 3), b"abc")
        monkeypatch.setattr("syncpoint.run.storage.writer.write_tensors", refuse)
    run = Run.open(tmp_path / "a.run")
    assert (tmp_path / "a.run" / "journal.log").exists()
    assert not run.info.complete
    assert "No space" in run.info.missing
    assert run.values(run.tensors[0]).tobytes() == b"abc"


def test_a_slow_trickle_does_not_cut_a_shard_into_small_pieces(tmp_path, monkeypatch):
    """Each block of the file is first written in one piece, as the page cache then keeps it."""
    pieces = []
    real = os.pwrite

    def pwrite(handle: int, data: memoryview, offset: int) -> int:
        if Path(f"/proc/self/fd/{handle}").readlink().suffix == ".partial":
            pieces.append((offset, offset + len(data)))
        return real(handle, data, offset)

    rng = np.random.default_rng(0)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with RunWriter(tmp_path / "a.run") as writer:
        for i in range(300):
            value = rng.integers(0, 256, 25_000, dtype=np.uint8)
            writer.tensor(tensor(f"small{i}", value.size), value)
            writer.flush()
    size = (tmp_path / "a.run" / "tensors-00000.safetensors").stat().st_size
    assert size > 3 * BLOCK and size % BLOCK
    reached = 0
    for start, end in pieces[:-1]:
        if end > reached:
            assert start <= reached and (end % BLOCK == 0 or end - reached >= BLOCK)
            reached = end
    run = Run.open(tmp_path / "a.run")
    rng = np.random.default_rng(0)
    for found in run.tensors:
        assert run.values(found).tobytes() == rng.integers(0, 256, 25_000, np.uint8).tobytes()
