"""Runs written in other tools' formats, read back by us and by those tools."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from syncpoint.dumps.npy_folder import escape_path
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.save_dump import save_dump
from syncpoint.errors import FormatError, InputError, Unsupported
from syncpoint.run.model import Frame, Kept, Op, OpKey, Part, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.writer import RunWriter

RNG = np.random.default_rng(0)


@pytest.fixture
def run(tmp_path) -> Run:
    with RunWriter(tmp_path / "in.run") as writer:
        recorder = Recorder(writer)
        x = recorder.op(Op(OpKey("x"), "input", source=(Frame(__file__, 1),)))
        recorder.tensor(x, RNG.standard_normal(5), role=Role.MODEL_INPUT)
        for step in range(2):
            part = recorder.for_part(Part(step=step))
            for _ in range(2):
                key = part.op(Op(OpKey("conv", graph="g"), "Conv"))
                part.tensor(key, RNG.standard_normal((3, 7)).astype(np.float32))
        recorder.tensor(OpKey("scalar"), np.array(3, np.int16))
        recorder.tensor(OpKey("empty"), np.zeros((0, 2), np.bool_))
        writer.tensor(Tensor(TensorKey(OpKey("less")), "f32", (2,), kept=Kept.DIGEST), b"12345678")
    return Run.open(tmp_path / "in.run")


@pytest.mark.parametrize("format", ["npz", "safetensors", "npy"])
def test_values_come_back_under_the_text_of_their_keys(run, tmp_path, format):
    save_dump(run, tmp_path / "out", format)
    again = open_dump(tmp_path / "out")
    kept = {str(t.key): run.values(t) for t in run.tensors if t.kept is Kept.VALUES}
    found = {t.key.op.op: again.values(t) for t in again.tensors}
    assert found.keys() == kept.keys()
    for name, values in kept.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)
    assert "g/conv#1@step=1" in found


def test_numpy_and_safetensors_read_what_is_written(run, tmp_path):
    save_dump(run, tmp_path / "a.npz", "npz")
    save_dump(run, tmp_path / "a.safetensors", "safetensors")
    first = TensorKey(OpKey("conv", graph="g"), part=Part(step=0))
    expected = run.values(run.tensor(first))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["g/conv@step=0"], expected)
    np.testing.assert_array_equal(load_file(tmp_path / "a.safetensors")["g/conv@step=0"], expected)


def test_members_of_our_npz_are_aligned_so_that_they_are_mapped(run, tmp_path):
    save_dump(run, tmp_path / "a.npz", "npz")
    assert all(t.offset % 64 == 0 for t in open_dump(tmp_path / "a.npz").tensors)


def test_a_run_copied_as_a_run_loses_nothing(run, tmp_path):
    save_dump(run, tmp_path / "copy.run", "run")
    copy = Run.open(tmp_path / "copy.run")
    assert copy.digest() == run.digest()
    assert list(copy.ops) == list(run.ops)
    assert copy.source_text(__file__) == run.source_text(__file__) is not None


def test_an_unfinished_run_copied_stays_marked_as_such(tmp_path):
    writer = RunWriter(tmp_path / "in.run")
    writer.tensor(Tensor(TensorKey(OpKey("a")), "u8", (3,)), b"abc")
    writer.flush()
    save_dump(Run.open(tmp_path / "in.run"), tmp_path / "copy.run", "run")
    copy = Run.open(tmp_path / "copy.run")
    assert not copy.info.complete
    assert copy.values(copy.tensors[0]).tobytes() == b"abc"
    writer.abort("")


@pytest.mark.parametrize(
    ("dtype", "format", "cure"),
    [
        (ml_dtypes.bfloat16, "npz", "safetensors"),
        (ml_dtypes.float8_e5m2, "npy", "safetensors"),
        (ml_dtypes.int4, "npz", "keep it as a run"),
        (ml_dtypes.int4, "safetensors", "keep it as a run"),
        (np.complex128, "safetensors", "npz"),
    ],
)
def test_what_a_format_cannot_hold_names_the_cure_and_writes_nothing(tmp_path, dtype, format, cure):
    with RunWriter(tmp_path / "in.run") as writer:
        Recorder(writer).tensor(OpKey("a"), np.ones(3, dtype))
    with pytest.raises(Unsupported, match=cure):
        save_dump(Run.open(tmp_path / "in.run"), tmp_path / "out", format)
    assert not (tmp_path / "out").exists()


def test_names_that_would_leave_the_folder_are_escaped(tmp_path):
    names = ["../../evil", "/etc/passwd", "a/../b", "..", ".", "", "a//b", "a.npy/b", "a", "c:\\d",
             "%2E%2E/evil", "x" * 3000, "x" * 3001, "nul\0"]  # fmt: skip
    with RunWriter(tmp_path / "in.run") as writer:
        for i, name in enumerate(names):
            writer.tensor(Tensor(TensorKey(OpKey(name)), "u8", (1,)), bytes([i]))
    save_dump(Run.open(tmp_path / "in.run"), tmp_path / "deep" / "out", "npy")
    outside = [
        p for p in tmp_path.rglob("*.npy") if not p.is_relative_to(tmp_path / "deep" / "out")
    ]
    assert outside == []
    found = open_dump(tmp_path / "deep" / "out")
    assert sorted(found.values(t).item() for t in found.tensors) == list(range(len(names)))
    assert len({escape_path(name) for name in names}) == len(names)


def test_an_existing_path_or_a_run_without_values_is_an_input_error(run, tmp_path):
    with pytest.raises(InputError, match="already exists"):
        save_dump(run, tmp_path / "in.run", "npz")
    with pytest.raises(InputError, match="no dump format 'pickle'"):
        save_dump(run, tmp_path / "out", "pickle")
    with RunWriter(tmp_path / "none.run"):
        pass
    with pytest.raises(InputError, match="recorded values"):
        save_dump(Run.open(tmp_path / "none.run"), tmp_path / "out", "npz")


@pytest.mark.parametrize("format", ["npz", "safetensors", "run"])
def test_a_value_that_cannot_be_read_stops_the_conversion_without_a_half_file(
    run, tmp_path, format
):
    (tmp_path / "in.run" / "tensors-00000.safetensors").unlink()
    with pytest.raises(FormatError):
        save_dump(run, tmp_path / "out", format)
    if format != "run":
        assert [p.name for p in tmp_path.iterdir()] == ["in.run"]
