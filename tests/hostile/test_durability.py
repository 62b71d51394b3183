"""Whatever ends a capture, what was finished reads back bit-equal and the run says what is missing.

`SYNCPOINT_KILLS=200` kills more captures than the ten of an ordinary test run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.paths import TESTS
from helpers.small_disk import small_disk
from syncpoint.errors import CaptureError, FormatError, InputError
from syncpoint.run.model import Edge, Op, OpKey, Role, RunInfo, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.journal import JOURNAL, MAGIC
from syncpoint.run.storage.writer import RunWriter

KILLS = int(os.environ.get("SYNCPOINT_KILLS", "10"))


# Killed captures.


class Captures:
    """The process of killable_captures.py: captures on demand, to be killed."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "helpers" / "killable_captures.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        self.seconds = float(self.process.stdout.readline())
        self.whole = Run.open(folder / "whole.run")

    def killed(self, path: Path, after: float) -> None:
        print(path, file=self.process.stdin, flush=True)
        child = int(self.process.stdout.readline())
        time.sleep(after)
        # Not reaped before the next line, so that the number is still its own.
        os.kill(child, signal.SIGKILL)
        print("killed", file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "gone\n"

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    found = Captures(tmp_path_factory.mktemp("captures"))
    yield found
    found.close()


def test_a_killed_capture_has_what_it_says_and_only_that(captures, tmp_path):
    whole = captures.whole
    order = {t.key: i for i, t in enumerate(whole.tensors)}
    moments = random.Random(0)
    complete = partial = 0
    for number in range(KILLS):
        path = tmp_path / f"{number}.run"
        captures.killed(path, moments.uniform(0, 1.1) * captures.seconds)
        try:
            run = Run.open(path)
        except InputError:
            assert not (path / "run.json").exists() and not (path / JOURNAL).exists()
            continue
        if run.info.complete:
            complete += 1
            assert run.digest() == whole.digest()
        else:
            partial += 1
            assert "its writer died" in run.info.missing
            assert f"the first {len(run.ops)} ops and {len(run.tensors)} tensors" in (
                run.info.missing
            )
        # The first so many of the whole run, none of them changed, none made up.
        assert [order[t.key] for t in run.tensors] == list(range(len(run.tensors)))
        assert list(run.ops) == list(whole.ops[: len(run.ops)])
        for tensor in run.tensors:
            expected = whole.values(whole.tensor(tensor.key))
            assert run.values(tensor).tobytes() == expected.tobytes()
    assert partial or KILLS < 10
    assert complete + partial <= KILLS


def test_a_killed_run_can_be_recorded_again_over_its_remains(captures, tmp_path):
    path = tmp_path / "a.run"
    captures.killed(path, captures.seconds / 2)
    captures.killed(path, captures.seconds / 2)
    with RunWriter(path, overwrite=True) as writer:
        writer.op(Op(OpKey("again"), "T"))
    assert Run.open(path).info.complete
    assert not list(path.glob("*.partial")) and not (path / JOURNAL).exists()


def test_a_writer_that_died_in_its_first_moments_leaves_no_obstacle(tmp_path):
    path = tmp_path / "a.run"
    path.mkdir()
    (path / "run.lock").touch()
    (path / f"{JOURNAL}.tmp").write_bytes(MAGIC[:5])
    with pytest.raises(InputError, match=r"neither run.json nor journal.log"):
        Run.open(path)
    with RunWriter(path) as writer:
        writer.op(Op(OpKey("a"), "T"))
    assert Run.open(path).info.complete
    assert sorted(p.name for p in path.iterdir()) == ["ops.parquet", "run.json", "tensors.parquet"]


# Full disks.


@pytest.mark.skipif(sys.platform != "linux", reason="tmpfs")
def test_a_full_disk_keeps_what_was_flushed_and_says_so(tmp_path):
    rng = np.random.default_rng(0)
    values = [rng.integers(0, 256, 100_000, np.uint8) for _ in range(100)]
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "a.run"
        with (
            pytest.raises(InputError, match="No space left on device") as raised,
            RunWriter(path) as writer,
        ):
            recorder = Recorder(writer)
            for i, value in enumerate(values):
                recorder.tensor(recorder.op(Op(OpKey(f"op{i}"), "T")), value)
                recorder.flush()
        assert "\n" not in str(raised.value)
        run = Run.open(path)
        assert not run.info.complete
        assert "No space left on device" in run.info.missing
        # 2 MiB hold nineteen tensors beside the header and the journal, not twenty.
        assert 15 <= len(run.tensors) <= 20
        for tensor, value in zip(run.tensors, values, strict=False):
            assert run.values(tensor).tobytes() == value.tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="tmpfs")
def test_a_capture_onto_a_full_disk_is_one_line(tmp_path):
    code = (
        "import torch\nfrom torch import nn\n"
        "def net(): return nn.Sequential(*[nn.Linear(256, 256) for _ in range(20)]).eval()\n"
    )
    (tmp_path / "net.py").write_text(code)
    with small_disk(tmp_path / "disk") as disk:
        found = subprocess.run(
            [
                *(sys.executable, "-c", "from syncpoint.cli import main; main()", "capture"),
                *("net.py:net", "--inputs", "random", "--shape", "input=64,256"),
                *("-o", str(disk / "a.run")),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert found.returncode == 2
        assert found.stderr.count("\n") == 1 and "No space left on device" in found.stderr
        run = Run.open(disk / "a.run")
        assert not run.info.complete and "No space left" in run.info.missing
        for tensor in run.tensors:
            run.values(tensor)


# Models that raise.


def test_a_model_that_raises_midway_keeps_what_came_before(tmp_path):
    torch = pytest.importorskip("torch")

    schema = "(Tensor x) -> Tensor"

    @torch.library.custom_op("syncpoint_tests::explode", mutates_args=(), schema=schema)
    def explode(x):
        raise ValueError("boiling over")

    explode.register_fake(torch.empty_like)

    class Layer(torch.nn.Module):
        def __init__(self, number):
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)
            self.number = number

        def forward(self, x):
            x = torch.relu(self.linear(x))
            return explode(x) if self.number == 3 else x

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer(i) for i in range(6))).eval()
    x = torch.randn(4, 16)
    with pytest.raises(CaptureError, match="boiling over") as raised:
        sp.capture(model, (x,), out=tmp_path / "a.run")
    assert "\n" not in str(raised.value) and "explode" in str(raised.value)
    run = Run.open(tmp_path / "a.run")
    assert not run.info.complete
    assert "boiling over" in run.info.missing and "\n" not in run.info.missing
    outputs = [t for t in run.tensors if t.key.role is Role.OUTPUT]
    assert len(outputs) == 8  # linear and relu of layers 0 to 3
    with torch.no_grad():
        for number in range(4):
            x = torch.relu(model[number].linear(x))
            assert run.values(outputs[2 * number + 1]).tobytes() == x.numpy().tobytes()


# Two writers.


def test_a_second_process_cannot_write_a_run_that_is_being_written(tmp_path):
    path = tmp_path / "a.run"
    other = "import sys\nfrom syncpoint.run.storage.writer import RunWriter\n"
    other += "RunWriter(sys.argv[1], overwrite=True)"
    with RunWriter(path) as writer:
        writer.op(Op(OpKey("mine"), "T"))
        writer.tensor(Tensor(TensorKey(OpKey("mine")), "u8", (100,)), bytes(range(100)))
        writer.flush()
        before = (path / JOURNAL).read_bytes()
        found = subprocess.run(
            [sys.executable, "-c", other, str(path)], capture_output=True, text=True
        )
        assert found.returncode and "is locked: another process is writing it" in found.stderr
        with pytest.raises(InputError, match="is locked: another process is writing it"):
            RunWriter(path, overwrite=True)
        assert (path / JOURNAL).read_bytes() == before
        assert "its writer is still running" in Run.open(path).info.missing
    run = Run.open(path)
    assert run.info.complete
    assert run.values(run.tensors[0]).tobytes() == bytes(range(100))


def test_of_many_writers_that_start_at_once_one_wins(tmp_path):
    path = tmp_path / "a.run"
    code = (
        "import sys, time\nfrom syncpoint.errors import InputError\n"
        "from syncpoint.run.model import Op, OpKey\n"
        "from syncpoint.run.storage.writer import RunWriter\n"
        "sys.stdin.readline()\n"
        "try:\n    writer = RunWriter(sys.argv[1], overwrite=True)\n"
        "except InputError as error:\n    print(error); sys.exit(2)\n"
        "writer.op(Op(OpKey(sys.argv[2]), 'T'))\ntime.sleep(1)\nwriter.finish()\n"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(i)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(4)
    ]
    time.sleep(1)  # for their imports: all wait for a line then, and start together
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate()[0] for writer in writers]
    codes = [writer.returncode for writer in writers]
    assert 0 in codes and set(codes) <= {0, 2}
    assert all(
        "is locked: another process" in text for text, code in zip(said, codes, strict=True) if code
    )
    run = Run.open(path)
    assert run.info.complete and len(run.ops) == 1


# Journals that lost their end.


def test_a_journal_cut_at_any_byte_gives_a_prefix_of_the_run(tmp_path):
    path = tmp_path / "a.run"
    writer = RunWriter(path, RunInfo(model="m", notes=("a note",)))
    for i in range(3):
        key = OpKey(f"op{i}")
        reads = (Edge(OpKey(f"op{i - 1}")),) if i else ()
        writer.op(Op(key, "T", reads, attributes={"α": [i, None]}))
        writer.tensor(Tensor(TensorKey(key), "u8", (10 * i,)), bytes([i]) * 10 * i)
        writer.flush()
    journal = path / JOURNAL
    whole, data = Run.open(path), journal.read_bytes()
    ops, tensors = list(whole.ops), list(whole.tensors)
    assert len(ops) == len(tensors) == 3
    seen = set()
    for end in range(len(data) + 1):
        journal.write_bytes(data[:end])
        if end < len(MAGIC):
            # Written and synced before it has its name, so no loss of power leaves this.
            with pytest.raises(FormatError, match="not a journal of version 1"):
                Run.open(path)
            continue
        run = Run.open(path)
        assert not run.info.complete and run.info.missing
        assert list(run.ops) == ops[: len(run.ops)]
        assert list(run.tensors) == tensors[: len(run.tensors)]
        assert len(run.tensors) <= len(run.ops)
        assert run.info.model in ("", "m")
        for i, tensor in enumerate(run.tensors):
            assert run.values(tensor).tobytes() == bytes([i]) * 10 * i
        seen.add((len(run.ops), len(run.tensors)))
    assert {(0, 0), (1, 0), (1, 1), (3, 3)} <= seen
    journal.write_bytes(data)
    writer.finish()


@pytest.mark.parametrize("lost", range(1, 8))
def test_a_shard_that_lost_its_end_loses_the_tensors_there_and_no_others(tmp_path, lost):
    """The journal reached the disk, the last pages of the shard did not, or came as zeros."""
    path = tmp_path / "a.run"
    rng = np.random.default_rng(lost)
    values = [rng.integers(1, 256, 3000, np.uint8) for _ in range(8)]
    writer = RunWriter(path)
    for i, value in enumerate(values):
        writer.op(Op(OpKey(f"op{i}"), "T"))
        writer.tensor(Tensor(TensorKey(OpKey(f"op{i}")), "u8", value.shape), value)
    writer.flush()
    run = Run.open(path)
    shard = path / "tensors-00000.partial"
    end = run.tensors[8 - lost].offset + 1000
    data = shard.read_bytes()
    for left in (data[:end], data[:end] + bytes(len(data) - end)):
        shard.write_bytes(left)
        run = Run.open(path)
        for i, tensor in enumerate(run.tensors):
            if i < 8 - lost:
                assert run.values(tensor).tobytes() == values[i].tobytes()
            else:
                with pytest.raises(FormatError):
                    run.values(tensor)
                with pytest.raises(FormatError):
                    run.window(tensor, 0, 10)
    writer.abort("the test is over")
