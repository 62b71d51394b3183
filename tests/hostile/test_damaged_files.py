"""No damage to a run or a comparison changes a number or a verdict without the word "damaged".

`SYNCPOINT_DAMAGES=2000` tries more cases than the 200 of an ordinary test run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.paths import OLDER_DATA, TESTS
from syncpoint.run.model import Edge, Frame, Op, OpKey, Role, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter

CASES = int(os.environ.get("SYNCPOINT_DAMAGES", "200"))


def record(path: Path, error: float) -> None:
    source = path.parents[1] / "net.py"
    source.write_text("def forward(x):\n    return relu(scale(x))\n")
    with RunWriter(path, RunInfo(model="net", runtime="by hand")) as writer:
        recorder = Recorder(writer)
        x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
        before = recorder.op(Op(OpKey("x"), "input"))
        edge = Edge(before, role=Role.MODEL_INPUT)
        recorder.tensor(before, x, role=Role.MODEL_INPUT, name="x")
        for number, kind in enumerate(("scale", "relu", "scale", "relu")):
            x = np.maximum(x, 0) if kind == "relu" else x * np.float32(1.5 + error)
            frame = Frame(str(source), 2, "forward")
            op = Op(OpKey(f"{kind}{number}"), kind, inputs=(edge,), source=(frame,))
            recorder.tensor(recorder.op(op), x)
            edge = Edge(op.key)
        recorder.tensor(op.key, x, role=Role.MODEL_OUTPUT, name="out")
        writer.source(source)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    (folder / "a.cmp").mkdir()
    record(folder / "a.cmp" / "target.run", 0.3)
    record(folder / "a.cmp" / "reference.run", 0.0)
    sp.compare(
        folder / "a.cmp" / "target.run", folder / "a.cmp" / "reference.run", out=folder / "a.cmp"
    )
    shutil.copytree(OLDER_DATA / "pair.cmp", folder / "older.cmp")
    return folder


def test_damage_is_refused_or_called_damaged(base):
    outcomes: Counter[str] = Counter()
    wrong, first = [], 0
    while first < CASES:
        done = subprocess.run(
            [
                *(sys.executable, str(TESTS / "helpers" / "damaged_files.py")),
                *(str(base), str(first), str(CASES)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        outcomes.update(line["outcome"] for line in lines)
        wrong += [f"{line['what']}: {line['wrong']}" for line in lines if line["wrong"]]
        first += len(lines)
        if done.returncode:
            wrong.append(
                f"case {first} ended the process ({done.returncode}): {done.stderr[-800:]}"
            )
            first += 1
    assert not wrong, f"{len(wrong)} of {CASES}: " + "\n".join(wrong[:5])
    assert outcomes["refused"] > CASES / 2
