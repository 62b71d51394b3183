"""Device dumps, golden arrays and rule files that lie, break off or lead astray.

A damaged file is named and the rest of its folder stays usable; nothing is taken on trust that a
file says of its size.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.device_dump_files import (
    chunk,
    dump,
    input_,
    nano,
    nano_tensor,
    number,
    one_output,
    output,
)
from helpers.paths import ASCEND_DATA
from syncpoint.ascend.dumps.device_folder import DeviceFolder
from syncpoint.ascend.dumps.file_names import read_mapping
from syncpoint.ascend.dumps.golden_folder import GoldenFolder
from syncpoint.ascend.dumps.rule_file import RuleFile
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.run.model import OpKey

TIME = 1700000000004000
GOOD = one_output(np.arange(3, dtype=np.float32))
BIG = (1 << 64) - 1


def opened(folder: Path, data: bytes, name: str = "Add.bad.1.2"):
    """A folder of a sound file and this one, read to the last value."""
    (folder / f"Add.good.1.2.{TIME}").write_bytes(GOOD)
    (folder / f"{name}.{TIME}").write_bytes(data)
    run = DeviceFolder().open(folder)
    sound(folder, run)
    assert run.values(run.tensors[0]).tolist() == [0, 1, 2] or run.op(OpKey("good"))
    return run


def sound(folder: Path, run) -> None:
    """Whatever a run claims can be had, and damage is one line."""
    for op in run.ops:
        damage = op.attributes.get("damage", "x")
        assert damage
        assert "\n" not in damage
        assert len(damage) < 2000
        json.dumps(op.attributes)
    for tensor in run.tensors:
        assert tensor.offset + tensor.nbytes <= 2 * sum(
            f.stat().st_size for f in folder.iterdir() if f.is_file()
        )
        assert run.values(tensor).shape == tensor.shape


def damage(run, op: str = "bad") -> str:
    return run.op(OpKey(op)).attributes["damage"]


@pytest.mark.parametrize(
    ("said", "match"),
    [
        (output([3], BIG), "bytes at"),
        (output([3], 1 << 63), "bytes at"),
        (output([BIG], 12), "the shape is too large"),
        (output([1 << 33, 1 << 33], 12), "the shape is too large"),
        (output([0, BIG, BIG], 0), "the shape is too large"),
        (output([1] * 65, 12), "the shape is too large"),
        (output([4], 12), "12 bytes for 4 of FLOAT, which takes 16"),
        (output([3], 0), "0 bytes for 3"),
        (output([], 3), "3 bytes for a scalar"),
        (output([3], 12, data_type=77), "data_type 77"),
        (output([3], 12, data_type=BIG), "data_type -1"),
        (input_([3], 12) + output([3], 12), "bytes at"),
        (input_([1], BIG) + output([3], 12), "bytes at"),
    ],
)
def test_a_header_that_lies_is_damage_of_its_tensor(tmp_path, said, match):
    run = opened(tmp_path, dump(said, data=bytes(12)))
    assert match in damage(run)


@pytest.mark.parametrize("length", [BIG, 1 << 62, 10**9, 100])
def test_a_length_beyond_the_file_is_damage(tmp_path, length):
    run = opened(tmp_path, dump(output([3], 12), data=bytes(12), length=length))
    assert "its header alone needs" in damage(run)


def test_a_giant_header_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / f"Add.bad.1.2.{TIME}"
    path.write_bytes(struct.pack("<Q", 1 << 40))
    os.truncate(path, (1 << 40) + 8)
    assert "over the limit of 4194304" in damage(DeviceFolder().open(tmp_path))


@pytest.mark.parametrize(
    "body",
    [
        chunk(3, b"") * 1_000_000,
        chunk(4, b"") * 1_000_000,
        chunk(7, b"") * 1_000_000,
        chunk(3, chunk(10, b"") * 1_000_000),
        chunk(3, chunk(3, chunk(1, b"\1" * 4_000_000))),
        chunk(77, b"") * 1_000_000,
        b"\x0b" * 100_000,
        chunk(3, chunk(3, b"\x0b" * 100_000)),
        b"\xff" * 1000,
        chunk(6, b"\xff" * 1000),
    ],
)
def test_a_header_made_to_swell_stays_small(tmp_path, body):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    opened(tmp_path, struct.pack("<Q", len(body)) + body)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10


def test_a_file_cut_anywhere_is_told_and_never_read_beyond(tmp_path):
    said = (input_([5], 20), output([2, 3], 24, address=9), number(2, 12345))
    whole = dump(*said, data=bytes(range(44)), name="bad")
    for end in range(len(whole)):
        run = opened(tmp_path, whole[:end])
        if end > 0:
            assert damage(run)
    assert "damage" not in opened(tmp_path, whole).op(OpKey("bad")).attributes


def test_values_of_a_file_that_shrank_are_a_format_error(tmp_path):
    path = tmp_path / f"Add.a.1.2.{TIME}"
    path.write_bytes(GOOD)
    run = DeviceFolder().open(tmp_path)
    path.write_bytes(GOOD[:-1])
    with pytest.raises(FormatError, match="truncated"):
        run.values(run.tensors[0])


def test_a_link_out_of_the_folder_is_damage(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(GOOD)
    np.save(tmp_path / "secret.npy", np.ones(3))
    (tmp_path / f"in/Add.bad.1.2.{TIME}").symlink_to(tmp_path / "secret")
    (tmp_path / f"in/bad.0.{TIME}.npy").symlink_to(tmp_path / "secret.npy")
    (tmp_path / f"in/gone.0.{TIME}.npy").symlink_to(tmp_path / "in/nowhere")
    (tmp_path / f"in/Add.gone.1.2.{TIME}").symlink_to(tmp_path / "in/nowhere")
    (tmp_path / f"in/Add.loop.1.2.{TIME}").symlink_to(tmp_path / f"in/Add.loop.1.2.{TIME}")
    device, golden = DeviceFolder().open(tmp_path / "in"), GoldenFolder().open(tmp_path / "in")
    assert "leads out of it" in damage(device)
    assert "leads out of it" in damage(golden)
    assert damage(device, "gone")
    assert damage(device, "loop")
    assert damage(golden, "gone")
    assert device.tensors == golden.tensors == []
    assert not DeviceFolder().sniff(tmp_path / "in")
    assert not GoldenFolder().sniff(tmp_path / "in")


def test_pipes_are_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / f"Add.bad.1.2.{TIME}")
    os.mkfifo(tmp_path / f"bad.0.{TIME}.npy")
    os.mkfifo(tmp_path / "mapping.csv")
    assert "not a regular file" in damage(DeviceFolder().open(tmp_path))
    assert "not a regular file" in damage(GoldenFolder().open(tmp_path))
    assert not DeviceFolder().sniff(tmp_path)
    assert not GoldenFolder().sniff(tmp_path)


@pytest.mark.parametrize(
    "full", ["../Relu.x.1.2.3", "/etc/passwd", "Relu.../../x.1.2.3", "a/../Relu.x.1.2.3"]
)
def test_a_mapping_that_leads_out_names_no_file(tmp_path, full):
    (tmp_path / "123").write_bytes(GOOD)
    (tmp_path / "mapping.csv").write_text(f"123,{full}\n../../x,Relu.y.1.2.3\n")
    (tmp_path / f"Add.good.1.2.{TIME}").write_bytes(GOOD)
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [OpKey("good")]
    assert any("(123) not read" in note for note in run.info.notes)


def test_a_damaged_mapping_is_a_note_and_the_rest_stays_usable(tmp_path):
    (tmp_path / "mapping.csv").write_bytes(b"\xff\xff")
    run = opened(tmp_path, GOOD)
    assert any("mapping.csv is not used" in note for note in run.info.notes)
    outside = tmp_path / "outside.csv"
    outside.write_text("1,Relu.x.1.2.3\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/mapping.csv").symlink_to(outside)
    run = opened(tmp_path / "in", GOOD)
    assert any("leads out" in note for note in run.info.notes)


def test_names_that_are_no_text_are_left_out(tmp_path):
    (tmp_path / f"Add.good.1.2.{TIME}").write_bytes(GOOD)
    bad = os.fsencode(tmp_path) + b"/Add.\xff.1.2.3"
    with open(bad, "wb") as file:  # noqa: PTH123  # a path that is no text
        file.write(GOOD)
    (tmp_path / "Add.\x1b[31m.1.2.3").write_bytes(GOOD)
    run = DeviceFolder().open(tmp_path)
    assert [op.key for op in run.ops] == [OpKey("good")]
    assert any("not printable" in note for note in run.info.notes)


def test_a_name_in_the_header_that_is_no_text_is_not_used(tmp_path):
    said = output([3], 12)
    for name in ("a\x1b[31m", "a\n", "\ud800".encode("utf-8", "surrogatepass").decode("latin1")):
        run = opened(tmp_path, dump(said, data=bytes(12), name=name))
        assert all(op.key.op.isprintable() for op in run.ops)


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch exploded",))


def test_pickles_among_golden_arrays_are_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    np.save(file, np.array([Bomb()], object), allow_pickle=True)
    (tmp_path / "in").mkdir()
    (tmp_path / f"in/bad.0.{TIME}.npy").write_bytes(file.getvalue())
    (tmp_path / f"in/worse.0.{TIME}.npy").write_bytes(pickle.dumps(Bomb()))
    np.save(tmp_path / f"in/good.0.{TIME}.npy", np.ones(2))
    run = GoldenFolder().open(tmp_path / "in")
    assert "pickled" in damage(run)
    assert damage(run, "worse")
    assert run.values(run.tensors[0]).tolist() == [1, 1]
    assert not (tmp_path / "exploded").exists()


def test_opening_touches_only_headers(tmp_path):
    """Two hundred files that claim a hundred gigabytes between them, none of which are there."""
    size = 1 << 29
    for k in range(200):
        path = tmp_path / f"Conv2D.op{k}.{k}.2.{TIME + k}"
        head = dump(input_([4], 16), output([size // 2], size, 2))
        path.write_bytes(head)
        os.truncate(path, len(head) + 16 + size)
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) > 10**11
    read = bytes_read()
    run = DeviceFolder().open(tmp_path)
    assert len(run.tensors) == 400
    assert bytes_read() - read < 200 * 8192 + (8 << 20)  # and what is imported on the way
    assert run.window(run.tensors[1], size // 2 - 2, size // 2).tolist() == [0, 0]


def bytes_read() -> int:
    try:
        return int(Path("/proc/self/io").read_text().split()[1])
    except OSError:
        pytest.skip("this system does not say what was read")


# Fuzzers: whatever the bytes are, a run that holds what it claims, or one line.


def fuzzed(folder: Path, data: bytes, kind=DeviceFolder, name: str = f"Add.bad.1.2.{TIME}") -> None:
    (folder / name).write_bytes(data)
    kind().sniff(folder)
    try:
        run = kind().open(folder)
    except SyncpointError as error:
        assert "\n" not in str(error)
        return
    assert len(run.ops) == 1
    sound(folder, run)


def mutated(whole: bytes):
    """A sound file with bytes exchanged, cut off or put in."""
    change = st.tuples(st.integers(0, len(whole)), st.binary(max_size=9), st.integers(0, 9))

    def apply(changes):
        data = whole
        for at, new, old in changes:
            data = data[:at] + new + data[at + old :]
        return data

    return st.lists(change, min_size=1, max_size=4).map(apply)


REAL = [p.read_bytes() for p in sorted((ASCEND_DATA / "offline_mixed/npu").glob("*.1*")) if
        p.stat().st_size < 400]  # fmt: skip
SLICED = dump(
    output([2], 8),
    chunk(
        7, chunk(2, b'{"slice_instance_num":1,"output_tensor_slice":[[[{"lower":0,"higher":2}]]]}')
    ),
    data=bytes(8),
)
NANO = nano([nano_tensor([3], 12, output=False)], [nano_tensor([2, 2], 16)], bytes(28))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_header(tmp_path_factory, data):
    framed = struct.pack("<Q", max(len(data) - 20, 0)) + data
    fuzzed(tmp_path_factory.mktemp("fuzz"), framed)


@given(st.sampled_from([*REAL, SLICED]).flatmap(mutated))
def test_a_device_file_with_changed_bytes(tmp_path_factory, data):
    fuzzed(tmp_path_factory.mktemp("fuzz"), data)


@given(mutated(NANO))
def test_a_file_of_the_smallest_devices_with_changed_bytes(tmp_path_factory, data):
    fuzzed(tmp_path_factory.mktemp("fuzz"), data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 5) | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["lower", "higher", "slice_instance_num", "outputCutList",
                                 "input_tensor_slice", "output_tensor_slice"]), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    st.booleans(),
)  # fmt: skip
def test_any_plan_of_slices(tmp_path_factory, said, cut):
    folder = tmp_path_factory.mktemp("fuzz")
    attr = chunk(7, chunk(2, json.dumps(said).encode()))
    for k in range(2):
        name = f"Add.a_lxslice{k}.1.2.{TIME}" if cut else f"Add.a.1.2.{TIME}.4.5.{k}.0"
        (folder / name).write_bytes(dump(output([2, 1], 8), attr, data=bytes(8)))
    run = DeviceFolder().open(folder)
    assert len(run.ops) in (1, 2)
    sound(folder, run)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@given(mutated(npy(np.asfortranarray(np.ones((2, 3), ">f4")))))
def test_a_golden_array_with_changed_bytes(tmp_path_factory, data):
    fuzzed(tmp_path_factory.mktemp("fuzz"), data, GoldenFolder, f"bad.0.{TIME}.npy")


@given(st.binary(max_size=80) | st.text(max_size=40).map(str.encode))
def test_any_bytes_as_a_mapping(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "mapping.csv").write_bytes(data)
    try:
        read_mapping(folder)
    except FormatError as error:
        assert "\n" not in str(error)
    fuzzed(folder, GOOD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["graph", "op", "name", "type", "id", "input", "attr", "key", "value",
                             "list", "s", "i", "b", "output_desc", "dtype"]), inner, max_size=5)
    ),
    max_leaves=20,
)  # fmt: skip


@given(JSON, JSON, mutated((ASCEND_DATA / "offline_batch/json/g.json").read_bytes()))
def test_any_json_as_a_rule_file(tmp_path_factory, body, op, text):
    path = tmp_path_factory.mktemp("fuzz") / "r.json"
    nearly = {"graph": [{"op": [{"name": "a", "type": "T", "attr": op, "input": op}, op]}]}
    for data in (json.dumps(body).encode(), json.dumps(nearly).encode(), text):
        path.write_bytes(data)
        try:
            RuleFile.load(path)
        except FormatError as error:
            assert "\n" not in str(error)
