"""Files of other tools open as runs, in place and in order."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.registry import find_format
from syncpoint.errors import InputError
from syncpoint.run.model import Op, OpKey, Role

ARRAYS = {
    "layer10.out": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layer2/out": np.array(7, np.int64),
    "empty": np.zeros((0, 3), np.float16),
    "flags": np.array([True, False]),
    "big": np.random.default_rng(0).standard_normal((100, 200)),
    "complex": np.array([1 + 2j]),
}


def check(run, expected) -> None:
    assert [o.key.op for o in run.ops] == list(expected)
    assert run.ops[0] == Op(OpKey(next(iter(expected))), type="")
    for tensor in run.tensors:
        array = expected[tensor.key.op.op]
        assert (tensor.key.role, tensor.key.index) == (Role.OUTPUT, 0)
        values = run.values(tensor)
        assert values.dtype == array.dtype
        assert values.flags.aligned
        assert not values.flags.writeable
        np.testing.assert_array_equal(values, array)
        window = run.window(tensor, array.size // 3, array.size)
        np.testing.assert_array_equal(window, array.reshape(-1)[array.size // 3 :])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_members_are_the_ops_in_file_order(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    assert find_format(tmp_path / "a.npz").name == "npz"
    run = open_dump(tmp_path / "a.npz")
    check(run, ARRAYS)
    assert (run.info.model, run.path) == ("a.npz", tmp_path / "a.npz")
    assert run.digest() == open_dump(tmp_path / "a.npz").digest()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_odd_layouts_in_npz_are_put_in_order(tmp_path, save):
    arrays = {
        "fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        "swapped": np.arange(6, dtype=">i4").reshape(2, 3),
    }
    save(tmp_path / "a.npz", **arrays)
    expected = {k: v.astype(v.dtype.newbyteorder("="), order="C") for k, v in arrays.items()}
    check(open_dump(tmp_path / "a.npz"), expected)


def test_a_name_that_says_nothing_is_recognised_by_content(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(3))
    save_file({"x": np.ones(3)}, tmp_path / "b.safetensors")
    (tmp_path / "a.npz").rename(tmp_path / "first.bin")
    (tmp_path / "b.safetensors").rename(tmp_path / "second.bin")
    assert find_format(tmp_path / "first.bin").name == "npz"
    assert find_format(tmp_path / "second.bin").name == "safetensors"


def test_safetensors_of_the_library_open(tmp_path):
    arrays = {k: v for k, v in ARRAYS.items() if k != "complex"}
    arrays["half"] = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    save_file(arrays, tmp_path / "a.safetensors", metadata={"some": "thing"})
    run = open_dump(tmp_path / "a.safetensors")
    assert {o.key.op for o in run.ops} == set(arrays)
    for tensor in run.tensors:
        np.testing.assert_array_equal(run.values(tensor), arrays[tensor.key.op.op])
    offsets = [t.offset for t in run.tensors]
    assert offsets == sorted(offsets)


def test_a_folder_of_npy_files_names_ops_by_path_and_counts_numbers(tmp_path):
    (tmp_path / "block").mkdir()
    arrays = {
        "block/conv2": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "block/conv10": np.arange(3, dtype=np.uint8),
        "input": np.array(1.5),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "readme.txt").write_text("passed over")
    assert find_format(tmp_path).name == "npy"
    check(open_dump(tmp_path), arrays)


def test_one_npy_file_is_a_run_of_one_op(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    check(open_dump(tmp_path / "x.npy"), {"x": np.arange(3)})


def test_what_nobody_recognises_is_an_input_error(tmp_path):
    (tmp_path / "a.txt").write_text("hello, this is not a dump")
    for path in (tmp_path / "a.txt", tmp_path):
        with pytest.raises(InputError, match="is not a run or a dump: no format recognises it"):
            open_dump(path)
    with pytest.raises(InputError, match=r"no such file or folder: .*none"):
        open_dump(tmp_path / "none")
