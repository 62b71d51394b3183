"""Dumps of msProbe that lie, break off or lead astray: one line of error, and nothing executed."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.msprobe_dumps import real, tensor, write
from helpers.refusals import refused
from syncpoint.ascend.msprobe.pickled_tensor import read_pickled_tensor
from syncpoint.ascend.msprobe.pt_file import locate_tensor
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.registry import find_format
from syncpoint.errors import FormatError, SyncpointError

GOOD = real("tensor_target") / "dump_tensor_data" / "Functional.linear.0.forward.input.1.pt"
FOLDER = "Functional.linear.0.forward.input.1"


def members() -> dict[str, bytes]:
    with zipfile.ZipFile(GOOD) as archive:
        return {m.filename: archive.read(m) for m in archive.infolist()}


def packed(path: Path, inside: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in inside.items():
            archive.writestr(name, data)
    return path


def with_pickle(path: Path, pickled: bytes) -> Path:
    return packed(path, {**members(), f"{FOLDER}/data.pkl": pickled})


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.system, ("touch exploded",))


class _Named:
    """Something that a pickle names, with arguments."""

    def __init__(self, name: str, *arguments: object) -> None:
        self.name, self.arguments = name, arguments


class _Pickler(pickle._Pickler):  # the one in Python, which lets names be written as they are
    def save(self, obj, save_persistent_id=True):
        if isinstance(obj, _Named):
            module, _, name = obj.name.rpartition(".")
            self.write(b"c" + f"{module}\n{name}\n".encode())
            if obj.arguments != (None,):
                super().save(obj.arguments)
                self.write(b"R")
            return
        super().save(obj, save_persistent_id)

    def persistent_id(self, obj):
        return obj.said if isinstance(obj, _Storage) else None


class _Storage:
    def __init__(self, *said: object) -> None:
        self.said = said


FLOATS = _Named("torch.FloatStorage", None)


def tensor_pickle(
    storage: object = None,
    offset: object = 0,
    shape: object = (16, 16),
    strides: object = (16, 1),
    hooks: object = None,
    made_by: str = "torch._utils._rebuild_tensor_v2",
) -> bytes:
    storage = _Storage("storage", FLOATS, "0", "cpu", 256) if storage is None else storage
    hooks = _Named("collections.OrderedDict") if hooks is None else hooks
    out = io.BytesIO()
    _Pickler(out, 2).dump(_Named(made_by, storage, offset, shape, strides, False, hooks))
    return out.getvalue()


def test_the_pickle_that_the_cases_change_is_sound(tmp_path):
    found = locate_tensor(with_pickle(tmp_path / "x.pt", tensor_pickle()))
    assert (found.shape, found.nbytes, found.dense) == ((16, 16), 1024, True)


@pytest.mark.parametrize(
    ("pickled", "match"),
    [
        (pickle.dumps(Bomb(), 2), "calls .*system"),
        (pickle.dumps(Bomb(), 4), "calls .*system"),
        (pickle.dumps({"a": 1}, 2), "the instruction EMPTY_DICT"),
        (pickle.dumps([1], 2), "the instruction EMPTY_LIST"),
        (pickle.dumps(OrderedDict(a=1), 2), "the instruction SETITEM|calls"),
        (pickle.dumps(7, 2), "one tensor"),
        (pickle.dumps(Path("x"), 2), "the instruction|calls pathlib"),
        (b"cos\nsystem\n(S'true'\ntR.", "the instruction STRING"),
        (b"\x80\x02(c__builtin__\neval\nX\x01\x00\x00\x001tb.", "the instruction BUILD"),
        (b"\x80\x02c__builtin__\neval\n)\x81.", "the instruction NEWOBJ"),
        (b"\x80\x02(i__builtin__\neval\n.", "the instruction INST"),
        (b"\x80\x02\x82\x01.", "the instruction EXT1"),
        (b"", "does not describe a tensor"),
        (b"\x80\x02", "does not describe a tensor"),
        (b"\x80\x02R.", "does not describe a tensor"),
        (b"\x80\x02t.", "does not describe a tensor"),
        (b"\x80\x02\x87.", "does not describe a tensor"),
        (b"\x80\x02h\x07.", "does not describe a tensor"),
        (b"\x80\x02Q.", "does not describe a tensor"),
        (b"\x80\x02X\xff\xff\xff\xffabc.", "does not describe a tensor"),
        (b"\x80\x02(K\x01\x86.", "does not describe a tensor"),
        (tensor_pickle(made_by="torch._utils._rebuild_qtensor"), "calls torch._utils"),
        (tensor_pickle(made_by="builtins.exec"), "calls builtins exec"),
        (tensor_pickle(hooks=_Named("collections.OrderedDict", [])), "the instruction EMPTY_LIST"),
        (tensor_pickle(hooks=7), "has hooks"),
        (tensor_pickle(_Storage("module", FLOATS, "0", "cpu", 256)), "does not refer to a storage"),
        (tensor_pickle(_Storage("storage", FLOATS, "../0", "cpu", 256)), "a storage has the name"),
        (tensor_pickle(_Storage("storage", FLOATS, "9", "cpu", 256)), "no storage 9"),
        (tensor_pickle(_Storage("storage", FLOATS, "0", "cpu", -1)), "no type or size"),
        (
            tensor_pickle(_Storage("storage", _Named("os.FloatStorage", None), "0", "cpu", 256)),
            "a storage has the unknown type os",
        ),
        (tensor_pickle(offset=-1), "integers from 0 up"),
        (tensor_pickle(offset=1), "its storage, which has only 256"),
        (tensor_pickle(shape=(1 << 40, 1 << 40)), "the shape is too large"),
        (tensor_pickle(shape=(16, 16, 16), strides=(0, 16, 1)), "it was expanded"),
        (tensor_pickle(shape=(1 << 30,), strides=(0,)), "it was expanded"),
        (tensor_pickle(shape=(16, 16), strides=(17, 1)), "its storage, which has only 256"),
        (tensor_pickle(shape=(16,), strides=(16, 1)), "1 axes and 2 strides"),
        (tensor_pickle(shape=(True, 16)), "integers from 0 up"),
        (tensor_pickle(shape="x"), "integers from 0 up"),
        (tensor_pickle(strides=(1 << 70, 1)), "integers|the shape is too large"),
    ],
)
def test_pickles_that_are_not_a_plain_tensor_are_refused(tmp_path, monkeypatch, pickled, match):
    monkeypatch.chdir(tmp_path)
    refused(locate_tensor, with_pickle(tmp_path / "x.pt", pickled), match=match)
    assert not (tmp_path / "exploded").exists()


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_raise_anything_else(data):
    for pickled in (data, b"\x80\x02" + data, tensor_pickle()[:-20] + data):
        try:
            read_pickled_tensor(pickled, "x")
        except FormatError as error:
            assert "\n" not in str(error)


@given(st.integers(0, 2000), st.integers(0, 255))
def test_no_damage_to_a_file_makes_it_raise_anything_else(at, byte):
    import tempfile

    data = bytearray(GOOD.read_bytes())
    data[at % len(data)] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt"
        path.write_bytes(data)
        try:
            assert locate_tensor(path).nbytes <= 1024
        except SyncpointError as error:
            assert "\n" not in str(error)


def test_archives_that_are_not_torchs_are_refused(tmp_path):
    inside = members()
    path = tmp_path / "x.pt"
    whole = GOOD.read_bytes()
    for length in (0, 10, 500, len(whole) - 30):
        path.write_bytes(whole[:length])
        refused(locate_tensor, path, match="is not a ZIP file of torch.save")
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"old format")
    refused(locate_tensor, path, match="torch before 1.6")
    refused(
        locate_tensor,
        packed(path, inside, zipfile.ZIP_DEFLATED),
        match="torch.save stores members as they are",
    )
    refused(locate_tensor, packed(path, {"a/b": b""}), match="one data.pkl")
    refused(locate_tensor, packed(path, {**inside, "other/data.pkl": b""}), match="one data.pkl")
    large = {**inside, f"{FOLDER}/data.pkl": bytes(1 << 17)}
    refused(locate_tensor, packed(path, large), match="over the limit of 65,536 bytes")
    short = {**inside, f"{FOLDER}/data/0": bytes(100)}
    refused(locate_tensor, packed(path, short), match="its storage, which has only 25")
    packed(path, inside)
    data = path.read_bytes().replace(inside[f"{FOLDER}/data.pkl"][:8], b"\x80\x02ctorcX", 1)
    path.write_bytes(data)
    refused(locate_tensor, path, match="checksum|pickle")
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        for name in ("a/data.pkl", "a/data.pkl"):
            archive.writestr(name, b"x")
    refused(locate_tensor, path, match="two members with the same name")
    refused(locate_tensor, tmp_path, match="regular file|cannot read")
    refused(locate_tensor, tmp_path / "none.pt", match="cannot read")


def entry(**said: object) -> dict[str, object]:
    return {"Torch.f.0.forward": {"input_args": [], "output": [{**tensor([2]), **said}]}}


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"data_name": "../secret.pt"}, "leads out of its folder"),
        ({"data_name": "/etc/passwd"}, "leads out of its folder"),
        ({"data_name": "a\0b"}, "the file name of"),
        ({"shape": [1 << 62, 1 << 62]}, "the shape .* is too large"),
        ({"shape": [1] * 65}, "the shape .* is too large"),
        ({"shape": [-1]}, "a list of lengths"),
        ({"shape": [1.5]}, "a list of lengths"),
        ({"shape": "2"}, "a list of lengths"),
    ],
)
def test_entries_that_lie_are_refused(tmp_path, said, match):
    (tmp_path / "secret.pt").write_bytes(GOOD.read_bytes())
    folder = write(tmp_path / "d", entry(**said), "tensor")
    (folder / "dump_tensor_data").mkdir()
    refused(open_dump, folder, match=match)


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    folder = write(tmp_path / "d", entry(data_name="x.pt"), "tensor")
    (folder / "dump_tensor_data").mkdir()
    (folder / "dump_tensor_data" / "x.pt").symlink_to(GOOD)
    refused(open_dump, folder, match="leads out of its folder")


def test_a_folder_of_values_elsewhere_is_refused(tmp_path):
    folder = write(tmp_path / "d", entry(data_name=GOOD.name), "tensor")
    (folder / "dump_tensor_data").symlink_to(GOOD.parent)
    refused(open_dump, folder, match="leads out of its folder")


def test_a_tensor_other_than_the_entry_says_is_unreadable(tmp_path):
    folder = write(tmp_path / "d", entry(data_name="x.pt"), "tensor")
    (folder / "dump_tensor_data").mkdir()
    (folder / "dump_tensor_data" / "x.pt").write_bytes(GOOD.read_bytes())
    run = open_dump(folder)
    refused(run.values, run.tensors[0], match=r"dump.json says f32 of shape \[2\]")
    refused(run.window, run.tensors[0], 0, 1, match="dump.json says f32")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('{"task":"tensor","dump_data_dir":null,"data":[]}', "`data` in .* must be a JSON object"),
        ('{"task":"tensor","dump_data_dir":null}', "`data` in .* must be a JSON object"),
        ('{"task":"tensor","dump_data_dir":null,"data":{"a":7}}', "must be a JSON object"),
        ('{"task":"tensor","dump_data_dir":null,"data":{"a":{}', "valid JSON"),
        ('{"task":"tensor","dump_data_dir":null,"data":{"a":{},"a":{}}}', "has the key 'a' twice"),
        ('{"task":"tensor","dump_data_dir":null,"data":{"a":' + "[" * 5000, "valid JSON"),
    ],
)
def test_a_dump_json_that_is_not_one_is_refused(tmp_path, text, match):
    (tmp_path / "dump.json").write_text(text)
    assert find_format(tmp_path).name == "msprobe"
    refused(open_dump, tmp_path, match=match)


def test_deep_nesting_is_refused(tmp_path):
    body: object = tensor([2])
    for _ in range(40):
        body = [body]
    data = {"Torch.f.0.forward": {"input_args": body, "output": []}}
    refused(open_dump, write(tmp_path / "d", data), match="nested in more than")


@pytest.mark.parametrize("name", ["stack", "construct"])
@pytest.mark.parametrize("text", ["[]", "{", '{"0": 7}', '{"0": [1, 2]}'])
def test_the_files_beside_it_may_be_damaged(tmp_path, name, text):
    folder = write(tmp_path / "d", entry())
    (folder / f"{name}.json").write_text(text)
    if name == "construct" and text.startswith('{"0"'):
        assert open_dump(folder).ops  # parents that are no names are none
        return
    refused(open_dump, folder, match="JSON object|valid JSON|names and a stack|two lists")


def test_another_framework_is_said_to_be_one(tmp_path):
    folder = write(tmp_path / "d", entry(), framework="mindspore")
    with pytest.raises(SyncpointError, match="only dumps of PyTorch can be read"):
        open_dump(folder)


def test_ranks_and_processes_do_not_mix(tmp_path):
    for name in ("rank0", "proc1"):
        write(tmp_path / "t" / "step0" / name, entry())
    assert find_format(tmp_path / "t").name == "msprobe"
    refused(open_dump, tmp_path / "t", match="folders of ranks .* and of processes")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(
                        ["type", "dtype", "shape", "value", "md5", "data_name", "Max", "output",
                         "input_args", "input_kwargs", "parameters", "input"]), inner, max_size=5),
                    max_leaves=12))  # fmt: skip
def test_no_json_makes_it_raise_anything_else(body):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "d", {"Module.a.Linear.forward.0": body, "x": body})
        (path / "dump_tensor_data").mkdir()
        try:
            run = open_dump(path)
        except SyncpointError as error:
            assert "\n" not in str(error)
            return
        assert json.dumps([op.attributes for op in run.ops])


def saved_dump(folder: Path, values: object, **said: object) -> tuple[Path, int]:
    """A dump of one tensor as torch saves it; its file, and the place of its first value."""
    torch = pytest.importorskip("torch")
    assert isinstance(values, torch.Tensor)
    shape = {"shape": list(values.shape), "data_name": "x.pt"}
    write(folder, entry(**shape, **said), "tensor")
    (folder / "dump_tensor_data").mkdir()
    path = folder / "dump_tensor_data" / "x.pt"
    torch.save(values, path)
    return path, path.read_bytes().index(bytes(values.untyped_storage()))


def damage(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("turned", [False, True])
def test_the_storage_of_a_tensor_is_checked_against_its_archive(tmp_path, turned):
    """Also where the tensor lies transposed in it, or is a part of it."""
    torch = pytest.importorskip("torch")
    values = torch.linspace(-1, 1, 24).reshape(4, 6)
    path, offset = saved_dump(tmp_path / "d", values.t() if turned else values[:3])
    run = open_dump(tmp_path / "d")
    (tensor,) = run.tensors
    assert run.verify(tensor)
    assert run.verify(tensor, run.unverified_values(tensor))
    damage(path, offset + 5)
    run = open_dump(tmp_path / "d")
    for read in (run.values, run.verify, lambda t: run.window(t, 0, 2)):
        refused(
            read, tensor, match="the bytes of Torch.f.0.forward in .* do not match their checksum"
        )


def test_what_dump_json_says_of_a_file_without_checksums_is_consulted(tmp_path):
    torch = pytest.importorskip("torch")
    values = torch.linspace(-1, 1, 24)
    crc = f"{zlib.crc32(values.numpy().tobytes()):08x}"
    path, offset = saved_dump(tmp_path / "d", values, md5=crc)
    content = bytearray(path.read_bytes())
    entry_at = content.find(b"PK\x01\x02")
    while entry_at >= 0:  # torch can be told to leave the sums out
        content[entry_at + 16 : entry_at + 20] = bytes(4)
        entry_at = content.find(b"PK\x01\x02", entry_at + 1)
    path.write_bytes(content)
    run = open_dump(tmp_path / "d")
    assert run.verify(run.tensors[0])
    np.testing.assert_array_equal(run.values(run.tensors[0]), values.numpy())
    damage(path, offset + 5)
    run = open_dump(tmp_path / "d")
    refused(run.values, run.tensors[0], match="as dump.json has them")
