"""Large tensors are measured in pieces, to the same bits, and damage stays theirs alone."""

import os

import numpy as np
import pytest

from syncpoint.comparison.engine import compare
from syncpoint.comparison.measuring import measure_rows as measuring
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Op, OpKey, RunInfo
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3, 40_000)).astype(np.float32)
    for name, noise in (("t", 1e-3), ("r", 0.0)):
        with RunWriter(tmp_path / f"{name}.run", RunInfo()) as writer:
            recorder = Recorder(writer)
            for i, row in enumerate(values):
                key = recorder.op(Op(OpKey(f"op{i}"), f"kind{i}"))
                recorder.tensor(key, row + np.float32(noise))
    return tmp_path


def compared(paths):
    return compare(Run.open(paths / "t.run"), Run.open(paths / "r.run"))


def test_pieces_give_the_same_bits(paths, monkeypatch):
    whole = compared(paths)
    monkeypatch.setattr(measuring, "_MIN_FILE_REGION_BYTES", 1000)
    pieces = compared(paths)
    assert [r.numbers for r in pieces.rows] == [r.numbers for r in whole.rows]
    assert pieces.verdict is whole.verdict is Verdict.LARGE


def test_a_truncated_shard_costs_only_what_it_held(paths, monkeypatch):
    monkeypatch.setattr(measuring, "_MIN_FILE_REGION_BYTES", 1000)
    shard = next((paths / "t.run").glob("tensors-*.safetensors"))
    os.truncate(shard, shard.stat().st_size - 1000)
    rows = compared(paths).rows
    assert [r.unmeasured.code for r in rows] == [None, None, "unreadable"]
