"""Ops in slices, dumps of the smallest devices, and trees of training dumps."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from helpers.device_dump_files import chunk, dump, input_, nano, nano_tensor, one_output, output
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.device_types import stored_type
from syncpoint.ascend.dumps.rule_file import find_rule_file, load_rule_files
from syncpoint.ascend.dumps.training_tree import find_step_folders, is_tree, latest_steps
from syncpoint.dumps.open_dump import open_dump
from syncpoint.errors import FormatError, InputError
from syncpoint.run.model import OpKey, Role, TensorKey

TIME = 1700000000004000


def values(run, op: str, role: Role = Role.OUTPUT, index: int = 0, **key):
    return run.values(run.tensor(TensorKey(OpKey(op, **key), role, index)))


# Slices


def plan(count: int, **more: object) -> bytes:
    said = {"threadMode": 1, "slice_instance_num": count, **more}
    return chunk(7, chunk(1, b"_sgt_json") + chunk(2, json.dumps(said).encode()))


def box(*ranges: tuple[int, int]) -> list[dict[str, int]]:
    return [{"lower": low, "higher": high} for low, high in ranges]


def threads(folder, x_parts, y_parts, said: bytes, time: int = TIME, op: str = "conv") -> None:
    for thread, (x, y) in enumerate(zip(x_parts, y_parts, strict=True)):
        messages = (output(y.shape, y.nbytes), input_(x.shape, x.nbytes), said)
        data = x.tobytes() + y.tobytes()
        name = f"Conv2D.{op}.1.2.{time + thread}.4.9.{thread}.0"
        (folder / name).write_bytes(dump(*messages, data=data, name=op))


def halves(rows: int = 7):
    """Outputs cut after row 4; inputs with a border of one row in common."""
    x = np.arange(rows * 3.0, dtype=np.float32).reshape(rows, 3)
    y = x * 2
    said = plan(
        2,
        input_tensor_slice=[[box((0, 5), (0, 3))], [box((3, rows), (0, 3))]],
        output_tensor_slice=[[box((0, 4), (0, 3))], [box((4, rows), (0, 3))]],
    )
    return x, y, [x[:5], x[3:]], [y[:4], y[4:]], said


def test_threads_of_an_op_are_one_op_again(tmp_path):
    x, y, xs, ys, said = halves()
    threads(tmp_path, xs, ys, said)
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [OpKey("conv")]
    np.testing.assert_array_equal(values(run, "conv"), y)
    np.testing.assert_array_equal(values(run, "conv", Role.INPUT), x)
    tensor = run.tensor(TensorKey(OpKey("conv")))
    assert (tensor.shape, tensor.nbytes) == (y.shape, y.nbytes)
    assert run.dense_file(tensor) is None
    for start, stop in ((0, 0), (0, 5), (11, 17), (21, 21)):
        found = run.window(tensor, start, stop)
        np.testing.assert_array_equal(found, y.reshape(-1)[start:stop])
    said = run.ops[0].attributes
    assert said["slices"] == 2
    assert len(said["files"]) == 2
    assert said["outputs"][0]["shape"] == [7, 3]
    assert "thread" not in said


def test_each_execution_in_slices_is_a_call(tmp_path):
    _, y, xs, ys, said = halves()
    threads(tmp_path, xs, ys, said)
    threads(tmp_path, xs, [part + 1 for part in ys], said, TIME + 100)
    run = DeviceFolder().open(tmp_path)
    np.testing.assert_array_equal(values(run, "conv"), y)
    np.testing.assert_array_equal(values(run, "conv", call=1), y + 1)


def test_what_every_thread_has_whole_is_read_where_it_lies(tmp_path):
    x = np.ones((2, 3), np.float32)
    y = np.arange(8, dtype=np.float32).reshape(4, 2)
    said = plan(
        2,
        input_tensor_slice=[[box((0, 2), (0, 3))]] * 2,
        output_tensor_slice=[[box((0, 4), (0, 1))], [box((0, 4), (1, 2))]],
    )
    threads(tmp_path, [x, x], [y[:, :1].copy(), y[:, 1:].copy()], said)
    run = DeviceFolder().open(tmp_path)
    np.testing.assert_array_equal(values(run, "conv"), y)
    assert run.dense_file(run.tensor(TensorKey(OpKey("conv"), Role.INPUT))) is not None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"slice_instance_num": 3}, "2 files for 3 slices"),
        ({"slice_instance_num": "2"}, "2 files for no slices"),
        ({"output_tensor_slice": []}, "no ranges for output 0"),
        ({"output_tensor_slice": None}, "no ranges for output 0"),
        ({"output_tensor_slice": [[box((0, 4), (0, 3))], [box((3, 6), (0, 3))]]}, "overlap"),
        ({"output_tensor_slice": [[box((0, 4), (0, 3))], [box((5, 8), (0, 3))]]}, "gap"),
        ({"output_tensor_slice": [[box((0, 4), (0, 3))], [box((4, 8), (0, 3))]]}, "not the shape"),
        ({"output_tensor_slice": [[box((0, 4), (0, 3))], [box((4, 7), (1, 4))]]}, "several axes"),
        ({"input_tensor_slice": [[], []]}, "ranges for 0 of 1 inputs"),
        ({"input_tensor_slice": [[[{"lower": "a", "higher": 5}]]] * 2}, "no numbers"),
        ({"input_tensor_slice": [[[{"lower": -1, "higher": 4}]]] * 2}, "no numbers"),
        ({"input_tensor_slice": [[[{"lower": 0}]]] * 2}, "no ranges"),
    ],
)
def test_slices_that_do_not_fit_together_stay_apart_under_other_names(tmp_path, change, why):
    _, _, xs, ys, _ = halves()
    said = {
        "slice_instance_num": 2,
        "input_tensor_slice": [[box((0, 5), (0, 3))], [box((3, 7), (0, 3))]],
        "output_tensor_slice": [[box((0, 4), (0, 3))], [box((4, 7), (0, 3))]],
    } | change
    threads(tmp_path, xs, ys, chunk(7, chunk(2, json.dumps(said).encode())))
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [
        OpKey("conv", path="thread 0"),
        OpKey("conv", path="thread 1"),
    ]
    assert any("2 slices of conv" in note and why in note for note in run.info.notes)
    np.testing.assert_array_equal(values(run, "conv", path="thread 1"), ys[1])


@pytest.mark.parametrize("said", [b"", chunk(7, chunk(2, b"{")), chunk(7, chunk(2, b"[]"))])
def test_slices_of_which_nothing_is_said_stay_apart(tmp_path, said):
    _, _, xs, ys, _ = halves()
    threads(tmp_path, xs, ys, said)
    run = DeviceFolder().open(tmp_path)
    assert len(run.ops) == 2
    assert run.op(OpKey("conv")) is None


def test_an_op_with_one_thread_is_an_op_like_others(tmp_path):
    data = one_output(np.ones(2, np.float32), name="a")
    (tmp_path / f"Add.a.1.2.{TIME}.4.9.0.0").write_bytes(data)
    (tmp_path / f"Add.b.1.2.{TIME}.4.9.1.0").write_bytes(one_output(np.ones(2, np.float32)))
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [OpKey("a"), OpKey("b", path="thread 1")]


def cut(folder, parts, cuts: list[list[int]], count: int | None = None) -> None:
    for number, y in enumerate(parts):
        said = plan(len(parts) if count is None else count, outputCutList=cuts, threadMode=0)
        whole = dump(output(y.shape, y.nbytes), said, data=y.tobytes())
        (folder / f"Add.a_lxslice{number}.{number}.2.{TIME + number}").write_bytes(whole)


def test_slices_of_a_cut_graph_are_joined_along_the_axis_that_was_cut(tmp_path):
    y = np.arange(2.0 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)
    cut(tmp_path, [y[:, :2].copy(), y[:, 2:4].copy(), y[:, 4:].copy()], [[1, 3, 1]])
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [OpKey("a")]
    np.testing.assert_array_equal(values(run, "a"), y)


@pytest.mark.parametrize(
    ("cuts", "count"), [([[3, 1]], 2), ([[2, 2]], 2), ([[2]], 2), ([], 2), ([[2, 1]], 3)]
)
def test_slices_of_a_cut_graph_that_do_not_fit_stay_apart(tmp_path, cuts, count):
    cut(tmp_path, [np.ones((2, 3), np.float32)] * 2, cuts, count)
    run = DeviceFolder().open(tmp_path)
    assert [op.key.op for op in run.ops] == ["a_lxslice0", "a_lxslice1"]


def test_a_slice_that_is_truncated_is_damage_of_the_whole(tmp_path):
    _, _, xs, ys, said = halves()
    threads(tmp_path, xs, ys, said)
    path = tmp_path / f"Conv2D.conv.1.2.{TIME + 1}.4.9.1.0"
    path.write_bytes(path.read_bytes()[:-1])
    op = DeviceFolder().open(tmp_path).ops[0]
    assert "output 0: of slice 1: 36 bytes at" in op.attributes["damage"]


# The smallest devices


def test_a_dump_of_the_smallest_devices_is_read(tmp_path):
    x, y = np.arange(3, dtype=np.int32), np.arange(4, dtype=np.float16)
    inputs = [nano_tensor([3], x.nbytes, 3, output=False)]
    outputs = [nano_tensor([2, 2], y.nbytes, 1, 3, original=[1, 2, 2, 1])]
    whole = nano(inputs, outputs, x.tobytes() + y.tobytes())
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(whole)
    assert DeviceFolder().sniff(tmp_path)
    run = DeviceFolder().open(tmp_path)
    assert values(run, "a", Role.INPUT).tolist() == x.tolist()
    assert values(run, "a").tolist() == y.reshape(2, 2).tolist()
    said = run.ops[0].attributes["outputs"][0]
    assert (said["format"], said["original_shape"], said["address"]) == (
        *("NC1HWC0", [1, 2, 2, 1], 77),
    )
    assert said["origin"] == {"name": "origin", "output_index": 3, "data_type": 1, "format": 1}


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, "FLOAT"), (1, "FLOAT16"), (2, "INT8"), (3, "INT32"), (4, "UINT8"), (6, "INT16"),
     (7, "UINT16"), (8, "UINT32"), (9, "INT64"), (10, "UINT64"), (11, "DOUBLE"), (12, "BOOL"),
     (16, "COMPLEX64"), (17, "COMPLEX128"), (27, "BF16"), (30, "UINT1"), (29, "INT4")],
)  # fmt: skip
def test_the_smallest_devices_have_their_own_numbers_of_types(tmp_path, code, name):
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(
        nano(outputs=[nano_tensor([1], 16, code)], data=bytes(16))
    )
    said = DeviceFolder().open(tmp_path).ops[0].attributes["outputs"][0]
    assert said["stored_type"] == name == stored_type(said["data_type"]).name


def test_a_dump_of_the_smallest_devices_must_end_with_its_last_tensor(tmp_path):
    whole = nano(outputs=[nano_tensor([2], 8)], data=bytes(8))
    for data in (whole + b"x", whole[:-1]):
        (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(data)
        op = DeviceFolder().open(tmp_path).ops[0]
        assert "its header describes" in op.attributes["damage"]


# Trees


def test_the_tree_of_a_training_dump_gives_its_folders():
    root = ASCEND_DATA / "offline_batch/20240101010101"
    assert is_tree(root)
    (leaf,) = find_step_folders(root)
    assert (leaf.device, leaf.model, leaf.model_id, leaf.step) == (
        *("0", "ge_default_20240101010101_11", "3", "1"),
    )
    assert len(DeviceFolder().open(leaf.path).ops) == 1
    assert open_dump(root).ops[0].key == OpKey("r")
    assert not is_tree(ASCEND_DATA / "offline_mixed/npu")


def test_steps_are_counted_as_numbers_and_the_last_is_the_greatest(tmp_path):
    file = next((ASCEND_DATA / "offline_batch").glob("**/Relu.r.*"))
    root = tmp_path / "20240101010101"
    for place in ("0/m/3/9", "0/m/3/10", "1/m/3/2", "0/n/1/1", "x/m/3/1"):
        (root / place).mkdir(parents=True)
        shutil.copy(file, root / place)
    (root / "0/m/3/11").mkdir()
    found = find_step_folders(root)
    assert [leaf.name for leaf in found] == ["0/m/3/9", "0/m/3/10", "0/n/1/1", "1/m/3/2"]
    assert [leaf.name for leaf in latest_steps(found)] == ["0/m/3/10", "0/n/1/1", "1/m/3/2"]
    with pytest.raises(InputError, match=r"4 steps .*0/m/3/9.* give the path of one"):
        open_dump(root)


def test_a_link_in_a_tree_is_not_followed(tmp_path):
    root = tmp_path / "20240101010101"
    (root / "0").mkdir(parents=True)
    model = ASCEND_DATA / "offline_batch/20240101010101/0/ge_default_20240101010101_11"
    (root / "0/m").symlink_to(model)
    assert not is_tree(root)
    with pytest.raises(InputError, match="has no folders DEVICE"):
        find_step_folders(root)


def test_rule_files_are_found_by_the_names_of_their_graphs(tmp_path):
    found = load_rule_files(ASCEND_DATA / "offline_batch/json")
    name = "ge_default_20240101010101_11"
    assert find_rule_file(name, found) == (name, found[name])
    assert find_rule_file("ge_default_20250202020202_11", found) == (name, found[name])
    assert find_rule_file("ge_default_20250202020202_12", found) is None
    assert find_rule_file("other", found) is None
    for copy in ("a.json", "b.json"):
        shutil.copy(ASCEND_DATA / "offline_batch/json/g.json", tmp_path / copy)
    with pytest.raises(FormatError, match=r"a\.json and b\.json"):
        load_rule_files(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="rule files"):
        load_rule_files(tmp_path / "empty")
