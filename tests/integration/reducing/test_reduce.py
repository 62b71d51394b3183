"""Runs and dumps made small: what is kept is true, what is deleted was verified."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

import syncpoint as sp
from helpers.commands import SYNCPOINT, syncpoint
from helpers.device_dump_files import dump, input_, output
from helpers.msprobe_dumps import REAL
from helpers.paths import ASCEND_DATA, DATA, ROOT
from helpers.statistics_oracle import figures
from helpers.torchair_dumps import Dumps
from syncpoint.errors import FormatError, InputError, Unsupported
from syncpoint.reducing import folder_watch, sources
from syncpoint.run.model import Edge, Kept, Op, OpKey, Part, Role, RunInfo
from syncpoint.run.reader import Run
from syncpoint.run.recorder import Recorder
from syncpoint.run.storage.shards import ShardWriter
from syncpoint.run.storage.writer import RunWriter

TORCHAIR = ASCEND_DATA / "torchair"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(folder_watch, "INTERVAL", 0.02)


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setitem(ShardWriter.__init__.__kwdefaults__, "shard_bytes", 200 << 10)


def recorded(path, record="values", steps=2, before_step=None, finish=True):
    """A run with inputs, a weight, edges, sources, parts and every kind of element."""
    rng = np.random.default_rng(0)
    writer = RunWriter(path, RunInfo(model="made by hand", runtime="by hand", device="cpu"))
    whole = Recorder(writer, record=Kept(record))
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    whole.tensor(OpKey("w"), weight, role=Role.PARAMETER)
    for step in range(steps):
        if before_step is not None:
            before_step(step)
        part = whole.for_part(Part(step=step))
        given = rng.standard_normal((32, 64)).astype(np.float32)
        part.tensor(OpKey("x"), given, role=Role.MODEL_INPUT, name="x")
        edges = (Edge(OpKey("x"), 0, Role.MODEL_INPUT), Edge(OpKey("w"), 0, Role.PARAMETER))
        key = part.op(
            Op(
                OpKey("mm"),
                "aten.mm",
                edges,
                attributes={"a": 1},
                module="net.0",
                module_type="Linear",
            )
        )
        out = given @ weight
        out[0, :3] = (np.nan, np.inf, -np.inf)
        part.tensor(key, out, layout="NC")
        for number, dtype in enumerate((np.float16, ml_dtypes.bfloat16, np.int64, np.complex64)):
            key = part.op(Op(OpKey("as"), "to", (Edge(OpKey("mm")),)))
            with np.errstate(all="ignore"):
                part.tensor(key, np.nan_to_num(out).astype(dtype), index=number)
        # What the next step is given is what this one gave, and is stored once.
        again = rng.standard_normal((200, 200)).astype(np.float32)
        part.tensor(part.op(Op(OpKey("big"), "big")), again)
        part.tensor(part.op(Op(OpKey("empty"), "empty")), np.empty((0, 3), np.float32))
        whole.flush()
    if finish:
        writer.finish()
    return writer


def alike(found: Run, expected: Run):
    """Ops and tensors of two runs; figures up to rounding, all else to the bit."""
    assert list(found.ops) == list(expected.ops)
    assert [t.key for t in found.tensors] == [t.key for t in expected.tensors]
    for mine, theirs in zip(found.tensors, expected.tensors, strict=True):
        if not mine.count:
            continue
        for name in ("dtype", "shape", "kept", "layout", "name", "digest", "digest_kind"):
            assert getattr(mine, name) == getattr(theirs, name), (mine.key, name)
        if theirs.kept is Kept.VALUES:
            assert found.values(mine).tobytes() == expected.values(theirs).tobytes()
        if theirs.statistics is not None:
            for name, value in vars(theirs.statistics).items():
                got = getattr(mine.statistics, name)
                assert got == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True)


# Runs.


@pytest.mark.parametrize("to", ["statistics", "digest"])
@pytest.mark.parametrize("delete", [False, True])
def test_a_reduced_run_is_what_a_capture_with_that_record_gives(to, delete, small_shards, tmp_path):
    recorded(tmp_path / "a.run")
    recorded(tmp_path / "b.run", record=to)
    shards = list((tmp_path / "a.run").glob("*.safetensors"))
    done = sp.reduce(tmp_path / "a.run", to, delete=delete)
    assert done.out == tmp_path / f"a.{to}.run" and done.exit_code() == 0
    found = sp.open_run(done.out)
    assert found.info.record == to and found.info.complete and found.info.device == "cpu"
    alike(found, sp.open_run(tmp_path / "b.run"))
    assert len(shards) > 2 and all(s.exists() is not delete for s in shards)
    assert done.deleted == (len(shards) if delete else 0)
    # Once more changes nothing, whether the shards are there or not.
    again = sp.reduce(tmp_path / "a.run", to, delete=delete)
    assert (again.tensors, again.before) == (done.tensors, done.before)
    alike(sp.open_run(done.out), sp.open_run(tmp_path / "b.run"))


def test_sources_that_a_run_keeps_are_kept(tmp_path):
    shutil.copytree(DATA / "example.run", tmp_path / "example.run")
    whole = sp.open_run(tmp_path / "example.run")
    run = sp.open_run(sp.reduce(tmp_path / "example.run", "statistics", delete=True).out)
    assert list(run.ops) == list(whole.ops)
    files = {frame.file for op in whole.ops for frame in op.source}
    assert all(run.source_text(file) == whole.source_text(file) for file in files)


def test_a_run_that_is_being_written_is_reduced_until_it_is_complete(small_shards, tmp_path):
    path, out = tmp_path / "live.run", tmp_path / "small.run"
    seen = []
    turn = threading.Event()

    def before_step(step):
        if step:
            turn.wait(10)
            turn.clear()
            seen.append(len(list(path.glob("*.safetensors"))))

    def progress(text):
        turn.set()

    def write():
        time.sleep(0.1)
        recorded(path, steps=4, before_step=before_step)

    writer = threading.Thread(target=write)
    writer.start()
    done = sp.reduce(path, "statistics", out, watch=True, delete=True, progress=progress)
    writer.join()
    # Equal content is stored once, so a shard stays as long as a later tensor may lie in it.
    assert seen and seen == sorted(seen) and seen[0] > 0
    assert not list(path.glob("*.safetensors")) and done.exit_code() == 0
    recorded(tmp_path / "other.run", record="statistics", steps=4)
    alike(sp.open_run(out), sp.open_run(tmp_path / "other.run"))


def test_a_run_whose_writer_died_is_reduced_as_far_as_it_goes(small_shards, tmp_path):
    path = tmp_path / "dead.run"
    child = os.fork()
    if child == 0:
        recorded(path, finish=False)
        os._exit(0)
    os.waitpid(child, 0)
    dead = sp.open_run(path)
    assert list(path.glob("*.partial")) and not dead.info.complete
    done = sp.reduce(path, "statistics", delete=True, watch=True)
    run = sp.open_run(done.out)
    assert not run.info.complete and "its writer died" in run.info.missing
    assert [t.key for t in run.tensors] == [t.key for t in dead.tensors]
    assert list(path.glob("*.partial")), "only whole shards are removed"
    recorded(tmp_path / "other.run", record="statistics")
    alike(run, sp.open_run(tmp_path / "other.run"))


def test_a_shard_with_other_bytes_than_were_recorded_is_left(small_shards, tmp_path):
    path = tmp_path / "a.run"
    recorded(path)
    run = sp.open_run(path)
    tensor = next(t for t in run.tensors if t.key.op.op == "big")
    with (path / tensor.shard).open("r+b") as file:
        file.seek(tensor.offset + 100)
        file.write(b"\x01")
    done = sp.reduce(path, "statistics", delete=True)
    assert (
        list(done.left) == [tensor.shard]
        and "do not match their checksum" in done.left[tensor.shard]
    )
    assert (path / tensor.shard).exists() and done.exit_code() == 2
    small = sp.open_run(done.out)
    assert not small.info.complete and tensor.shard in small.info.missing
    assert small.tensor(tensor.key) is None


# Dumps.


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize(
    "source",
    [
        "torchair/msprobe_ge_dump",
        "torchair/msprobe_fx_dump",
        "torchair_rank/msprobe_ge_dump",
        "torchair_rank/msprobe_fx_dump",
        "offline_fusion_off/open",
        "offline_batch/20240101010101",
        "offline_mixed/golden",
        "pytorch_dump/tensor_target",
        "pytorch_dump/tensor_target/step0/proc0/dump.json",
    ],
)
def test_a_reduced_dump_has_the_ops_and_the_figures_of_the_whole_one(source, delete, tmp_path):
    top = source.split("/")[0]
    shutil.copytree(ASCEND_DATA / top, tmp_path / top)
    path = tmp_path / source
    whole = sp.open_run(ASCEND_DATA / source)
    expected = {t.key: (t, np.array(whole.values(t))) for t in whole.tensors}
    done = sp.reduce(path, "statistics", tmp_path / "small.run", delete=delete)
    assert done.exit_code() == 0 and done.tensors == len(expected)
    run = sp.open_run(done.out)
    assert list(run.ops) == list(whole.ops)
    assert run.info.options == whole.info.options and run.info.model == whole.info.model
    for tensor in run.tensors:
        like, values = expected.pop(tensor.key)
        assert (tensor.dtype, tensor.shape, tensor.layout) == (like.dtype, like.shape, like.layout)
        if values.size:
            for name, value in figures(values).items():
                found = getattr(tensor.statistics, name)
                assert found == pytest.approx(value, rel=1e-9, abs=1e-9, nan_ok=True), name
    assert not expected
    kept = {p.suffix for p in path.rglob("*") if p.is_file()} if path.is_dir() else set()
    assert not delete or kept <= {".json", ".txt", ".csv"}


@pytest.mark.parametrize("name", ["a.npz", "a.safetensors", "a.npy"])
def test_a_file_that_is_a_dump_is_deleted_after_its_run_is_there(name, tmp_path):
    rng = np.random.default_rng(1)
    values = {"p": rng.standard_normal((64, 64)), "q": rng.integers(0, 9, 700)}
    if name.endswith(".npy"):
        np.save(tmp_path / name, values["p"])
    elif name.endswith(".npz"):
        np.savez_compressed(tmp_path / name, **values)
    else:
        from safetensors.numpy import save_file

        save_file(values, tmp_path / name)
    done = sp.reduce(tmp_path / name, "statistics", delete=True)
    assert not (tmp_path / name).exists() and done.deleted == 1
    run = sp.open_run(tmp_path / "a.statistics.run")
    for tensor in run.tensors:
        key = "p" if name.endswith(".npy") else tensor.key.op.op
        assert tensor.statistics.mean == pytest.approx(values[key].mean())


def test_a_file_that_is_gone_by_now_is_still_counted(tmp_path):
    np.savez(tmp_path / "a.npz", p=np.ones(3), q=np.zeros(2))
    first = sp.reduce(tmp_path / "a.npz", "digest", delete=True)
    again = sp.reduce(tmp_path / "a.npz", "digest", delete=True)
    assert str(again) == str(first) and again.tensors == 2


def test_a_large_tensor_is_read_window_by_window_to_the_same_figures(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    values = (rng.standard_normal(5_000_001) * 1e3 + 1e5).astype(np.float32)
    values[::100_003] = np.nan
    (tmp_path / "dump").mkdir()
    np.save(tmp_path / "dump" / "x.npy", values)
    np.save(tmp_path / "dump" / "y.npy", np.asfortranarray(values.reshape(3, -1).T))
    run = sp.open_run(sp.reduce(tmp_path / "dump", "statistics").out)
    for tensor in run.tensors:
        for name, value in figures(values).items():
            assert getattr(tensor.statistics, name) == pytest.approx(value, rel=1e-11), name


def test_intermediates_of_core_ai_keep_their_types_and_inputs(tmp_path):
    recorded(tmp_path / "a.run", steps=1)
    run = sp.open_run(tmp_path / "a.run")
    from syncpoint.dumps.save_dump import save_dump

    dumped = tmp_path / "a.aimodelintermediates"
    save_dump(run, dumped, "aimodelintermediates")
    done = sp.reduce(dumped, "statistics", delete=True)
    small = sp.open_run(done.out)
    assert "not deleted" in str(done) and sp.open_run(dumped).tensors
    for tensor in small.tensors:
        if tensor.count:
            like = run.tensor(tensor.key)
            assert (tensor.dtype, tensor.digest) == (like.dtype, like.digest)
            assert (tensor.kept is Kept.VALUES) == (tensor.key.role is Role.MODEL_INPUT)


# Dumps of msProbe, whose index comes later than the files it names.


def test_a_tensor_that_the_index_does_not_name_is_not_deleted(tmp_path):
    shutil.copytree(REAL / "tensor_target", tmp_path / "dump")
    index = next((tmp_path / "dump").rglob("dump.json"))
    whole = index.read_text()
    body = json.loads(whole)
    late = next(n for n in body["data"] if n.endswith("softmax.0.forward"))
    names = json.dumps(body["data"].pop(late))
    index.write_text(json.dumps(body))
    done = sp.reduce(tmp_path / "dump", "statistics", delete=True)
    left = sorted(p.name for p in (tmp_path / "dump").rglob("*.pt"))
    assert left and all(name in names for name in left)
    assert done.exit_code() == 2 and all("no index names it" in w for w in done.left.values())
    assert "dump.json does not name it" in str(done)
    # The writer comes on, and with it the names; half an index is none.
    index.write_text(whole[: len(whole) // 2])
    half = sp.reduce(tmp_path / "dump", "statistics", delete=True)
    run = sp.open_run(half.out)
    # What was kept of deleted files is there all the same, under the names of the files.
    assert half.deleted == len(run.tensors) == done.tensors and not run.info.complete
    assert "cannot be read" in run.info.missing and "known by name alone" in str(half)
    assert sorted(p.name for p in (tmp_path / "dump").rglob("*.pt")) == left
    index.write_text(whole)
    done = sp.reduce(tmp_path / "dump", "statistics", delete=True)
    assert done.exit_code() == 0 and not list((tmp_path / "dump").rglob("*.pt"))
    expected = sp.open_run(REAL / "tensor_target")
    assert [t.key for t in sp.open_run(done.out).tensors] == [t.key for t in expected.tensors]


def test_transposed_tensors_of_torch_are_hashed_in_the_order_of_their_elements(tmp_path):
    folder = tmp_path / "dump" / "dump_tensor_data"
    folder.mkdir(parents=True)
    value = torch.arange(12.0).reshape(3, 4).t()
    torch.save(value, folder / "Torch.t.0.forward.output.0.pt")
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 3], "Max": 11.0}
    leaf |= {"requires_grad": False, "data_name": "Torch.t.0.forward.output.0.pt"}
    data = {"Torch.t.0.forward": {"input_args": [], "input_kwargs": {}, "output": [leaf]}}
    body = {"task": "tensor", "level": "L1", "dump_data_dir": None, "data": data}
    (tmp_path / "dump" / "dump.json").write_text(json.dumps(body))
    run = sp.open_run(sp.reduce(tmp_path / "dump", "digest").out)
    import xxhash

    dense = value.contiguous().numpy().tobytes()
    assert run.tensors[0].digest == xxhash.xxh3_128_hexdigest(dense)


# What must not be taken, or not be deleted.


def arrays(folder, count=3):
    folder.mkdir(parents=True)
    for number in range(count):
        np.save(folder / f"l{number}.npy", np.full((50, 50), number + 1.0, np.float32))
    return folder


def test_nothing_is_deleted_unless_that_is_asked_for(tmp_path):
    arrays(tmp_path / "dump")
    before = {p: p.read_bytes() for p in (tmp_path / "dump").iterdir()}
    sp.reduce(tmp_path / "dump", "statistics")
    sp.reduce(tmp_path / "dump", "digest", watch=True, until_idle=0.05)
    sp.reduce(tmp_path / "dump", "min-max", tmp_path / "ends")
    assert {p: p.read_bytes() for p in (tmp_path / "dump").iterdir()} == before


def test_a_file_that_changed_since_it_was_read_is_read_anew(tmp_path):
    folder = arrays(tmp_path / "dump")
    sp.reduce(folder, "statistics")
    np.save(folder / "l1.npy", np.full((50, 50), 7.0, np.float32))
    run = sp.open_run(sp.reduce(folder, "statistics", delete=True).out)
    assert {t.key.op.op: t.statistics.max for t in run.tensors} == {"l0": 1, "l1": 7, "l2": 3}


def test_a_second_reading_that_finds_other_bytes_keeps_the_file(tmp_path):
    folder = arrays(tmp_path / "dump")
    sp.reduce(folder, "statistics")
    path = folder / "l1.npy"
    seen = path.stat()
    with path.open("r+b") as file:  # in place, and with the time that it had
        file.seek(4000)
        file.write(b"\x01\x02")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    done = sp.reduce(folder, "statistics", delete=True)
    assert [p.name for p in folder.iterdir()] == ["l1.npy"]
    assert (
        list(done.left) == ["l1.npy"]
        and "two reads returned different contents" in done.left["l1.npy"]
    )
    assert done.exit_code() == 2


def test_a_folder_that_cannot_be_written_keeps_its_files_and_says_so():
    # Not in `tmp_path`: root may delete anything, and nobody else may look in there.
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        sp.reduce(arrays(Path(place, "first")), "statistics", delete=True)  # imports what it needs
        folder = arrays(Path(place, "dump"))
        folder.chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            done = sp.reduce(folder, "statistics", delete=True)
        finally:
            os.seteuid(user)
            folder.chmod(0o755)
        assert done.deleted == 0 and done.exit_code() == 2 and "could not be deleted" in str(done)
        assert len(list(folder.iterdir())) == len(sp.open_run(done.out).tensors) == 3


def test_a_file_replaced_between_header_and_data_is_not_taken(tmp_path, monkeypatch):
    folder = arrays(tmp_path / "dump", 1)
    real = sources.read_npy_file

    def replacing_it(root, file):
        unit = real(root, file)
        np.save(tmp_path / "new.npy", np.full((50, 50), 8.0, np.float32))
        (tmp_path / "new.npy").replace(folder / file)
        return unit

    monkeypatch.setattr(sources, "read_npy_file", replacing_it)
    with pytest.raises(InputError, match="the file changed while it was being read"):
        sp.reduce(folder, "statistics", delete=True)
    monkeypatch.undo()
    run = sp.open_run(sp.reduce(folder, "statistics", delete=True).out)
    assert run.tensors[0].statistics.max == 8


def test_a_dump_is_recognised_by_more_than_the_name_of_its_first_file(tmp_path):
    folder = tmp_path / "golden"
    folder.mkdir()
    first = folder / "conv.0.1700000000000001.npy"
    first.touch()

    def write():
        time.sleep(0.3)
        np.save(first, np.ones(4, np.float32))
        np.save(folder / "relu.0.1700000000000002.npy", np.zeros(4, np.float32))

    writer = threading.Thread(target=write)
    writer.start()
    done = sp.reduce(folder, "statistics", watch=True, until_idle=1, delete=True)
    writer.join()
    run = sp.open_run(done.out)
    assert run.info.options["format"] == "ascend-golden"
    assert [op.key.op for op in run.ops] == ["conv", "relu"]


def test_a_file_that_others_renamed_counts_under_its_new_name_only(tmp_path):
    folder = arrays(tmp_path / "dump")
    sp.reduce(folder, "statistics")
    (folder / "l1.npy").rename(folder / "other.npy")
    run = sp.open_run(sp.reduce(folder, "statistics", delete=True).out)
    assert sorted(t.key.op.op for t in run.tensors) == ["l0", "l2", "other"]


def test_links_hidden_and_strange_files_stay(tmp_path):
    folder = arrays(tmp_path / "dump")
    np.save(tmp_path / "mine.npy", np.ones(9))
    (folder / "link.npy").symlink_to(tmp_path / "mine.npy")
    (folder / "out").symlink_to(tmp_path, target_is_directory=True)
    shutil.copy(tmp_path / "mine.npy", folder / ".half.npy")
    (folder / "notes.txt").write_text("mine")
    (folder / "weights.pt").write_bytes(b"mine")
    done = sp.reduce(folder, "statistics", tmp_path / "s.run", delete=True)
    assert done.files == done.deleted == 3 and done.exit_code() == 0
    there = sorted(p.name for p in folder.iterdir())
    assert there == [".half.npy", "link.npy", "notes.txt", "out", "weights.pt"]
    assert (tmp_path / "mine.npy").exists()


def test_damaged_files_and_huge_claims_are_left_and_named(tmp_path):
    folder = tmp_path / "dump" / "1" / "0"
    folder.mkdir(parents=True)
    good = np.arange(6.0, dtype=np.float32)
    time_ = iter(range(1700000000000001, 1700000000000099))

    def write(kind, data):
        (folder / f"{kind}.{kind.lower()}.1.2.{next(time_)}").write_bytes(data)

    write("Good", dump(output((6,), 24), data=good.tobytes()))
    write("Huge", dump(output((1 << 40,), 1 << 42), data=good.tobytes()))
    write("Short", dump(output((6,), 24), data=good.tobytes()[:-1]))
    write("Noise", os.urandom(200))
    write("Empty", b"")
    write("Less", dump(output((6,), 20), data=good.tobytes()[:20]))
    names = sorted(p.name.split(".")[0] for p in folder.iterdir())
    for to in ("statistics", "min-max"):
        out = tmp_path / f"{to}.run"
        done = sp.reduce(tmp_path / "dump", to, out, delete=to == "min-max")
        assert done.tensors == 1 and done.exit_code() == 2
        assert sorted(Path(f).name.split(".")[0] for f in done.left) == [
            "Huge", "Less", "Noise", "Short",
        ]  # fmt: skip
        assert [Path(f).name.split(".")[0] for f in done.passed] == ["Empty"]
        assert all("\n" not in why for why in done.left.values())
    names.remove("Good")
    assert sorted(p.name.split(".")[0] for p in folder.iterdir()) == names


def test_slices_of_an_op_are_left(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    data = dump(output((6,), 24), data=bytes(24))
    for number in range(2):
        (folder / f"Relu.r_lxslice{number}.1.2.170000000000000{number}").write_bytes(data)
    (folder / "Add.a.1.2.1700000000000009").write_bytes(data)
    done = sp.reduce(folder, "statistics", delete=True)
    assert done.files == 1 and len(done.left) == 2 and "a slice of r" in str(done)


def test_names_that_were_too_long_are_known_by_the_mapping(tmp_path):
    shutil.copytree(ASCEND_DATA / "offline_mixed" / "npu", tmp_path / "npu")
    whole = sp.open_run(tmp_path / "npu")
    long = next(t for t in whole.tensors if t.shard == "1234567890")
    done = sp.reduce(tmp_path / "npu", "statistics", delete=True)
    run = sp.open_run(done.out)
    assert run.tensor(long.key).statistics is not None
    assert not (tmp_path / "npu" / "1234567890").exists()
    shutil.copytree(ASCEND_DATA / "offline_mixed" / "npu", tmp_path / "again")
    assert "1 file known by a number only" in str(sp.reduce(tmp_path / "again", "min-max"))
    # Damaged and odd ones of that data set are still there, and said to be.
    assert done.left and all((tmp_path / "npu" / file).exists() for file in done.left)


def test_what_cannot_be_done_is_refused(tmp_path):
    folder = arrays(tmp_path / "dump")
    with pytest.raises(InputError, match="statistics, digest, min-max"):
        sp.reduce(folder, "median")
    with pytest.raises(InputError, match="outside of"):
        sp.reduce(folder, "statistics", folder / "small.run")
    with pytest.raises(InputError, match="no format recognises"):
        (tmp_path / "none").mkdir()
        sp.reduce(tmp_path / "none", "statistics")
    assert not (tmp_path / "none.statistics.run").exists()
    with pytest.raises(InputError, match="--watch"):
        sp.reduce(folder, "statistics", until_idle=3)
    with pytest.raises(InputError, match=r"is neither empty nor written by reduce"):
        sp.reduce(folder, "statistics", tmp_path)
    sp.reduce(folder, "statistics", tmp_path / "s.run")
    with pytest.raises(InputError, match="to statistics"):
        sp.reduce(folder, "digest", tmp_path / "s.run")
    recorded(tmp_path / "a.run", steps=1)
    with pytest.raises(Unsupported, match="--to statistics"):
        sp.reduce(tmp_path / "a.run", "min-max")


# The least and the greatest.


def by_the_script_of_the_manual(folder: Path) -> dict[Path, dict[str, np.ndarray]]:
    """What its `convert` would leave, by file."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix == ".npy":
            data = np.load(path)
            name = path.with_name(f"{path.stem}_min_max.npy")
            found[name] = {"": np.array([data.min(), data.max()])}
        elif path.suffix != ".txt":
            from syncpoint.ascend.dumps.device_folder import DeviceFolder

            run = DeviceFolder().open(path)
            ends = {Role.INPUT: [], Role.OUTPUT: []}
            for tensor in run.tensors:
                data = run.values(tensor)
                ends[tensor.key.role].append([data.min(), data.max()])
            name = path.with_name(f"{path.name}_min_max.npz")
            found[name] = {
                "inputs": np.array(ends[Role.INPUT]),
                "outputs": np.array(ends[Role.OUTPUT]),
            }
    return found


@pytest.mark.parametrize("dumps", ["torchair", "torchair_rank"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_min_max_files_are_those_of_the_manuals_script(dumps, elsewhere, tmp_path):
    for name in ("msprobe_ge_dump", "msprobe_fx_dump"):
        shutil.copytree(ASCEND_DATA / dumps / name, tmp_path / name)
        expected = by_the_script_of_the_manual(tmp_path / name)
        graphs = {p.name for p in (tmp_path / name).rglob("*.txt")}
        out = tmp_path / "small" / name if elsewhere else None
        done = sp.reduce(tmp_path / name, "min-max", out, delete=True)
        assert done.exit_code() == 0 and done.deleted == done.files == len(expected)
        for path, arrays in expected.items():
            if out is not None:
                path = out / path.relative_to(tmp_path / name)
            with np.load(path) if path.suffix == ".npz" else _one(path) as found:
                assert set(found) == set(arrays)
                for key, values in arrays.items():
                    assert found[key].dtype == values.dtype
                    np.testing.assert_array_equal(found[key], values)
        place = out or tmp_path / name
        assert {p.name for p in place.rglob("*.txt")} == graphs
        rest = {p.suffix for p in place.rglob("*") if p.is_file()}
        assert rest <= {".npy", ".npz", ".txt"}


def _one(path):
    from contextlib import nullcontext

    return nullcontext({"": np.load(path)})


@pytest.mark.parametrize("reduced", ["both", "GE", "FX"])
def test_reduced_torchair_dumps_compare_end_to_end(reduced, tmp_path):
    for name in ("msprobe_ge_dump", "msprobe_fx_dump"):
        shutil.copytree(TORCHAIR / name, tmp_path / name)
    whole = sp.compare_torchair(
        tmp_path / "msprobe_ge_dump", tmp_path / "msprobe_fx_dump", out=tmp_path / "whole"
    )
    for kind, name in (("GE", "msprobe_ge_dump"), ("FX", "msprobe_fx_dump")):
        if reduced in (kind, "both"):
            syncpoint("reduce", name, "--to", "min-max", "--delete", cwd=tmp_path, code=0)
    found = syncpoint(
        "compare", "--mode", "torchair", "--target_path", "msprobe_ge_dump",
        "--golden_path", "msprobe_fx_dump", "--output_path", "small", cwd=tmp_path, code=1,
    )  # fmt: skip
    assert "MatMulV2_0" in found.stdout
    rows = next((tmp_path / "small").glob("*.csv")).read_text().splitlines()
    assert len(rows) == len(whole[0].report.read_text().splitlines())
    assert "only the minimum and the maximum" in "".join(rows)


def test_nan_infinities_and_empty_tensors_in_min_max(tmp_path):
    dumps = Dumps(tmp_path)
    odd = np.array([1, np.nan, 3], np.float32)
    ends = np.array([-np.inf, 2, np.inf], np.float16)
    none = np.empty((0, 4), np.float32)
    many = np.array([-(2**62) - 1, 2**62 + 1])
    dumps.device("Add", "Add_1", [odd, ends, none], [many])
    dumps.node("add_1-aten.add.Tensor", [odd, ends, none], [many])
    path = sp.reduce(tmp_path / "ge", "min-max").out
    with np.load(next(path.rglob("*_min_max.npz"))) as found:
        assert found["inputs"].tolist() == [many.tolist()]
        np.testing.assert_array_equal(
            found["outputs"], [[np.nan] * 2, [-np.inf, np.inf], [np.nan] * 2]
        )
    fx = sp.reduce(tmp_path / "fx", "min-max").out
    found = [np.load(p) for p in sorted(fx.rglob("*OUTPUT*_min_max.npy"))]
    np.testing.assert_array_equal(found[0], [np.nan] * 2)
    np.testing.assert_array_equal(found[1], np.array([-np.inf, np.inf], np.float16))
    np.testing.assert_array_equal(found[2], [np.nan] * 2)
    assert np.load(next(fx.rglob("*INPUT*_min_max.npy"))).tolist() == many.tolist()


def test_ends_that_are_not_finite_never_pass(tmp_path):
    dumps = Dumps(tmp_path)
    fine = np.array([1, 2, 3], np.float32)
    odd = np.array([1, np.nan, 3], np.float32)
    up, down = (np.array([1, end, 3], np.float32) for end in (np.inf, -np.inf))
    none = np.empty((0, 3), np.float32)
    pairs = [(fine, fine), (odd, odd), (odd, fine), (fine, odd), (up, up), (up, down), (none, none)]
    for number, (target, golden) in enumerate(pairs):
        dumps.device("Op", f"Op_{number}", [target])
        dumps.node(f"op_{number}-aten.op.default", [golden])
        dumps.op(f"Op_{number}", fx=[f"op_{number}-aten.op.default.OUTPUT.0"])
    dumps.write_graph()
    for side in ("ge", "fx"):
        assert sp.reduce(tmp_path / side, "min-max", delete=True).exit_code() == 0
    verdicts = [row["Verdict"] for row in dumps.lines().values()]
    assert verdicts == ["close", "none", "large", "large", "close", "large", "none"]


def test_bf16_ends_are_kept_as_float32(tmp_path):
    values = np.array([0.1, -2.5, 3.0], ml_dtypes.bfloat16)
    (tmp_path / "ge").mkdir()
    data = dump(input_((3,), 6, 27), output((3,), 6, 27), data=values.tobytes() * 2)
    (tmp_path / "ge" / "Relu.r.1.2.1700000000000001").write_bytes(data)
    sp.reduce(tmp_path / "ge", "min-max")
    with np.load(next((tmp_path / "ge").glob("*.npz"))) as found:
        assert found["outputs"].dtype == np.float32
        assert found["outputs"].tolist() == [[-2.5, 3.0]] == found["inputs"].tolist()


def test_min_max_goes_on_where_it_stopped(tmp_path):
    folder = arrays(tmp_path / "dump")
    sp.reduce(folder, "min-max")
    first = {p.name: p.stat().st_mtime_ns for p in folder.glob("*_min_max.npy")}
    np.save(folder / "l1.npy", np.full((50, 50), 9.0, np.float32))
    done = sp.reduce(folder, "min-max")
    assert done.files == 3
    assert np.load(folder / "l1_min_max.npy").tolist() == [9, 9]
    assert (folder / "l0_min_max.npy").stat().st_mtime_ns == first["l0_min_max.npy"]
    assert sp.reduce(folder, "min-max", delete=True).deleted == 3
    done = sp.reduce(folder, "min-max", delete=True)
    assert done.exit_code() == 0 and "3 reduced files from an earlier call" in str(done)


# The command.


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    page = ROOT / "docs" / "reduce.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    shutil.copytree(REAL / "tensor_target", tmp_path / "npu_dump")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page.name, "exec"), {})
    assert sp.open_run("npu_dump.statistics.run").info.complete


def test_the_command_says_what_it_did_and_what_it_left(tmp_path):
    folder = arrays(tmp_path / "dump")
    (folder / "half.npy").write_bytes((folder / "l0.npy").read_bytes()[:-5])
    found = syncpoint("reduce", "dump", "--to", "statistics", cwd=tmp_path, code=2)
    assert found.stdout.startswith(
        "dump.statistics.run: 3 tensors of 3 files as statistics, 30,384"
    )
    assert (
        "not reduced: 1 file (half.npy: " in found.stderr
        and "it should end at byte 10128" in found.stderr
    )
    found = syncpoint("reduce", "dump/half.npy", "--to", "digest", cwd=tmp_path, code=2)
    assert "no file of" in found.stderr and not found.stdout
    (folder / "half.npy").unlink()
    syncpoint("reduce", "dump", "--to", "statistics", cwd=tmp_path, code=0)
    assert sp.open_run(tmp_path / "dump.statistics.run").info.complete


def test_ctrl_c_leaves_a_run_of_what_is_done(tmp_path):
    folder = arrays(tmp_path / "dump")
    (folder / "half.npy").write_bytes((folder / "l0.npy").read_bytes()[:-5])
    process = subprocess.Popen(
        [*SYNCPOINT, "reduce", "dump", "--to", "statistics", "--watch", "--delete"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "3 files reduced, 3 deleted, 1 not reduced so far" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "3 tensors of 3 files" in out
    assert "interrupted" in said and "Traceback" not in said
    run = sp.open_run(tmp_path / "dump.statistics.run")
    assert len(run.tensors) == 3 and not run.info.complete and "half.npy" in run.info.missing


def test_what_was_recorded_of_files_that_others_deleted_is_kept(tmp_path):
    folder = arrays(tmp_path / "dump")
    sp.reduce(folder, "statistics")
    for name in ("l0.npy", "l1.npy"):
        (folder / name).unlink()
    np.save(folder / "l7.npy", np.full((50, 50), 8.0, np.float32))
    done = sp.reduce(folder, "statistics")
    assert "2 files deleted by another program; their records are kept" in str(done)
    assert done.deleted == 0
    means = {t.key.op.op: t.statistics.mean for t in sp.open_run(done.out).tensors}
    assert means == {"l0": 1, "l1": 2, "l2": 3, "l7": 8}
    for file in folder.iterdir():
        file.unlink()
    assert len(sp.open_run(sp.reduce(folder, "statistics").out).tensors) == 4


def test_a_file_that_happens_to_be_called_like_a_reduced_one_is_left_alone(tmp_path):
    folder = arrays(tmp_path / "dump", 1)
    np.save(folder / "l0_min_max.npy", np.arange(500))
    for delete in (False, True):
        done = sp.reduce(folder, "min-max", delete=delete)
        assert done.exit_code() == 2 and "l0_min_max.npy" in str(done)
        assert (folder / "l0.npy").exists()
        assert np.array_equal(np.load(folder / "l0_min_max.npy"), np.arange(500))


def test_a_copy_that_kept_the_time_of_its_original_is_reduced_again(tmp_path):
    folder = arrays(tmp_path / "dump", 1)
    sp.reduce(folder, "min-max")
    np.save(folder / "l0.npy", np.arange(64.0))
    os.utime(folder / "l0.npy", (1, 1))
    sp.reduce(folder, "min-max")
    assert np.load(folder / "l0_min_max.npy").tolist() == [0, 63]


def test_a_log_damaged_before_its_end_is_not_cut_off(tmp_path):
    """It stands in for files that are deleted; a log that only breaks off is gone on with."""
    source = tmp_path / "dump"
    source.mkdir()
    for name in "abcd":
        np.save(source / f"{name}.npy", np.full(100, ord(name), np.float32))
    sp.reduce(source, out=tmp_path / "small.run", delete=True)
    log = tmp_path / "small.run" / "reduce.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    np.save(source / "e.npy", np.ones(3))
    with pytest.raises(FormatError, match=r"reduce.log is damaged: .* complete frames follow"):
        sp.reduce(source, out=tmp_path / "small.run", delete=True)
    assert log.read_bytes() == data
    assert (source / "e.npy").exists()


def test_a_full_disk_is_one_line(tmp_path):
    arrays(tmp_path / "dump")
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "from syncpoint.cli import main; main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, "reduce", "dump", "--to", "statistics", "--delete"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    assert "another disk with -o" in found.stderr and "Traceback" not in found.stderr
    assert len(list((tmp_path / "dump").glob("*.npy"))) == 3


def test_ends_that_agree_are_not_called_close_without_saying_so(tmp_path):
    """An element in between differs: the least and the greatest value cannot tell."""
    dumps = Dumps(tmp_path)
    whole = np.linspace(0, 1, 100, dtype=np.float32)
    off = whole.copy()
    off[50] = 0.9
    dumps.device("Op", "Op_0", [off])
    dumps.node("op_0-aten.op.default", [whole])
    dumps.op("Op_0", fx=["op_0-aten.op.default.OUTPUT.0"])
    dumps.write_graph()
    for side in ("ge", "fx"):
        sp.reduce(tmp_path / side, "min-max", delete=True)
    found = syncpoint(
        "compare", "--mode", "torchair", "--target_path", "ge", "--golden_path", "fx", "-q",
        cwd=tmp_path, code=0,
    )  # fmt: skip
    assert "close as far as statistics tell" in found.stdout
    assert "by minimum and maximum alone" in found.stdout


@pytest.mark.parametrize("kind", ["npz", "npy", "run", "aimodelintermediates"])
def test_the_environment_beside_a_dump_stays(tmp_path, kind):
    np.savez(tmp_path / "whole.npz", a=np.ones(8, np.float32))
    source = tmp_path / f"dump.{kind}"
    sp.convert(tmp_path / "whole.npz", source, to=kind)
    place = tmp_path / "dump.env.json" if source.is_file() else source / "env.json"
    place.write_text('{"cann": "8.0"}')
    done = sp.reduce(source, "statistics", tmp_path / "small.run", delete=kind == "npy")
    assert sp.open_run(done.out).info.environment["cann"] == "8.0"
