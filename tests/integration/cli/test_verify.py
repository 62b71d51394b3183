"""`syncpoint verify` finds every damaged byte that has a checksum, and says what has none."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import syncpoint as sp
from helpers.msprobe_dumps import REAL
from helpers.paths import OLDER_DATA
from syncpoint.cli.app import app
from syncpoint.errors import InputError
from syncpoint.run.model import Edge, Op, OpKey, Role, RunInfo
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter

SHARD = "tensors-00000.safetensors"


def record(path: Path, scale: float = 1.0) -> Path:
    source = path.parent / "net.py"
    source.write_text("y = relu(x)\n")
    with RunWriter(path, RunInfo(model="example", runtime="by hand")) as writer:
        recorder = Recorder(writer)
        x = recorder.op(Op(OpKey("x"), "input"))
        values = np.arange(600, dtype=np.float32) * np.float32(scale)
        recorder.tensor(x, values, role=Role.MODEL_INPUT, name="x")
        relu = recorder.op(Op(OpKey("relu"), "Relu", inputs=(Edge(x, role=Role.MODEL_INPUT),)))
        recorder.tensor(relu, values + 1)
        writer.source(source)
    return path


@pytest.fixture
def run(tmp_path) -> Path:
    return record(tmp_path / "a.run")


@pytest.fixture
def comparison(tmp_path, run) -> Path:
    """A comparison with one of its runs inside."""
    path = tmp_path / "a.cmp"
    record(tmp_path / "b.run", 1.01)
    sp.compare(run, tmp_path / "b.run", out=path)
    shutil.copytree(run, path / "target.run")
    return path


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def verify(path: Path, code: int) -> str:
    done = CliRunner().invoke(app, ["verify", str(path)])
    assert done.exit_code == code, done.output
    return done.stdout


def test_a_sound_run_is_verified_whole(run):
    found = sp.verify(run)
    assert found.exit_code() == 0 and not found.damaged and not found.unverified
    assert (found.files, found.tensors) == (5, 2)  # run.json, two tables, a source and its index
    assert found.bytes > 2 * 2400
    assert verify(run, 0).startswith(f"verified: {run} (run): ")


@pytest.mark.parametrize(
    "file", ["run.json", "ops.parquet", "tensors.parquet", "source/0000-net.py", SHARD]
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_flipped_bit_is_found_wherever_it_lies(run, file, place):
    size = (run / file).stat().st_size
    flip(run / file, size // 3 if place else size - 1)
    found = sp.verify(run)
    assert found.exit_code() == 1
    assert {damage.file for damage in found.damaged} == {file}


def test_a_damaged_tensor_is_named_with_its_op_and_its_file(run):
    tensor = sp.open_run(run).tensors[1]
    flip(run / SHARD, tensor.offset + 5)
    [damage] = sp.verify(run).damaged
    assert (damage.op, damage.file) == (str(tensor.key), SHARD)
    text = verify(run, 1)
    assert text.splitlines()[0].startswith(f"damaged     relu in {SHARD}: its bytes do not match")
    assert "1 damaged; verified: 5 files and 1 tensors" in text


def test_a_missing_file_is_damage(run):
    (run / "source" / "0000-net.py").unlink()
    assert "damaged     source/0000-net.py: it is missing" in verify(run, 1)
    (run / SHARD).unlink()
    assert {damage.op for damage in sp.verify(run).damaged} == {"", "x!model-input", "relu"}
    (run / "ops.parquet").unlink()
    assert "the tensors of a.run were not read" in verify(run, 1)


def test_a_comparison_is_verified_with_the_runs_inside_it(comparison):
    assert sp.verify(comparison).exit_code() == 0
    flip(comparison / "target.run" / SHARD, -3)
    [damage] = sp.verify(comparison).damaged
    assert damage.file == f"target.run/{SHARD}"
    flip(comparison / "syncpoints.parquet", 500)
    assert "damaged     syncpoints.parquet: its checksum differs" in verify(comparison, 1)
    flip(comparison / "comparison.json", 500)
    assert "damaged     comparison.json: its checksum differs" in verify(comparison, 1)


@pytest.mark.parametrize("name", ["values.run", "statistics.run", "pair.cmp"])
def test_what_is_older_than_checksums_is_not_called_verified(name):
    found = sp.verify(OLDER_DATA / name)
    assert found.exit_code() == 3 and not found.damaged and found.unverified
    assert "written before files had checksums" in verify(OLDER_DATA / name, 3)


def test_the_members_of_an_npz_are_checked_stored_or_deflated(tmp_path):
    arrays = {"a": np.arange(5000, dtype=np.float32), "b": np.ones(7)}
    for write in (np.savez, np.savez_compressed):
        path = tmp_path / f"{write.__name__}.npz"
        write(path, **arrays)
        assert sp.verify(path).tensors == 2
        assert "verified" in verify(path, 0)
        flip(path, 3000)
        [damage] = sp.verify(path).damaged
        assert (damage.op, damage.file) == ("a", path.name)


def test_a_format_without_checksums_cannot_be_verified(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(4))
    assert "1 tensor without a checksum" in verify(tmp_path / "a.npy", 3)


def test_tensors_with_a_recorded_digest_are_verified_and_the_index_is_not():
    found = sp.verify(REAL / "tensor_target")
    assert (found.exit_code(), found.kind, found.damaged) == (3, "msprobe", [])
    assert found.tensors == sum(1 for tensor in sp.open_run(found.path).tensors if tensor.count)
    assert "dump.json" in {Path(file).name for file in found.unverified}


def test_a_file_cut_short_is_damage_whatever_its_format(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.ones(1000))
    path.write_bytes(path.read_bytes()[:4000])
    verify(path, 1)


def test_what_is_none_of_these_is_an_input_error(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    for path in (tmp_path / "nothing", tmp_path / "notes.txt", tmp_path):
        with pytest.raises(InputError):
            sp.verify(path)


def test_the_result_is_written_as_json(run, tmp_path):
    flip(run / "ops.parquet", 50)
    done = CliRunner().invoke(app, ["verify", str(run), "--json", str(tmp_path / "v.json")])
    assert done.exit_code == 1
    body = json.loads((tmp_path / "v.json").read_text())
    assert body["verdict"] == "damaged" and body["kind"] == "run"
    assert body["damaged"][0]["file"] == "ops.parquet"
    assert body["verified"]["files"] == 4


def test_a_run_that_is_gone_from_its_comparison_is_told(tmp_path):
    first, second = (tmp_path / "a.npz", tmp_path / "b.npz")
    for path in (first, second):
        np.savez(path, x=np.arange(6.0))
    comparison = sp.compare(first, second, out=tmp_path / "c.cmp")
    assert sp.verify(tmp_path / "c.cmp").verdict == "verified"
    inside = str(tmp_path / "d.cmp" / "target.run")
    replace(comparison, target={**comparison.target, "path": inside}).save(tmp_path / "d.cmp")
    found = sp.verify(tmp_path / "d.cmp")
    assert found.exit_code() == 3 and "missing" in found.unverified["target.run"]


def test_an_interrupted_comparison_is_called_that(tmp_path):
    (tmp_path / "a.cmp").mkdir()
    (tmp_path / "a.cmp" / "progress.log").write_bytes(b"syncpoint journal 1\n")
    with pytest.raises(InputError, match="was interrupted and is not finished"):
        sp.verify(tmp_path / "a.cmp")
