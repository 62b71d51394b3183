"""A reduction that is killed again and again beside the writer of the dump loses nothing.

`SYNCPOINT_KILLS=500` kills more often than the fifty times of an ordinary test run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xxhash

import syncpoint as sp
from helpers import killable_reductions
from helpers.statistics_oracle import figures
from syncpoint.files.writer_lock import is_locked
from syncpoint.reducing.progress_journal import JOURNAL_FILE
from syncpoint.run.storage.journal import read_journal

KILLS = max(int(os.environ.get("SYNCPOINT_KILLS", "50")), 50)
COUNT = 3 * KILLS
HELPER = str(Path(killable_reductions.__file__))
COMMAND = "from syncpoint.cli import main; main()"


def disk(folder):
    """What it takes there, whole blocks."""
    return sum(p.lstat().st_blocks * 512 for p in folder.rglob("*") if p.is_file())


class Reducer:
    """The process that forks reductions, to be killed."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, HELPER, "reduce"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def killed(self, folder, out, after):
        print(folder, out, file=self.process.stdin, flush=True)
        child = int(self.process.stdout.readline())
        time.sleep(after)
        # Not reaped before the next line, so that the number is still its own.
        os.kill(child, signal.SIGKILL)
        assert self._reaped() == signal.SIGKILL

    def dies(self, folder, out, at, to="statistics"):
        """Whether the child came to the operation at which it dies."""
        print(folder, out, at, to, file=self.process.stdin, flush=True)
        self.process.stdout.readline()
        status = self._reaped()
        assert status in (0, signal.SIGKILL)
        return status != 0

    def _reaped(self):
        print("on", file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def reducer():
    found = Reducer()
    yield found
    found.close()


@pytest.fixture
def places(tmp_path):
    (tmp_path / "dump").mkdir()
    return tmp_path / "dump", tmp_path / "small.run"


def test_a_reduction_killed_fifty_times_beside_the_writer_loses_nothing(reducer, places):
    folder, out = places
    pause = 0.04
    writer = subprocess.Popen(
        [sys.executable, HELPER, "write", str(folder), str(COUNT), str(pause)],
        stdout=subprocess.PIPE,
        text=True,
    )
    command = [sys.executable, "-c", COMMAND, "reduce", str(folder), "-o", str(out)]
    command += ["--to", "statistics", "--delete", "--watch"]
    moments = random.Random(0)
    beside, lengths = 0, set()
    for number in range(KILLS):
        if number % 25 == 24:
            child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            time.sleep(moments.uniform(0.3, 1.5))
            child.kill()
            child.wait()
            while is_locked(out):  # the process that it watched ends with it, a moment later
                time.sleep(0.01)
        else:
            reducer.killed(folder, out, moments.uniform(0.0, 0.4))
        beside += writer.poll() is None
        lengths.add((out / JOURNAL_FILE).stat().st_size if (out / JOURNAL_FILE).exists() else 0)
        # A folder that says it is a run says no more than is true.
        assert not (out / "run.json").exists() or sp.open_run(out).tensors
    written = int(writer.communicate()[0])
    assert beside > KILLS // 2 and len(lengths) > KILLS // 4

    done = subprocess.run([*command, "--until-idle", "0.2"], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert killable_reductions.UNFINISHED in done.stderr and "not reduced: 1 file " in done.stderr

    # Only what is not whole is still there, and the disk is free again.
    left = [p.name for p in folder.rglob("*") if p.is_file()]
    assert left == [killable_reductions.UNFINISHED]
    unfinished = len(killable_reductions.saved(0))
    assert disk(folder) + disk(out) - unfinished <= 0.02 * written
    run = sp.open_run(out)
    assert {op.key.op for op in run.ops} == {f"op_{n}-aten.op.default" for n in range(COUNT)}
    assert len(run.tensors) == COUNT
    for tensor in run.tensors:
        number = int(tensor.key.op.op.removeprefix("op_").partition("-")[0])
        values = killable_reductions.array(number)
        assert (tensor.shape, tensor.key.part.step) == (values.shape, number * 3 // COUNT)
        if not values.size:
            assert tensor.kept == "values"
            continue
        assert tensor.kept == "statistics"
        for figure, expected in figures(values).items():
            found = getattr(tensor.statistics, figure)
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-9), (number, figure)


def test_a_reduction_may_die_at_any_operation_on_the_disk(reducer, tmp_path):
    """Every write, sync, rename and removal in turn; a write is cut in half."""
    count, at, dies = 3, 0, True
    digests = {
        n: xxhash.xxh3_128_hexdigest(killable_reductions.array(n).tobytes()) for n in range(count)
    }
    while dies:
        at += 1
        folder, out = tmp_path / f"dump{at}", tmp_path / f"{at}.run"
        killable_reductions.write(folder, count, 0)
        next(folder.rglob(killable_reductions.UNFINISHED)).unlink()
        dies = reducer.dies(folder, out, at)
        there = {p.name for p in folder.rglob("*.npy")}
        # Before anybody goes on with it: what is not there any more is in the ledger.
        gone = {killable_reductions.name(n) for n in range(count)} - there
        assert gone <= ledger(out).keys() & removed(out)
        assert not reducer.dies(folder, out, 0)
        assert not list(folder.rglob("*.npy"))
        assert ledger(out) == {killable_reductions.name(n): digest for n, digest in digests.items()}
        shutil.rmtree(folder)
    assert at > 10
    sp.reduce(folder, "statistics", out)  # of a dump of which nothing is left
    assert [t.digest for t in sp.open_run(out).tensors] == list(digests.values())


def ledger(out):
    """The digest of each file that it tells of."""
    return {Path(b["file"]).name: b["tensors"][0][3] for b in frames(out, "record")}


def removed(out):
    """The files that it says were deleted, or were about to be."""
    return {Path(file).name for body in frames(out, "deleted") for file in body}


def frames(out, kind):
    found = read_journal(out / JOURNAL_FILE).frames if (out / JOURNAL_FILE).exists() else []
    return [body for name, body in found if name == kind]


def test_min_max_may_die_at_any_operation_on_the_disk(reducer, tmp_path):
    count, at, dies = 3, 0, True
    while dies:
        at += 1
        folder, out = tmp_path / f"dump{at}", tmp_path / f"small{at}"
        killable_reductions.write(folder, count, 0)
        next(folder.rglob(killable_reductions.UNFINISHED)).unlink()
        whole = {p.relative_to(folder): np.load(p) for p in folder.rglob("*.npy")}
        dies = reducer.dies(folder, out, at, "min-max")
        for step in (1, 2):
            for file, values in whole.items():
                small = out / file.with_name(f"{file.stem}_min_max.npy")
                if small.exists():
                    ends = [values.min(), values.max()]
                    np.testing.assert_array_equal(np.load(small), ends)
                assert small.exists() or ((folder / file).exists() and step == 1)
            assert not reducer.dies(folder, out, 0, "min-max")
        assert not list(folder.rglob("*.npy"))
        shutil.rmtree(folder)
    assert at > 10
