"""Folders of device dumps and of golden arrays as runs."""

from __future__ import annotations

import csv

import ml_dtypes
import numpy as np
import pytest

from helpers.device_dump_files import chunk, dump, input_, number, one_output, output
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.golden_folder import GoldenFolder
from syncpoint.dumps.open_dump import open_dump
from syncpoint.errors import InputError
from syncpoint.run.model import OpKey, Role, TensorKey

TIME = 1700000000004000


def device(name: str):
    return DeviceFolder().open(ASCEND_DATA / name)


def values(run, op: str, role: Role = Role.OUTPUT, index: int = 0, call: int = 0):
    return run.values(run.tensor(TensorKey(OpKey(op, call), role, index)))


def test_every_usable_file_of_the_mixed_dump_is_read():
    run = device("offline_mixed/npu")
    assert run.info.runtime == "ascend"
    assert run.info.options == {"format": "ascend"}
    assert len(run.ops) == 47
    damaged = {op.key.op: op.attributes["damage"] for op in run.ops if "damage" in op.attributes}
    assert damaged.keys() >= {"trunc", "corrupt", "oversize"}
    (note,) = run.info.notes
    assert note.startswith("3 of 47 ops cannot be read completely: trunc: output 0: 12 bytes for")
    assert "12 bytes for 5 of FLOAT, which takes 20" in damaged["trunc"]
    assert "protobuf" in damaged["corrupt"]
    assert "4000 bytes at 51 of a file of 71" in damaged["oversize"]
    assert [op.attributes["timestamp"] for op in run.ops] == sorted(
        op.attributes["timestamp"] for op in run.ops
    )


def test_values_are_those_of_the_golden_arrays_where_the_report_says_so():
    """Where the real tool measured no error at all, the bits must agree."""
    run, golden = (
        device("offline_mixed/npu"),
        GoldenFolder().open(ASCEND_DATA / "offline_mixed/golden"),
    )
    same = 0
    with (ASCEND_DATA / "offline_mixed/expected.csv").open() as file:
        for row in csv.DictReader(file):
            op, _, index = row["TensorIndex"].rpartition(":output:")
            if not op or row["MaxAbsoluteError"] != "0.000000":
                continue
            ours = run.tensor(TensorKey(OpKey(op), index=int(index)))
            name = row["GroundTruth"].replace("/", "_").replace(".", "_")
            theirs = golden.tensor(TensorKey(OpKey(name)))
            if theirs is None or ours.count != theirs.count or op in ("nhwc_gold", "tiny"):
                continue
            mine, other = run.values(ours).reshape(-1), golden.values(theirs).reshape(-1)
            np.testing.assert_array_equal(mine.astype(np.float32), other.astype(np.float32))
            same += 1
    assert same >= 10


def test_names_come_from_the_header_and_from_the_mapping():
    run = device("offline_mixed/npu")
    op = run.op(OpKey("multi/dotted.name"))
    assert op.attributes["escaped"] == "multi_dotted_name"
    assert op.attributes["file"] == "Op.multi_dotted_name.1.2.1700000000085000"
    assert (op.type, op.attributes["task"], op.attributes["stream"]) == ("Op", 1, 2)
    long = run.op(OpKey("very/long/name"))
    assert (long.type, long.attributes["file"]) == ("Relu", "1234567890")
    assert values(run, "very/long/name").shape == (5,)


def test_facts_of_tensors_are_kept():
    run = device("offline_mixed/npu")
    tensor = run.tensor(TensorKey(OpKey("layer1/conv1layer1/relu1")))
    assert (tensor.layout, tensor.address, tensor.dtype) == ("NC1HWC0", 4660, "f16")
    assert tensor.shape == (1, 2, 8, 8, 16)
    op = run.op(tensor.key.op)
    assert op.attributes["outputs"][0]["original_shape"] == [1, 24, 8, 8]
    assert run.tensor(TensorKey(OpKey("exact"))).layout == ""
    assert run.tensor(TensorKey(OpKey("data"))).layout == "NCHW"


def test_several_executions_of_an_op_are_calls_in_the_order_of_time():
    run = device("offline_npu_vs_npu/a")
    first, second = values(run, "twice"), values(run, "twice", call=1)
    np.testing.assert_array_equal(first * 2, second)
    assert any("twice 2 times" in note for note in run.info.notes)


def test_inputs_lie_before_outputs(tmp_path):
    x, y = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.int16)
    data = x.tobytes() + y.tobytes()
    whole = dump(output([4], y.nbytes, 5), input_([3], x.nbytes), data=data, name="a/b")
    (tmp_path / f"Add.a_b.1.2.{TIME}").write_bytes(whole)
    run = DeviceFolder().open(tmp_path)
    assert values(run, "a/b", Role.INPUT).tolist() == x.tolist()
    assert values(run, "a/b").tolist() == y.tolist()


def test_the_size_of_a_block_and_not_of_its_shape_places_the_next(tmp_path):
    x, y = np.arange(3, dtype=np.float32), np.arange(2, dtype=np.float32)
    data = x.tobytes() + bytes(20) + y.tobytes()
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(dump(output([2], 8), input_([3], 32), data=data))
    run = DeviceFolder().open(tmp_path)
    assert values(run, "a", Role.INPUT).tolist() == x.tolist()
    assert values(run, "a").tolist() == y.tolist()


def test_a_name_in_the_header_that_is_not_the_files_is_not_used(tmp_path):
    (tmp_path / f"Add.a_b.1.2.{TIME}").write_bytes(one_output(np.ones(2, np.float32), name="c"))
    run = DeviceFolder().open(tmp_path)
    assert run.ops[0].key == OpKey("a_b")


def test_ops_whose_names_collide_stay_apart_by_the_header(tmp_path):
    (tmp_path / f"Add.a_b.1.2.{TIME}").write_bytes(one_output(np.zeros(2, "f4"), name="a/b"))
    (tmp_path / f"Add.a_b.3.2.{TIME}").write_bytes(one_output(np.ones(2, "f4"), name="a_b"))
    run = DeviceFolder().open(tmp_path)
    assert values(run, "a/b").tolist() == [0, 0]
    assert values(run, "a_b").tolist() == [1, 1]


def test_a_damaged_file_is_an_execution_of_the_op_that_others_of_its_name_are(tmp_path):
    """Else the one before it would pass for the latest."""
    (tmp_path / f"Add.a_b.1.2.{TIME}").write_bytes(one_output(np.zeros(2, "f4"), name="a/b"))
    (tmp_path / f"Add.a_b.1.2.{TIME + 1}").write_bytes(b"\xff" * 20)
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [OpKey("a/b"), OpKey("a/b", 1)]
    assert "damage" in run.ops[1].attributes


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(1, "f4"), (2, "f2"), (3, "i1"), (4, "u1"), (5, "i2"), (6, "u2"), (7, "i4"), (8, "i8"),
     (9, "u4"), (10, "u8"), (11, "?"), (12, "f8"), (16, "c8"), (17, "c16"), (18, "i1"),
     (19, "i2"), (20, "i4"), (21, "u1"), (22, "u2"), (23, "i8"), (27, ml_dtypes.bfloat16),
     (34, ml_dtypes.float8_e5m2), (35, ml_dtypes.float8_e4m3fn)],
)  # fmt: skip
def test_every_type_that_numpy_has_is_read_to_the_bit(tmp_path, code, dtype):
    array = np.random.default_rng(code).integers(0, 2, (3, 5)).astype(dtype)
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(one_output(array, code))
    found = values(DeviceFolder().open(tmp_path), "a")
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_data_of_no_type_are_bytes(tmp_path):
    whole = dump(output([3, 7], 4, 0, 3), data=bytes([1, 2, 255, 4]))
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(whole)
    assert values(DeviceFolder().open(tmp_path), "a").tolist() == [1, 2, -1, 4]


def test_what_is_not_known_is_named(tmp_path):
    more = number(77, 5) + chunk(78, b"abc")
    said = output([1], 4, 99, 200, more=more)
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(dump(said, number(50, 6), data=bytes(4)))
    op = DeviceFolder().open(tmp_path).ops[0]
    facts = op.attributes["outputs"][0]
    assert facts["format"] == "format 200"
    assert facts["stored_type"] == "data_type 99"
    assert "data_type 99" in op.attributes["damage"]
    assert (facts["field 77"], facts["field 78"]) == (5, "3 bytes")
    assert op.attributes["field 50"] == 6


def test_origins_attributes_and_ranges_are_kept(tmp_path):
    origin = chunk(1, b"conv1") + number(2, 3) + number(3, 1) + number(4, 1)
    more = chunk(4, origin) + chunk(10, number(1, 2) + number(2, 9)) + number(11, 4)
    attr = chunk(7, chunk(1, b"key") + chunk(2, b"value"))
    spare = chunk(5, number(3, 4)) + chunk(8, number(3, 2))
    whole = dump(output([1], 4, more=more), attr, spare, data=bytes(11))
    (tmp_path / f"Add.a.1.2.{TIME}.4.5.6.7").write_bytes(whole)
    said = DeviceFolder().open(tmp_path).ops[0].attributes
    assert said["outputs"][0]["origin"] == {
        "name": "conv1", "output_index": 3, "data_type": 1, "format": 1,
    }  # fmt: skip
    assert said["outputs"][0]["dim_range"] == [[2, 9]]
    assert said["outputs"][0]["arg_index"] == 4
    assert said["attr"] == {"key": "value"}
    assert said["buffers"] == [{"type": 0, "size": 4}]
    assert said["workspaces"] == [{"type": 0, "size": 2}]
    assert said["unused_bytes"] == 1
    assert [said[k] for k in ("task_type", "context", "thread", "device")] == [4, 5, 6, 7]


def test_an_op_that_dumped_nothing_has_no_tensors_and_no_damage(tmp_path):
    for k, data in enumerate((b"", bytes(8), dump())):
        (tmp_path / f"Add.a{k}.1.2.{TIME}").write_bytes(data)
    run = DeviceFolder().open(tmp_path)
    assert len(run.ops) == 3
    assert run.tensors == []
    assert all("damage" not in op.attributes for op in run.ops)


def test_files_that_are_not_dumps_are_named_in_a_note(tmp_path):
    (tmp_path / f"Add.a.1.2.{TIME}").write_bytes(one_output(np.ones(1, "f4")))
    (tmp_path / "convert_failed_file_list.txt").write_text("x")
    (tmp_path / "README").write_text("x")
    (tmp_path / "777").write_text("x")
    (tmp_path / "sub").mkdir()
    notes = " | ".join(DeviceFolder().open(tmp_path).info.notes)
    assert "1 file (README) not read" in notes
    assert "1 file (777) not read: mapping.csv has no names for them" in notes
    assert "1 folder inside not searched" in notes
    assert "convert_failed" not in notes


def test_one_file_opens_too():
    run = open_dump(ASCEND_DATA / "offline_npu_vs_npu/a/Add.add1.1.2.1700000000001000")
    assert [t.key.role for t in run.tensors] == [Role.INPUT, Role.OUTPUT]


def test_formats_are_recognised_by_content(tmp_path):
    assert open_dump(ASCEND_DATA / "offline_mixed/npu").info.options["format"] == "ascend"
    assert open_dump(ASCEND_DATA / "offline_mixed/golden").info.options["format"] == "ascend-golden"
    (tmp_path / f"Add.a.1.2.{TIME}").write_text("a name is not enough")
    assert not DeviceFolder().sniff(tmp_path)
    np.save(tmp_path / "a.npy", np.ones(2))
    assert open_dump(tmp_path).info.options["format"] == "npy"


@pytest.mark.parametrize("name", ["layer.0.1.npy", "x.npy", "mm.INPUT.0.20240101010101000000.npy"])
def test_folders_of_other_arrays_stay_folders_of_arrays(tmp_path, name):
    np.save(tmp_path / name, np.ones(2))
    np.save(tmp_path / f"a.0.{TIME}.npy", np.ones(2))
    assert not GoldenFolder().sniff(tmp_path)


def test_a_folder_without_dumps_is_an_input_error(tmp_path):
    (tmp_path / "x.txt").write_text("x")
    for kind in (DeviceFolder(), GoldenFolder()):
        with pytest.raises(InputError, match=r"other files, such as x\.txt"):
            kind.open(tmp_path)


# Golden arrays


def golden(folder, **arrays):
    for name, array in arrays.items():
        np.save(folder / f"{name.replace('__', '.')}.npy", array)
    return GoldenFolder().open(folder)


def test_outputs_of_one_execution_belong_together_whenever_they_were_saved(tmp_path):
    run = golden(
        tmp_path,
        a__0__1700000000000001=np.zeros(1),
        a__1__1700000000000002=np.ones(2),
        a__0__1700000000000003=np.full(1, 3.0),
        a__1__1700000000000003=np.full(2, 4.0),
    )
    assert [op.key for op in run.ops] == [OpKey("a"), OpKey("a", 1)]
    assert [t.key.index for t in run.tensors] == [0, 1, 0, 1]
    assert values(run, "a", index=1).tolist() == [1, 1]
    assert values(run, "a", index=1, call=1).tolist() == [4, 4]
    assert run.ops[1].attributes == {
        "escaped": "a",
        "timestamp": 1700000000000003,
        "files": ["a.0.1700000000000003.npy", "a.1.1700000000000003.npy"],
    }


@pytest.mark.parametrize("dtype", ["c8", "c16", ">f4", ">i8", "?", "f2", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_type_and_order_are_read(tmp_path, dtype, order):
    array = np.asarray(np.arange(12).reshape(3, 4) * 2, dtype, order=order)
    run = golden(tmp_path, a__0__1700000000000001=array)
    np.testing.assert_array_equal(values(run, "a"), array)


def test_what_is_no_array_is_damage_of_its_op_alone(tmp_path):
    np.save(tmp_path / f"bad.0.{TIME}.npy", np.array([{}], object), allow_pickle=True)
    (tmp_path / f"legacy.0.{TIME}.pb").write_text("x")
    run = golden(tmp_path, a__0__1700000000000001=np.ones(1))
    assert "pickled" in run.op(OpKey("bad")).attributes["damage"]
    assert values(run, "a").tolist() == [1]
    assert any("legacy" in note and "convert" in note for note in run.info.notes)


def test_golden_names_that_were_too_long_are_in_the_mapping(tmp_path):
    np.save(tmp_path / "123.npy", np.ones(1))
    (tmp_path / "mapping.csv").write_text(f"123.npy,long_name.0.{TIME}.npy\n")
    assert GoldenFolder().sniff(tmp_path)
    assert GoldenFolder().open(tmp_path).ops[0].key == OpKey("long_name")
