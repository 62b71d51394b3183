"""Bytes of tensors that changed after they were recorded: always damaged, never a verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import syncpoint as sp
from helpers.reseal_checksums import reseal
from syncpoint.comparison import checksum_status
from syncpoint.comparison.engine import Options, compare
from syncpoint.comparison.measuring import measure_rows as measuring
from syncpoint.comparison.storage.comparison_folder import load, save
from syncpoint.comparison.storage.file_names import JSON_NAME
from syncpoint.comparison.unmatched import UnmatchedTensor
from syncpoint.dumps.save_dump import save_dump
from syncpoint.errors import DamagedError, InputError
from syncpoint.metrics.verdict import Reason, ReasonCode, Verdict
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.overview import build_overview
from syncpoint.reports.terminal_report import as_text
from syncpoint.run import reader
from syncpoint.run.model import Edge, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage import tensor_checksums
from syncpoint.run.storage.writer import RunWriter
from syncpoint.runtimes.inputs.read_inputs import read_inputs

OPS = tuple("abcdef")


def write_run(path: Path, scale: float = 1.0, count: int = 3000, off: str = "abcdef") -> Path:
    """A chain of ops with an input and a parameter; the outputs of some are off by `scale`."""
    rng = np.random.default_rng(7)
    with RunWriter(path) as writer:
        before = Edge(OpKey("x"), role=Role.MODEL_INPUT)
        for name in OPS:
            writer.op(Op(OpKey(name), "Relu", (before,)))
            before = Edge(OpKey(name))
        for key in (
            TensorKey(OpKey("x"), Role.MODEL_INPUT),
            TensorKey(OpKey("weight"), Role.PARAMETER),
            *(TensorKey(OpKey(name)) for name in OPS),
        ):
            values = rng.standard_normal(count).astype(np.float32)
            if key.role is Role.OUTPUT and key.op.op in off:
                values *= np.float32(scale)
            writer.tensor(Tensor(key, "f32", (count,)), values)
    return path


def overwrite(path: Path, key: TensorKey, byte: int = 0) -> None:
    """Set every byte of one tensor of a run."""
    tensor = Run.open(path).tensor(key)
    assert tensor is not None
    with (path / tensor.shard).open("r+b") as file:
        file.seek(tensor.offset)
        file.write(bytes([byte]) * tensor.nbytes)


def output(name: str) -> TensorKey:
    return TensorKey(OpKey(name))


def compared(one: Path, other: Path):
    return compare(Run.open(one), Run.open(other), Options(introduced="off"))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return write_run(tmp_path / "t.run"), write_run(tmp_path / "r.run")


def test_the_same_damage_on_both_sides_is_not_close(pair):
    """Zeros against zeros are equal; that says nothing of the model."""
    for path in pair:
        for name in OPS:
            overwrite(path, output(name))
    found = compared(*pair)
    assert found.verdict is Verdict.LARGE
    assert found.exit_code() == 1
    rows = [row for row in found.rows if row.target.key.role is Role.OUTPUT]
    assert len(rows) == len(OPS)
    for row in rows:
        assert row.verdict is Verdict.NONE
        assert row.reason.startswith("damaged: ")
        assert row.numbers is None
        assert "target" in row.reason and "reference" in row.reason
        assert str(pair[0]) in row.reason and str(pair[1]) in row.reason
        assert "again" in row.reason  # the cure
    assert found.first_divergence == []


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(
    "key",
    [
        TensorKey(OpKey("x"), Role.MODEL_INPUT),
        TensorKey(OpKey("weight"), Role.PARAMETER),
        output("c"),
        output("f"),
    ],
    ids=str,
)
def test_one_damaged_tensor_of_one_side_fails_and_the_rest_is_compared(pair, side, key):
    overwrite(pair[side], key, 1)
    found = compared(*pair)
    damaged = [row for row in found.rows if row.reason.startswith("damaged: ")]
    assert [row.target.key for row in damaged] == [key]
    assert found.exit_code() == 1
    assert all(row.verdict is Verdict.CLOSE for row in found.rows if row not in damaged)


def test_one_flipped_bit_is_damage(pair):
    """It changes no number that a limit would see."""
    tensor = Run.open(pair[0]).tensor(output("d"))
    with (pair[0] / tensor.shard).open("r+b") as file:
        file.seek(tensor.offset + 400)
        byte = file.read(1)[0]
        file.seek(tensor.offset + 400)
        file.write(bytes([byte ^ 1]))
    found = compared(*pair)
    assert [row.target.label for row in found.rows if "damaged" in row.reason] == ["d"]
    assert found.exit_code() == 1


def test_an_op_after_a_damaged_one_is_not_blamed(tmp_path):
    """All ops are off from b on. Whether b or the damaged a made the error cannot be told."""
    off, sound = write_run(tmp_path / "off.run", scale=1.5), write_run(tmp_path / "r.run")
    assert [row.target.label for row in compared(off, sound).first_divergence] == ["a"]
    overwrite(off, output("a"))
    found = compared(off, sound)
    assert found.first_divergence == []
    assert found.exit_code() == 1
    # A sound tensor in between clears the damaged one.
    other = write_run(tmp_path / "other.run", scale=1.5, off="def")
    overwrite(other, output("b"))
    assert [row.target.label for row in compared(other, sound).first_divergence] == ["d"]


def test_reports_name_run_op_file_and_cure(pair, tmp_path):
    overwrite(pair[1], output("b"))
    comparison = sp.compare(pair[0], pair[1], introduced="off")
    text = " ".join(str(comparison).split())
    line = next(part for part in text.split("■") if part.startswith(" damaged: b"))
    assert "the reference's b in" in line and "r.run/tensors-00000.safetensors" in line
    assert "copy the file again or record the run again" in line
    assert "verified target 8 of 8 tensors read; reference 7 of 8 tensors read, 1 damaged" in text
    saved = json.loads(comparison.to_json(tmp_path / "c.json").read_text())
    assert saved["verified"] == {
        "target": {"tensors": 8, "verified": 8, "unverified": 0, "damaged": 0},
        "reference": {"tensors": 8, "verified": 7, "unverified": 0, "damaged": 1},
    }
    row = next(row for row in saved["sync_points"] if row["target"]["op"] == "b")
    assert row["metrics"] is None
    save(comparison, tmp_path / "c.cmp")
    page = build_overview(OpenComparison(tmp_path / "c.cmp"))
    assert page.summary.startswith("1 tensor is damaged: ")
    trust = {line.what: (line.level, line.text) for line in page.trust}
    assert trust["target bytes"] == ("close", "verified 8 of 8 tensors read")
    assert trust["reference bytes"] == ("large", "verified 7 of 8 tensors read, 1 damaged")
    assert any("1 tensor damaged" in finding.title for finding in page.findings)


def test_a_saved_comparison_keeps_what_was_verified(pair, tmp_path):
    overwrite(pair[1], output("b"))
    straight = sp.compare(pair[0], pair[1], introduced="off", out=tmp_path / "a.cmp")
    again = load(tmp_path / "a.cmp")
    assert again.verified == straight.verified
    assert again.verdict is Verdict.LARGE and again.exit_code() == 1
    about = json.loads((tmp_path / "a.cmp" / JSON_NAME).read_text())
    del about["verified"]  # as versions wrote it that did not check
    (tmp_path / "a.cmp" / JSON_NAME).write_text(json.dumps(about))
    reseal(tmp_path / "a.cmp")
    assert load(tmp_path / "a.cmp").verified == {}


@pytest.mark.parametrize("threads", [1, 0])
@pytest.mark.parametrize("large", [1, 1 << 40])
def test_large_tensors_are_checked_while_they_are_measured(tmp_path, monkeypatch, large, threads):
    """In a thread of their own, or mapped a window at a time: the same rows."""
    monkeypatch.setattr(measuring, "_MIN_FILE_REGION_BYTES", large)
    monkeypatch.setattr(checksum_status, "_DEFERRED_BYTES", 1000)
    monkeypatch.setattr(tensor_checksums, "WINDOW_BYTES", 4096)
    paths = write_run(tmp_path / "t.run"), write_run(tmp_path / "r.run")
    sound = compare(*map(Run.open, paths), Options(introduced="off", threads=threads))
    assert sound.exit_code() == 0
    assert sound.verified["target"] == {
        "tensors": 8,
        "verified": 8,
        "unverified": 0,
        "damaged": 0,
    }
    for path in paths:
        overwrite(path, output("c"))
    overwrite(paths[1], output("e"), 255)
    hurt = compare(*map(Run.open, paths), Options(introduced="off", threads=threads))
    reasons = {row.target.label: row.reason for row in hurt.rows if row.numbers is None}
    assert sorted(reasons) == ["c", "e"]
    assert "the target's c" in reasons["c"] and "the reference's c" in reasons["c"]
    assert "target" not in reasons["e"] and "the reference's e" in reasons["e"]
    others = [row.numbers for row in hurt.rows if row.numbers is not None]
    assert others == [row.numbers for row in sound.rows if row.target.label not in reasons]


def test_a_tensor_that_matching_looked_at_is_verified_without_a_partner(tmp_path, monkeypatch):
    """Nothing equals it, perhaps since it is damaged: the comparison is not close."""
    monkeypatch.setattr(reader, "_MAX_EAGER_BYTES", 1000)
    paths = write_run(tmp_path / "t.run"), write_run(tmp_path / "r.run")
    run = Run.open(paths[0])
    tensor = run.tensor(output("c"))
    overwrite(paths[0], output("c"))
    values = run.values_for_sampling(tensor)  # not verified yet, and no error
    assert not values.any()
    assert list(run.sampled) == [tensor.key]
    sides = measuring.Sides(run, Run.open(paths[1]))
    assert checksum_status.damaged_unmatched(sides, []) == [("target", tensor.key)]
    found = compared(*paths)
    why = Reason(ReasonCode.DAMAGED)
    alone = UnmatchedTensor(
        side="target", op="c", role=Role.OUTPUT, index=0, type="Relu", module="", why=why
    )
    rows = [row for row in found.rows if row.target.label != "c"]
    found = replace(found, rows=rows, unmatched=[alone])
    assert found.verdict is Verdict.LARGE and found.exit_code() == 1
    assert "■ damaged: c of the target has no counterpart" in " ".join(as_text(found).split())
    assert replace(found, unmatched=[]).exit_code() == 0


def test_inputs_conversion_and_reduction_refuse_damaged_bytes(pair, tmp_path):
    overwrite(pair[0], TensorKey(OpKey("x"), Role.MODEL_INPUT), 9)
    with pytest.raises(DamagedError, match=r"bytes of x.* do not match their checksum"):
        read_inputs(str(pair[0]))
    for form in ("run", "npz", "safetensors", "npy"):
        with pytest.raises(DamagedError, match=r"bytes of x.* do not match their checksum"):
            save_dump(Run.open(pair[0]), tmp_path / f"out-{form}", form)
    with pytest.raises(InputError, match=r"bytes of x.* do not match their checksum"):
        sp.reduce(pair[0], "statistics", tmp_path / "small.run")


def test_a_resumed_comparison_says_the_same_of_what_was_verified(pair, tmp_path, monkeypatch):
    overwrite(pair[1], output("b"))
    straight = compared(*pair)
    monkeypatch.setattr(measuring, "_MAX_BATCH_PAIRS", 2)
    measure = measuring._measure_batch
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(measuring, "_measure_batch", interrupted)
    out = tmp_path / "a.cmp"
    with pytest.raises(KeyboardInterrupt):
        sp.compare(pair[0], pair[1], introduced="off", out=out)
    monkeypatch.setattr(measuring, "_measure_batch", measure)
    resumed = sp.compare(pair[0], pair[1], introduced="off", out=out, resume=True)
    assert resumed.verified == straight.verified
    assert [row.reason for row in resumed.rows] == [row.reason for row in straight.rows]
    assert [row.numbers for row in resumed.rows] == [row.numbers for row in straight.rows]
