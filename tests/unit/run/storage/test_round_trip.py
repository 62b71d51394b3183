"""What is recorded is what is read back, bit for bit, whatever its type and shape."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from syncpoint.errors import InputError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import (
    Edge,
    Frame,
    Kept,
    Observer,
    Op,
    OpKey,
    Part,
    Quantization,
    Role,
    RunInfo,
    Statistics,
    Tensor,
    TensorKey,
)
from syncpoint.run.reader import Run, in_memory
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.shards import ShardWriter
from syncpoint.run.storage.writer import RunWriter


def random_array(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Any bits: NaN payloads and negative zeros must survive too."""
    kind = DTYPES[dtype]
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if kind.packed:
        return rng.integers(0, 16, count, dtype=np.uint8).view(kind.numpy).reshape(shape)
    raw = rng.integers(0, 256, count * kind.numpy.itemsize, dtype=np.uint8)
    return raw.view(kind.numpy).reshape(shape)


shapes = st.lists(st.integers(0, 7), max_size=4).map(tuple)
arrays = st.tuples(st.sampled_from(sorted(DTYPES)), shapes, st.integers(0, 2**32 - 1))


@settings(max_examples=25, deadline=None)
@given(st.lists(arrays, max_size=8))
def test_every_dtype_and_shape_reads_back_bit_equal(tmp_path_factory, chosen):
    path = tmp_path_factory.mktemp("round") / "a.run"
    recorded = []
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        for dtype, shape, seed in chosen:
            array = random_array(dtype, shape, seed)
            key = recorder.tensor(recorder.op(Op(OpKey("op"), "T")), array)
            recorded.append((key, dtype, array))
    run = Run.open(path)
    assert run.info.complete
    assert len(run.tensors) == len(recorded)
    for key, dtype, array in recorded:
        tensor = run.tensor(key)
        values = run.values(tensor)
        assert (tensor.dtype, tensor.shape) == (dtype, array.shape)
        assert values.dtype == array.dtype
        assert values.shape == array.shape
        assert values.tobytes() == array.tobytes()
        assert not values.flags.writeable
        for start in range(min(4, array.size + 1)):
            window = run.window(tensor, start, array.size)
            assert window.tobytes() == array.reshape(-1)[start:].tobytes()


def test_large_tensors_are_mapped_and_windows_map_only_their_range(tmp_path):
    array = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    with RunWriter(tmp_path / "a.run") as writer:
        recorder = Recorder(writer)
        key = recorder.tensor(recorder.op(Op(OpKey("op"), "T")), array)
    run = Run.open(tmp_path / "a.run")
    tensor = run.tensor(key)
    np.testing.assert_array_equal(run.values(tensor), array)
    assert run.values(tensor).ctypes.data % 64 == 0
    np.testing.assert_array_equal(run.window(tensor, 99_999, 500_001), np.arange(99_999, 500_001))


def mapped_bytes(path) -> int:
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        if str(path) in line:
            low, high = line.split()[0].split("-")
            total += int(high, 16) - int(low, 16)
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_mapping_is_no_larger_than_its_window_and_goes_with_its_array(tmp_path):
    path = tmp_path / "a.run"
    with RunWriter(path) as writer:
        writer.tensor(Tensor(TensorKey(OpKey("op")), "f32", (1 << 20,)), bytes(4 << 20))
    run = Run.open(path)
    window = run.window(run.tensors[0], 100_000, 200_000)
    assert 400_000 <= mapped_bytes(path) <= 400_000 + 3 * 4096
    del window
    assert mapped_bytes(path) == 0


def full_tensor() -> Tensor:
    return Tensor(
        TensorKey(OpKey("op", 2, "g", "body", 3), Role.STATE, 4, Part(1, 2, 3)),
        "i8",
        (2, 3),
        kept=Kept.STATISTICS,
        strides=(1, 2),
        layout="NC",
        device="cpu",
        alias_of="other",
        quantization=Quantization((0.5, 0.1), (1, -2), axis=0, block=2, table=(1.0, 2.0)),
        requires_grad=True,
        address=2**64 - 1,
        statistics=Statistics(
            count=6, min=-1.0, max=float("inf"), mean=0.5, std=0.1, l2=2.0, nan=1, inf=2, zero=3
        ),
        digest="abc",
        digest_kind="crc-32",
        name='out["x"]',
    )


FULL_OP = Op(
    OpKey("op", 2, "g", "body", 3),
    "aten.add",
    (Edge(OpKey("a"), 1, Role.PARAMETER), Edge(OpKey("b"))),
    attributes={"alpha": 1.5, "fill": float("-inf"), "list": [1, "x", None]},
    module="layers.0",
    module_type="Linear",
    source=(Frame("/a.py", 3, "forward"), Frame("/b.py", 7)),
    origins=("x", "y"),
    random=True,
)
INFO = RunInfo(
    model="m.py:net",
    runtime="torch",
    runtime_version="2.9",
    options={"threads": 2},
    device="cpu",
    precision="f32",
    fusion="unfused",
    record=Kept.STATISTICS,
    observer=Observer(False, "output 0 differs"),
    environment={"os": "linux"},
    notes=("a note",),
)


@pytest.mark.parametrize("finished", [True, False])
def test_every_field_survives_tables_and_journal(tmp_path, finished):
    writer = RunWriter(tmp_path / "a.run", INFO)
    writer.op(FULL_OP)
    writer.op(Op(OpKey("plain"), "T"))
    writer.tensor(full_tensor())
    writer.flush()
    if finished:
        writer.finish()
    run = Run.open(tmp_path / "a.run")
    assert list(run.ops) == [FULL_OP, Op(OpKey("plain"), "T")]
    assert list(run.tensors) == [full_tensor()]
    assert run.op(FULL_OP.key) == FULL_OP
    assert run.op(OpKey("none")) is None
    assert run.tensor(TensorKey(OpKey("none"))) is None
    assert run.info.complete is finished
    assert (run.info.observer, run.info.options, run.info.notes) == (
        INFO.observer,
        INFO.options,
        INFO.notes,
    )


def test_attributes_of_numpy_become_numbers_and_odd_ones_text(tmp_path):
    odd = {
        "n": np.int64(3),
        "a": np.array([1.5, 2.0]),
        "t": (1, 2),
        "d": np.dtype("f4"),
        "s": {2, 1},
    }
    with RunWriter(tmp_path / "a.run") as writer:
        writer.op(Op(OpKey("op"), "T", attributes=odd))
    found = Run.open(tmp_path / "a.run").ops[0].attributes
    assert found == {"n": 3, "a": [1.5, 2.0], "t": [1, 2], "d": "float32", "s": [1, 2]}


def test_an_empty_run_opens(tmp_path):
    with RunWriter(tmp_path / "a.run"):
        pass
    run = Run.open(tmp_path / "a.run")
    assert (list(run.ops), list(run.tensors)) == ([], [])


def test_names_that_are_not_valid_unicode_do_not_lose_the_run(tmp_path):
    with RunWriter(tmp_path / "a.run") as writer:
        writer.op(Op(OpKey("op"), "T", source=(Frame("/bad\udcff.py", 1),)))
    assert Run.open(tmp_path / "a.run").ops[0].source[0].file == "/bad\\udcff.py"


def test_equal_content_is_stored_once_and_types_keep_apart(tmp_path):
    path = tmp_path / "a.run"
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        for dtype in (np.float32, np.int32, np.float32):
            recorder.tensor(recorder.op(Op(OpKey("op"), "T")), np.zeros(100, dtype))
    first, second, third = Run.open(path).tensors
    assert (first.shard, first.offset) == (third.shard, third.offset)
    assert second.offset != first.offset
    assert first.digest == second.digest
    assert first.digest_kind == "xxh3-128"


def test_the_safetensors_library_reads_our_shards(tmp_path):
    path = tmp_path / "a.run"
    rng = np.random.default_rng(0)
    expected = {}
    names = ["a", "__metadata__", "~pad.0", "ünï/code", "x" * 2000]
    with RunWriter(path) as writer:
        recorder = Recorder(writer)
        for i, name in enumerate(names):
            array = rng.standard_normal((i, 3)).astype(np.float32)
            expected[name] = array
            recorder.tensor(recorder.op(Op(OpKey(name), "T")), array)
        recorder.tensor(OpKey("i4"), np.array([1, 2, 3], ml_dtypes.int4))
        recorder.tensor(OpKey("c128"), np.array([1 + 2j]))
        recorder.tensor(OpKey("scalar"), np.array(7, np.int64))
    found = load_file(path / "tensors-00000.safetensors")
    np.testing.assert_array_equal(found["~~pad.0"], expected["~pad.0"])
    np.testing.assert_array_equal(found["__metadata__~2"], expected["__metadata__"])
    np.testing.assert_array_equal(found["x" * 512], expected["x" * 2000])
    assert found["scalar"] == 7
    assert found["i4"].tolist() == [0x21, 0x03]
    assert found["c128"].view(np.complex128).tolist() == [1 + 2j]
    with safetensors.safe_open(path / "tensors-00000.safetensors", "np") as shard:
        assert all(name in shard.keys() for name in ("ünï/code", "c128"))  # noqa: SIM118


def test_tensors_begin_at_multiples_of_64_bytes_without_holes(tmp_path):
    with RunWriter(tmp_path / "a.run") as writer:
        for i in range(1, 50):
            data = np.full(i, i, np.uint8)
            writer.tensor(Tensor(TensorKey(OpKey(f"t{i}")), "u8", (i,)), data)
    run = Run.open(tmp_path / "a.run")
    assert all(t.offset % 64 == 0 for t in run.tensors)
    raw = (tmp_path / "a.run" / "tensors-00000.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__")
    places = sorted(entry["data_offsets"] for entry in header.values())
    assert all(a[1] == b[0] for a, b in pairwise(places))


def test_many_small_tensors_grow_the_header_and_all_shards_are_valid(tmp_path):
    path = tmp_path / "a.run"
    with RunWriter(path) as writer:
        for i in range(3000):
            data = np.full(4, i, np.int32)
            writer.tensor(Tensor(TensorKey(OpKey(f"some.long.module.path.{i}")), "i32", (4,)), data)
    shards = sorted(path.glob("tensors-*.safetensors"))
    assert len(shards) >= 2
    assert sum(len([k for k in load_file(s) if not k.startswith("~pad")]) for s in shards) == 3000
    lengths = [int.from_bytes(s.read_bytes()[:8], "little") + 8 for s in shards]
    assert lengths[:2] == [64 << 10, 256 << 10]
    run = Run.open(path)
    assert all(run.values(t)[0] == i for i, t in enumerate(run.tensors))


def test_a_full_shard_is_followed_by_another_with_an_equal_reserve(tmp_path):
    shards = ShardWriter(tmp_path, shard_bytes=200_000)
    places = [
        shards.add(f"t{i}", DTYPES["u8"], (50_000,), np.full(50_000, i, np.uint8)) for i in range(7)
    ]
    shards.close()
    assert len({file for file, _ in places}) == len(shards.closed) > 1
    for i, (file, offset) in enumerate(places):
        data = (tmp_path / file).read_bytes()
        assert int.from_bytes(data[:8], "little") + 8 == 64 << 10
        assert data[offset : offset + 50_000] == bytes([i]) * 50_000


def test_the_digest_of_a_run_identifies_its_content(tmp_path):
    def digest(name: str, value: float) -> str:
        with RunWriter(tmp_path / name) as writer:
            recorder = Recorder(writer)
            recorder.tensor(recorder.op(Op(OpKey("op"), "T")), np.array([value]))
        return Run.open(tmp_path / name).digest()

    assert digest("a.run", 1.0) == digest("b.run", 1.0) != digest("c.run", 2.0)


def test_runs_live_in_memory_too():
    tensor = Tensor(TensorKey(OpKey("op")), "f32", (2, 2))
    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    run = in_memory(RunInfo(), [Op(OpKey("op"), "T")], [(tensor, values)])
    np.testing.assert_array_equal(run.values(tensor), values)
    assert run.window(tensor, 1, 3).tolist() == [1, 2]
    assert values.flags.writeable
    assert run.digest() == run.digest() != ""


def test_values_that_were_not_kept_and_windows_outside_are_input_errors(tmp_path):
    with RunWriter(tmp_path / "a.run") as writer:
        writer.tensor(full_tensor())
        writer.tensor(Tensor(TensorKey(OpKey("v")), "u8", (3,)), b"abc")
    run = Run.open(tmp_path / "a.run")
    with pytest.raises(InputError, match="only its statistics"):
        run.values(run.tensors[0])
    with pytest.raises(InputError, match=r"window .* is outside of .* 3 elements"):
        run.window(run.tensors[1], 2, 4)


def test_importing_the_run_does_not_import_polars():
    code = (
        "import sys, syncpoint.run.reader, syncpoint.run.recorder, syncpoint.dumps.registry;"
        "sys.exit('polars' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
