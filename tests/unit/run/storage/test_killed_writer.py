"""A writer killed at any moment leaves a run that opens, and nothing in it is invented."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from syncpoint.errors import DamagedError, InputError
from syncpoint.run.model import Op, OpKey, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.journal import JOURNAL, read_journal
from syncpoint.run.storage.writer import RunWriter

_CHILD = """
import sys
import numpy as np
from syncpoint.run.model import Op, OpKey
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.shards import ShardWriter
from syncpoint.run.storage.writer import RunWriter

ShardWriter.__init__.__kwdefaults__["shard_bytes"] = 8 << 20  # so that several are closed

def value(i):
    rng = np.random.default_rng(i)
    return rng.integers(0, 256, int(rng.integers(0, 200_000)), dtype=np.uint8)

print("started", flush=True)
with RunWriter(sys.argv[1]) as writer:
    recorder = Recorder(writer)
    for i in range(1_000_000):
        recorder.tensor(recorder.op(Op(OpKey(f"op{i}"), "T")), value(i))
"""


def value(i: int) -> np.ndarray:
    rng = np.random.default_rng(i)
    return rng.integers(0, 256, int(rng.integers(0, 200_000)), dtype=np.uint8)


@pytest.mark.parametrize("seed", range(5))
def test_every_journaled_tensor_reads_back_bit_equal(tmp_path, seed):
    path = tmp_path / "a.run"
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "started\n"
    # At first while the folder is being made, later amid shards that have been closed.
    time.sleep(random.Random(seed).uniform(0, 0.4) * seed)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    try:
        run = Run.open(path)
    except InputError:
        assert not (path / JOURNAL).exists()
        return
    assert not run.info.complete
    assert "its writer died" in run.info.missing
    journaled = [body for kind, body in read_journal(path / JOURNAL).frames if kind == "tensor"]
    assert len(run.tensors) == len(journaled)
    for i, tensor in enumerate(run.tensors):
        assert tensor.key == TensorKey(OpKey(f"op{i}"))
        assert run.op(tensor.key.op) is not None
        assert run.values(tensor).tobytes() == value(i).tobytes()
    with RunWriter(path, overwrite=True) as writer:
        writer.op(Op(OpKey("again"), "T"))
    assert Run.open(path).info.complete


def unfinished(path) -> Run:
    writer = RunWriter(path)
    for i in range(10):
        writer.op(Op(OpKey(f"op{i}"), "T"))
        writer.tensor(Tensor(TensorKey(OpKey(f"op{i}")), "u8", (100,)), bytes([i]) * 100)
        writer.flush()
    return Run.open(path)


def test_a_journal_cut_anywhere_opens_up_to_its_last_whole_frame(tmp_path):
    path = tmp_path / "a.run"
    assert len(unfinished(path).tensors) == 10
    whole = (path / JOURNAL).read_bytes()
    counts = []
    for end in range(len(whole), 300, -97):
        (path / JOURNAL).write_bytes(whole[:end])
        run = Run.open(path)
        assert not run.info.complete
        counts.append(len(run.tensors))
        for i, tensor in enumerate(run.tensors):
            assert run.values(tensor).tobytes() == bytes([i]) * 100
    assert counts[0] == 10
    assert counts == sorted(counts, reverse=True)


def test_a_damaged_frame_ends_the_run_there_and_is_told(tmp_path):
    path = tmp_path / "a.run"
    unfinished(path)
    data = bytearray((path / JOURNAL).read_bytes())
    data[len(data) // 2] ^= 1
    (path / JOURNAL).write_bytes(data)
    run = Run.open(path)
    assert 0 < len(run.tensors) < 10
    assert "damaged at byte" in run.info.missing


def test_bytes_that_never_reached_the_disk_are_not_taken_for_a_tensor(tmp_path):
    """As after a loss of power, when the journal was kept and the end of the shard was not."""
    path = tmp_path / "a.run"
    run = unfinished(path)
    partial = path / "tensors-00000.partial"
    data = bytearray(partial.read_bytes())
    last = run.tensors[-1]
    data[last.offset + 50 : last.offset + 100] = bytes(50)
    partial.write_bytes(data)
    run = Run.open(path)
    assert run.values(run.tensors[0]).tobytes() == bytes(100)
    for read in (run.values, lambda t: run.window(t, 0, 10)):
        with pytest.raises(
            DamagedError, match=r"the bytes of op9 in .* do not match their checksum"
        ):
            read(last)
