"""Dumps of msProbe for PyTorch as runs: what is in them, where values lie, who reads whom."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from helpers.msprobe_dumps import REAL, TASKS, figures, real, tensor, write
from syncpoint.ascend.msprobe.names import parse_name
from syncpoint.ascend.msprobe.pt_file import locate_tensor
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.registry import find_format
from syncpoint.errors import FormatError
from syncpoint.run.model import Edge, Kept, OpKey, Part, Role, TensorKey


@pytest.mark.parametrize(
    ("name", "kind", "api", "call", "way", "path", "type"),
    [
        ("Functional.linear.3.forward", "Functional", "linear", 3, "forward", "", "linear"),
        ("Tensor.__iadd__.0.backward", "Tensor", "__iadd__", 0, "backward", "", "add.backward"),
        ("Torch._C.x.1.forward", "Torch", "_C.x", 1, "forward", "", "_C.x"),
        ("Module.a.0.b.Fc.forward.2", "Module", "Fc", 2, "forward", "a.0.b", "Module.Fc"),
        ("Module.Net.backward.0", "Module", "Net", 0, "backward", "", "Module.Net.backward"),
        (
            *("Module.a.Linear.parameters_grad.1", "Module", "Linear", 1, "parameters_grad", "a"),
            "Module.Linear.parameters_grad",
        ),
        ("something else", "", "", 0, "", "", ""),
    ],
)  # fmt: skip
def test_names_are_split_in_their_parts(name, kind, api, call, way, path, type):
    found = parse_name(name)
    assert (found.kind, found.api, found.call, found.way, found.path) == (
        kind,
        api,
        call,
        way,
        path,
    )
    assert found.type == type


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("place", ["", "step0", "step0/proc0", "step0/proc0/dump.json"])
def test_a_dump_is_recognised_wherever_one_points_to(task, place):
    path = REAL / f"{task}_target" / place
    assert find_format(path).name == "msprobe"
    run = open_dump(path)
    assert (len(run.ops), len(run.tensors)) == (41, 112)
    assert {t.key.part for t in run.tensors} == {Part()}


def test_ops_stand_in_the_order_of_the_file_with_module_and_line():
    run = open_dump(real("tensor_target"))
    names = list(json.loads((real("tensor_target") / "dump.json").read_text())["data"])
    assert [op.key.op for op in run.ops] == names
    linear = run.op(OpKey("Functional.linear.1.forward"))
    assert (linear.type, linear.module, linear.module_type) == ("linear", "blks.1.fc", "Linear")
    assert str(linear.source[-1]) == "gen/make_pytorch_dump.py:19"
    assert [frame.line for frame in linear.source] == [32, 24, 19]
    norm = run.op(OpKey("Functional.layer_norm.0.forward"))
    assert norm.attributes["arguments"] == {
        "input.1.0": {"type": "int", "value": 16},
        "input.4": {"type": "float", "value": 1e-05},
    }


def test_values_are_those_that_torch_reads():
    torch = pytest.importorskip("torch")
    run = open_dump(REAL / "tensor_target")
    for found in run.tensors:
        path = REAL / "tensor_target" / found.shard
        expected = torch.load(path, weights_only=True).numpy()
        values = run.values(found)
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected)
        assert run.is_intact(found)


def test_roles_names_and_requires_grad_are_kept():
    run = open_dump(real("tensor_target"))
    op = OpKey("Functional.layer_norm.1.forward")
    roles = [(t.key.role, t.key.index, t.name) for t in run.tensors if t.key.op == op]
    assert roles == [
        (Role.INPUT, 0, f"{op}.input.0"),
        (Role.INPUT, 2, f"{op}.input.2"),
        (Role.INPUT, 3, f"{op}.input.3"),
        (Role.OUTPUT, 0, ""),
    ]
    weight = run.tensor(TensorKey(OpKey("blks.1.fc.weight"), Role.PARAMETER))
    assert weight.shape == (16, 16)
    assert weight.requires_grad is True
    gradients = [t for t in run.tensors if "parameters_grad" in t.key.op.op]
    assert {t.key.role for t in gradients} == {Role.OUTPUT}
    assert len(gradients) == 10


def test_each_task_keeps_what_it_has():
    kept = {task: {t.kept for t in open_dump(real(f"{task}_target")).tensors} for task in TASKS}
    assert kept == {
        "tensor": {Kept.VALUES},
        "statistics": {Kept.STATISTICS},
        "md5": {Kept.DIGEST},
    }
    by_task = {task: open_dump(real(f"{task}_reference")).tensors for task in TASKS}
    # The sum that the archive has of a tensor's bytes is the one that the tool makes of them.
    for mine, theirs in zip(by_task["tensor"], by_task["md5"], strict=True):
        assert (mine.digest_kind, mine.digest) == (theirs.digest_kind, theirs.digest)
    found = by_task["statistics"][0].statistics
    assert (found.max, found.min) == (2.1841678619384766, -2.944117784500122)
    assert (found.mean, found.l2) == (0.052483443170785904, 11.312965393066406)
    assert math.isnan(found.std)


def test_figures_that_are_not_finite_are_not_known(tmp_path):
    said = {
        "nan": tensor([4], **figures(math.nan, math.nan, math.nan, math.nan)),
        "up": tensor([4], **figures(math.inf, 1.0, math.inf, math.inf)),
        "text": tensor([4], **figures("inf", "-inf", "nan", "inf")),
        "half": tensor([4], "float16", **figures(60000.0, 1.0, 3.0, math.inf)),
        "bool": tensor([4], "bool", **figures(True, False)),
        "int": tensor([4], "int64", **figures(7, -7)),
        "scalar": tensor([], **figures(-2.0, -2.0, -2.0, -2.0)),
        "empty": tensor([0, 3], **figures(None, None)),
        "bare": tensor([4]),
    }
    entry = {"input_args": list(said.values()), "input_kwargs": {}, "output": []}
    run = open_dump(write(tmp_path / "d", {"Torch.f.0.forward": entry}))
    found = dict(zip(said, (t.statistics for t in run.tensors), strict=True))
    assert (found["nan"].nan, found["nan"].inf) == (-1, 0)
    assert (found["up"].inf, found["up"].min) == (-1, 1.0)
    assert math.isnan(found["up"].max)
    assert math.isnan(found["up"].l2)
    assert found["text"].inf == -1
    assert (found["half"].inf, found["half"].max) == (0, 60000.0)
    assert math.isnan(found["half"].l2)
    assert (found["bool"].max, found["bool"].min) == (1.0, 0.0)
    assert (found["int"].max, found["int"].min) == (7.0, -7.0)
    assert math.isnan(found["int"].mean)
    assert found["scalar"].l2 == 2.0
    assert found["empty"].count == 0
    assert found["bare"] is None


def test_nested_and_named_arguments_keep_their_names(tmp_path):
    entry = {
        "input_args": [[tensor([2]), {"a": tensor([3])}], None, {"type": "slice", "value": [1, 2]}],
        "input_kwargs": {"type": tensor([4]), "mode": {"type": "str", "value": "x"}},
        "output": [tensor([5]), [tensor([6])]],
    }
    run = open_dump(write(tmp_path / "d", {"Torch.f.0.forward": entry}))
    assert run.ops[0].attributes["values"] == [
        *("input.0.0", "input.0.1.a", "input.1", "input.2", "input.type", "input.mode"),
        *("output.0", "output.1.0"),
    ]
    found = [(t.key.role, t.key.index, t.shape) for t in run.tensors]
    assert found == [
        (Role.INPUT, 0, (2,)),
        (Role.INPUT, 1, (3,)),
        (Role.INPUT, 4, (4,)),
        (Role.OUTPUT, 0, (5,)),
        (Role.OUTPUT, 1, (6,)),
    ]


def test_steps_and_ranks_are_parts(tmp_path):
    entry = {"input_args": [tensor([2])], "output": [tensor([2])]}
    late = {"Torch.f.0.forward": entry, "Torch.h.0.forward": entry, "Torch.g.0.forward": entry}
    for step in (0, 10, 2):
        for rank in (0, 1):
            data = late if step == 10 else {n: late[n] for n in late if ".h." not in n}
            write(tmp_path / "t" / f"step{step}" / f"rank{rank}", data)
    run = open_dump(tmp_path / "t")
    assert [op.key.op.split(".")[1] for op in run.ops] == ["f", "h", "g"]
    parts = {t.key.part for t in run.tensors}
    assert parts == {Part(step=s, rank=r) for s in (0, 2, 10) for r in (0, 1)}
    one = open_dump(tmp_path / "t" / "step2")
    assert {t.key.part for t in one.tensors} == {Part(rank=0), Part(rank=1)}


def test_processes_without_ranks_are_numbered(tmp_path):
    entry = {"input_args": [], "output": [tensor([2])]}
    for process in (77, 5):
        write(tmp_path / "t" / "step0" / f"proc{process}", {"Torch.f.0.forward": entry})
    run = open_dump(tmp_path / "t")
    assert {t.key.part for t in run.tensors} == {Part(rank=0), Part(rank=1)}
    assert "numbered in the order of their process ids" in run.info.notes[0]


def test_edges_follow_content_modules_and_passes():
    reads = {}
    for task in TASKS:
        run = open_dump(real(f"{task}_target"))
        reads[task] = {op.key.op: op.inputs for op in run.ops}
    assert reads["tensor"] == reads["md5"]
    # A square gradient has the figures of its transpose, and is made from it all the same.
    assert {n: {e.op for e in edges} for n, edges in reads["tensor"].items()} == {
        n: {e.op for e in edges} for n, edges in reads["statistics"].items()
    }
    found = reads["tensor"]
    weight, bias = (OpKey(f"blks.1.fc.{name}") for name in ("weight", "bias"))
    before = OpKey("Module.blks.0.Blk.forward.0")
    assert found["Functional.linear.1.forward"] == (
        Edge(before),
        Edge(weight, role=Role.PARAMETER),
        Edge(bias, role=Role.PARAMETER),
    )
    assert Edge(OpKey("Functional.linear.1.forward")) in found["Module.blks.1.fc.Linear.forward.0"]
    assert found["Tensor.__add__.1.forward"] == (
        Edge(OpKey("Functional.gelu.1.forward")),
        Edge(before),
    )
    # What it was given is constant: it comes after the backward call before it.
    assert found["Torch.softmax.0.backward"] == (
        Edge(OpKey("Torch.softmax.0.forward")),
        Edge(OpKey("Tensor.sum.0.backward")),
    )
    order = {name: at for at, name in enumerate(found)}
    for name, edges in found.items():
        assert all(order[e.op.op] < order[name] for e in edges if e.role is Role.OUTPUT)


def test_constant_tensors_prove_no_edge(tmp_path):
    ones = tensor([4], **figures(1.0, 1.0, 1.0, 2.0))
    entry = {"input_args": [ones], "output": [ones]}
    run = open_dump(write(tmp_path / "d", {f"Torch.f.{n}.forward": entry for n in range(3)}))
    assert all(op.inputs == () for op in run.ops)


def test_a_folder_of_values_elsewhere_is_looked_for_beside_the_file(tmp_path):
    shutil.copytree(real("tensor_target"), tmp_path / "d")
    path = tmp_path / "d" / "dump.json"
    body = json.loads(path.read_text())
    for elsewhere in ("/home/u/x/dump_tensor_data", "C:\\x\\dump_tensor_data", "/etc", "..", 7):
        path.write_text(json.dumps({**body, "dump_data_dir": elsewhere}))
        run = open_dump(tmp_path / "d")
        assert run.values(run.tensors[0]).shape == (8, 16)
    shutil.rmtree(tmp_path / "d" / "dump_tensor_data")
    run = open_dump(tmp_path / "d")
    assert {t.kept for t in run.tensors} == {Kept.STATISTICS}
    assert "112 tensors have no values" in run.info.notes[0]


def test_types_that_are_not_known_are_left_out_with_a_note(tmp_path):
    entry = {"input_args": [tensor([2], "hifloat8"), tensor([2])], "output": []}
    run = open_dump(write(tmp_path / "d", {"Torch.f.0.forward": entry}))
    assert [t.key.index for t in run.tensors] == [1]
    assert run.info.notes == ("left out tensors of unknown types: torch.hifloat8",)


def test_reading_needs_no_torch():
    code = (
        "import sys; from syncpoint.dumps.open_dump import open_dump;"
        f"run = open_dump({str(real('tensor_target'))!r});"
        "run.values(run.tensors[0]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def saved(path: Path, value: object, **options: object) -> Path:
    torch = pytest.importorskip("torch")
    torch.save(value, path, **options)
    return path


def read_back(path: Path) -> np.ndarray:
    """Through a dump, as it would be used."""
    found = locate_tensor(path)
    said = tensor(list(found.shape), found.dtype.name, data_name=path.name)
    entry = {"input_args": [], "output": [said]}
    folder = path.parent / "dump"
    (folder / "dump_tensor_data").mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder / "dump_tensor_data" / path.name)
    run = open_dump(write(folder, {"Torch.f.0.forward": entry}, "tensor"))
    whole = run.values(run.tensors[0])
    parts = [run.window(run.tensors[0], i, i + 1) for i in range(whole.size)]
    flat = np.concatenate(parts) if parts else whole.reshape(-1)
    assert flat.tobytes() == whole.tobytes()
    return whole


@pytest.mark.parametrize(
    "dtype",
    [
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
        *("bool", "complex64", "complex128"),
    ],
)
def test_every_type_reads_as_torch_wrote_it(tmp_path, dtype):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    value = torch.randn(3, 5).mul(40).abs().to(getattr(torch, dtype))
    found = read_back(saved(tmp_path / "x.pt", value))
    assert found.shape == (3, 5)
    assert found.tobytes() == value.contiguous().view(torch.uint8).numpy().tobytes()


def test_tensors_that_are_not_row_major_are_put_in_order(tmp_path):
    torch = pytest.importorskip("torch")
    base = torch.arange(60.0).reshape(3, 4, 5)
    views = (base.permute(2, 0, 1)[1:], base[:, 1:3, ::2], base[1:], base[:, :, 2], base[0, 0, 0])
    for number, view in enumerate(views):
        found = read_back(saved(tmp_path / f"{number}.pt", view))
        np.testing.assert_array_equal(found, view.numpy())


def test_parameters_empties_and_scalars_are_tensors_too(tmp_path):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.randn(2, 3))
    found = read_back(saved(tmp_path / "p.pt", weight))
    np.testing.assert_array_equal(found, weight.detach().numpy())
    assert read_back(saved(tmp_path / "e.pt", torch.zeros(0, 3))).shape == (0, 3)
    assert read_back(saved(tmp_path / "s.pt", torch.tensor(7))) == 7


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_is_understood(tmp_path, protocol):
    torch = pytest.importorskip("torch")
    value = torch.randn(300)
    path = saved(tmp_path / "x.pt", value, pickle_protocol=protocol)
    np.testing.assert_array_equal(read_back(path), value.numpy())


def test_checksums_that_torch_left_out_are_not_taken_for_any(tmp_path):
    torch = pytest.importorskip("torch")
    torch.serialization.set_crc32_options(False)
    try:
        path = saved(tmp_path / "x.pt", torch.arange(4.0))
    finally:
        torch.serialization.set_crc32_options(True)
    assert locate_tensor(path).crc32 == ""
    np.testing.assert_array_equal(read_back(path), np.arange(4.0))


def test_big_endian_files_are_turned(tmp_path):
    torch = pytest.importorskip("torch")
    path = saved(tmp_path / "x.pt", torch.arange(4.0))
    with zipfile.ZipFile(path) as archive:
        members = {m.filename: archive.read(m) for m in archive.infolist()}
    members["x/byteorder"] = b"big"
    members["x/data/0"] = np.arange(4, dtype=">f4").tobytes()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    np.testing.assert_array_equal(read_back(path), np.arange(4.0))


def test_one_damaged_file_does_not_hide_the_others(tmp_path):
    shutil.copytree(real("tensor_target"), tmp_path / "d")
    values = tmp_path / "d" / "dump_tensor_data"
    (values / "Functional.linear.0.forward.input.0.pt").write_bytes(b"PK")
    (values / "Functional.linear.0.forward.input.1.pt").unlink()
    run = open_dump(tmp_path / "d")
    for at in (0, 1):
        with pytest.raises(FormatError):
            run.values(run.tensors[at])
    assert run.values(run.tensors[2]).shape == (16,)
