"""Folders for Core AI's tools, made by hand: what is read as what, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from helpers import small_runs
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.registry import find_format
from syncpoint.dumps.save_dump import save_dump
from syncpoint.errors import FormatError, InputError
from syncpoint.run.model import (
    Frame,
    Kept,
    Op,
    OpKey,
    Part,
    Quantization,
    Role,
    RunInfo,
    Tensor,
    TensorKey,
)
from syncpoint.run.reader import in_memory

RNG = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)


def entry(name: str, number: int, array: np.ndarray, **more: object) -> dict[str, object]:
    return {
        "node_name": name,
        "node_op": "call_function",
        "node_target": f"aten.{name}.default",
        "data_file": f"data/{name}_{number:04d}.npy",
        "shape": list(array.shape),
        "torch_dtype": f"torch.{array.dtype}",
        "numel": array.size,
        **more,
    }


def folder(path: Path, **categories: dict[str, tuple[int, np.ndarray, dict[str, object]]]) -> Path:
    """Arrays by category and name, each with its number and keys of its own."""
    (path / "data").mkdir(parents=True)
    body: dict[str, dict[str, object]] = {"inputs": {}, "outputs": {}, "intermediates": {}}
    for category, arrays in categories.items():
        for name, (number, array, more) in arrays.items():
            body[category][name] = found = entry(name, number, array, **more)
            np.save(path / str(found["data_file"]), array)
    (path / "metadata.json").write_text(json.dumps(body, indent=2))
    return path


X, W = RNG.standard_normal((2, 3), np.float32), RNG.standard_normal((3, 3), np.float32)
INPUT = {"node_op": "placeholder", "node_target": "x"}
WEIGHT = {"node_op": "get_attr", "node_target": "layers.0.weight"}


@pytest.fixture
def small(tmp_path) -> Path:
    return folder(
        tmp_path / "main.aimodelintermediates",
        inputs={"x": (1, X, INPUT)},
        outputs={"relu": (3, np.maximum(X @ W, 0), {})},
        intermediates={"layers_0_weight": (0, W, WEIGHT), "mm": (2, X @ W, {})},
    )


def test_inputs_parameters_ops_and_the_output_have_their_roles(small):
    run = open_dump(small)
    assert [str(t.key) for t in run.tensors] == [
        "layers.0.weight!parameter",
        "x!model-input",
        "mm",
        "relu",
        "relu!model-output",
    ]
    assert [(op.key.op, op.type, op.origins) for op in run.ops] == [
        ("mm", "aten.mm.default", ("mm",)),
        ("relu", "aten.relu.default", ("relu",)),
    ]
    np.testing.assert_array_equal(run.values(run.tensors[1]), X)
    assert run.tensors[4].alias_of == "relu"
    assert run.info.options["format"] == "aimodelintermediates"


def test_it_is_recognised_by_folder_and_by_metadata_but_other_metadata_is_not(small, tmp_path):
    assert (
        find_format(small).name
        == find_format(small / "metadata.json").name
        == "aimodelintermediates"
    )
    asset = tmp_path / "main.aimodel"
    asset.mkdir()
    (asset / "metadata.json").write_text('{"assetVersion": "2.0"}')
    assert find_format(asset) is None
    assert find_format(asset / "metadata.json") is None


def test_opening_reads_no_values_and_no_torch(small):
    code = (
        "import sys, syncpoint as sp\n"
        "run = sp.open_run(sys.argv[1])\n"
        "run.values(run.tensors[0])\n"
        "assert 'torch' not in sys.modules and 'coreai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(small)], check=True)
    run = open_dump(small)
    for file in (small / "data").iterdir():
        file.unlink()
    with pytest.raises(FormatError, match="No such file"):
        run.values(run.tensors[0])


def test_values_are_mapped_not_copied(tmp_path):
    large = RNG.standard_normal((300, 500), np.float32)
    path = folder(tmp_path / "a.aimodelintermediates", intermediates={"big": (0, large, {})})
    values = open_dump(path).values(open_dump(path).tensors[0])
    assert not values.flags.owndata and not values.flags.writeable
    np.testing.assert_array_equal(values, large)


def test_column_major_arrays_come_in_their_order(tmp_path):
    array = np.asfortranarray(RNG.standard_normal((5, 7), np.float32))
    path = folder(tmp_path / "a.aimodelintermediates", intermediates={"t": (0, array, {})})
    run = open_dump(path)
    np.testing.assert_array_equal(run.values(run.tensors[0]), array)
    np.testing.assert_array_equal(run.window(run.tensors[0], 3, 20), array.reshape(-1)[3:20])


def test_several_outputs_are_not_given_positions_that_the_file_does_not_tell(tmp_path):
    """They stand in the order of execution; new values of buffers are among them."""
    path = folder(
        tmp_path / "a.aimodelintermediates",
        outputs={"early": (0, X, {}), "late": (2, X, {})},
        intermediates={"mm": (1, X, {})},
    )
    run = open_dump(path)
    assert [op.key.op for op in run.ops] == ["early", "mm", "late"]
    assert not any(t.key.role is Role.MODEL_OUTPUT for t in run.tensors)
    assert "which model output is which" in run.info.notes[0]
    lone = folder(
        tmp_path / "b.aimodelintermediates",
        outputs={"cache": (0, X, {})},
        intermediates={"mm": (1, X, {})},
    )
    assert not any(t.key.role is Role.MODEL_OUTPUT for t in open_dump(lone).tensors)


@pytest.mark.parametrize("files", [("a_1", "b_1", "c_2"), ("a", "b", "c")])
def test_without_numbers_of_their_own_outputs_come_last_and_none_is_certain(tmp_path, files):
    mm, relu, last = ({"data_file": f"data/{file}.npy"} for file in files)
    path = folder(
        tmp_path / "a.aimodelintermediates",
        outputs={"last": (0, X, last)},
        intermediates={"mm": (0, X, mm), "relu": (0, X, relu)},
    )
    run = open_dump(path)
    assert [op.key.op for op in run.ops] == ["mm", "relu", "last"]
    assert not any(t.key.role is Role.MODEL_OUTPUT for t in run.tensors)
    assert run.info.notes


def test_two_nodes_that_fetch_one_parameter_are_both_there(tmp_path):
    path = folder(
        tmp_path / "a.aimodelintermediates",
        intermediates={"w": (0, W, WEIGHT), "w_1": (1, W, WEIGHT)},
    )
    assert [str(t.key) for t in open_dump(path).tensors] == [
        "layers.0.weight!parameter",
        "w_1!parameter",
    ]


def test_a_bf16_label_over_f32_data_is_bf16_to_the_bit(tmp_path):
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.0], BF16)
    special = np.concatenate([special, RNG.standard_normal(90).astype(BF16)])
    label = {"torch_dtype": "torch.bfloat16"}
    path = folder(
        tmp_path / "a.aimodelintermediates",
        intermediates={"n": (0, special.astype(np.float32), label)},
    )
    run = open_dump(path)
    (tensor,) = run.tensors
    assert (tensor.dtype, tensor.nbytes) == ("bf16", 192)
    assert run.values(tensor).tobytes() == special.tobytes()
    assert run.window(tensor, 5, 40).tobytes() == special[5:40].tobytes()


def test_a_label_that_would_round_the_values_is_an_error_not_a_rounding(tmp_path):
    label = {"torch_dtype": "torch.bfloat16"}
    path = folder(tmp_path / "a.aimodelintermediates", intermediates={"n": (0, X, label)})
    run = open_dump(path)
    with pytest.raises(
        FormatError, match=r"6 of its values .* cannot be represented exactly in bf16.*correct its"
    ):
        run.values(run.tensors[0])


@pytest.mark.parametrize("label", ["torch.float4_e2m1fn_x2", "torch.quint8", "", "f16"])
def test_a_label_of_a_type_that_is_not_known_leaves_the_type_of_the_file(tmp_path, label):
    path = folder(
        tmp_path / "a.aimodelintermediates", intermediates={"n": (0, X, {"torch_dtype": label})}
    )
    assert open_dump(path).tensors[0].dtype == "f32"


DTYPES = [
    *(np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
    *(ml_dtypes.float8_e5m2, np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32),
    *(np.uint16, np.uint8, ml_dtypes.int4, ml_dtypes.uint4, np.bool_, np.complex64, np.complex128),
]


def test_a_run_of_every_type_part_and_role_comes_back_whole(tmp_path):
    drawn = RNG.integers(0, 8, (3, 5))
    pairs = [small_runs.tensor(f"op{i}", drawn.astype(dtype)) for i, dtype in enumerate(DTYPES)]
    pairs += [
        small_runs.tensor("x", X, Role.MODEL_INPUT, name='given["x"]'),
        small_runs.tensor("layers.0.weight", W, Role.PARAMETER),
        small_runs.tensor("layers_0.weight", W, Role.PARAMETER),
        small_runs.tensor("cache", X, Role.STATE),
        small_runs.tensor("op1", X, Role.INPUT, index=2),
        small_runs.tensor("op1", X, index=1, part=Part(sample=0, step=3, rank=1)),
        small_runs.tensor("scalar", np.float32(3)),
        small_runs.tensor("empty", np.zeros((0, 3), BF16)),
        small_runs.tensor(
            "op0", drawn.astype(np.float64), Role.MODEL_OUTPUT, name="out", alias_of="op0"
        ),
        small_runs.tensor(
            "a/b c:d", X, strides=(1, 2), layout="b c", device="cpu", requires_grad=True
        ),
        small_runs.tensor(
            "q", drawn.astype(np.int8), quantization=Quantization((0.5, 1, 2), (0,), axis=0)
        ),
    ]
    ops = [
        Op(
            OpKey("op0"),
            "aten.mm",
            attributes={"alpha": float("inf"), "word": "é\n"},
            module="layers.0",
            module_type="Linear",
            source=(Frame("/a/net.py", 3, "forward"),),
            origins=("mm", "mm_1"),
            random=True,
        )
    ]
    info = RunInfo(
        model="net",
        runtime="torch",
        runtime_version="2",
        options={"a": 1},
        device="cpu",
        precision="f32",
        notes=("n",),
        environment={"k": "v"},
    )
    less = Tensor(TensorKey(OpKey("less")), "f32", (2,), kept=Kept.DIGEST)
    run = in_memory(info, ops, [*pairs, (less, np.zeros(2))])
    path = tmp_path / "all.aimodelintermediates"
    save_dump(run, path, "aimodelintermediates")
    again = open_dump(path)
    assert again.info == info
    assert list(again.ops) == ops
    assert {t.key for t in again.tensors} == {t.key for t, _ in pairs}
    for tensor, array in pairs:
        found = again.tensor(tensor.key)
        for name in ("dtype", "shape", "name", "strides", "layout", "quantization", "alias_of"):
            assert getattr(found, name) == getattr(tensor, name), tensor.key
        assert again.values(found).dtype == array.dtype
        assert again.values(found).tobytes() == array.tobytes(), tensor.key
    body = json.loads((path / "metadata.json").read_text())
    assert list(body) == ["inputs", "outputs", "intermediates", "syncpoint"]
    loaded = np.load(path / body["intermediates"]["op3"]["data_file"])
    assert (
        loaded.dtype == np.float32
        and body["intermediates"]["op3"]["torch_dtype"] == "torch.bfloat16"
    )
    assert all((path / "data").joinpath(Path(f).name).exists() for f in _files(body))


def _files(body: dict[str, dict[str, dict[str, str]]]) -> list[str]:
    return [
        e["data_file"] for c in ("inputs", "outputs", "intermediates") for e in body[c].values()
    ]


def test_a_model_output_that_is_an_ops_output_is_written_once(tmp_path):
    run = small_runs.run(("mm", "aten.mm", "", ["x"], X), inputs=[("x", X)], outputs=[("mm", X)])
    save_dump(run, tmp_path / "a.run", "run")
    stored = open_dump(tmp_path / "a.run")
    save_dump(stored, tmp_path / "a.aimodelintermediates", "aimodelintermediates")
    assert len(list((tmp_path / "a.aimodelintermediates" / "data").iterdir())) == 2
    again = open_dump(tmp_path / "a.aimodelintermediates")
    assert [str(t.key) for t in again.tensors] == ["x!model-input", "mm", "mm!model-output"]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    empty = in_memory(RunInfo(), [], [])
    with pytest.raises(InputError, match="the run has no recorded values"):
        save_dump(empty, tmp_path / "a.aimodelintermediates", "aimodelintermediates")

    class Broken(type(empty)):
        def window(self, tensor, start, stop):
            raise FormatError("the values cannot be read")

    run = small_runs.run(("mm", "aten.mm", "", [], X))
    run.__class__ = Broken
    with pytest.raises(FormatError, match="the values cannot be read"):
        save_dump(run, tmp_path / "a.aimodelintermediates", "aimodelintermediates")
    assert not list(tmp_path.iterdir())
