"""Other tools' files that lie, break off or lead astray: one line of error each."""

from __future__ import annotations

import json
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from helpers.hostile_npy import HOSTILE_NPY, header, npy
from helpers.refusals import refused
from syncpoint.dumps.npy_folder import NpyFolder
from syncpoint.dumps.npz import NpzFile
from syncpoint.dumps.open_dump import open_dump
from syncpoint.dumps.safetensors import SafetensorsFile
from syncpoint.errors import FormatError, SyncpointError

# safetensors


def entry(start: int, end: int, dtype: str = "U8", shape: object = None) -> dict[str, object]:
    return {
        "dtype": dtype,
        "shape": [end - start] if shape is None else shape,
        "data_offsets": [start, end],
    }


def safetensors(path: Path, header: object, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


@pytest.mark.parametrize(
    ("header", "data", "match"),
    [
        (b"{", b"", "valid JSON"),
        (b"{\xff}", b"", "UTF-8"),
        (b"[]", b"", "a JSON object"),
        (b'{"a":1}', b"", "is not an object with dtype, shape and data_offsets"),
        (b'{"a":' + json.dumps(entry(0, 1)).encode() + b',"a":' + b"1}", b"x", "'a' twice"),
        ({"a": entry(0, 100)}, b"short", "cut off: it should end at byte .*, and the file has"),
        (
            {"a": entry(2**62, 2**62 + 1)},
            b"short",
            "cut off: it should end at byte .*, and the file has",
        ),
        ({"a": entry(4, 2, shape=[2])}, b"short", "two increasing numbers"),
        ({"a": entry(-1, 4)}, b"short", "two increasing numbers"),
        ({"a": entry(0, 4, shape=[5])}, b"long", "has 4 bytes, but U8 in shape \\[5\\] needs 5"),
        ({"a": entry(0, 4, shape=[-4])}, b"long", "an impossible shape"),
        ({"a": entry(0, 4, shape=[2**62, 2**62])}, b"long", "an impossible shape"),
        ({"a": entry(0, 4, shape=[True])}, b"long", "an impossible shape"),
        ({"a": entry(0, 4, shape=4)}, b"long", "an impossible shape"),
        ({"a": entry(0, 4, "PICKLE")}, b"long", "the unknown dtype"),
        ({"a": entry(0, 4, None)}, b"long", "the unknown dtype"),
        ({"a": entry(0, 2), "b": entry(1, 4)}, b"long", "an overlap before the tensor 'b'"),
        ({"a": entry(0, 1), "b": entry(2, 4)}, b"long", "a hole before the tensor 'b'"),
        ({"a": entry(0, 2)}, b"long", "2 bytes after its last tensor"),
        (
            {"a": {"dtype": "U8", "shape": [4]}},
            b"long",
            "two increasing numbers",
        ),
    ],
)
def test_a_safetensors_header_that_lies_is_a_format_error(tmp_path, header, data, match):
    path = safetensors(tmp_path / "a.safetensors", header, data)
    refused(SafetensorsFile().open, path, match=match)


@pytest.mark.parametrize("length", [2**64 - 1, 2**40, 10**9, 200])
def test_a_giant_header_length_is_refused_before_it_is_read(tmp_path, length):
    path = safetensors(tmp_path / "a.safetensors", {"a": entry(0, 1)}, b"x", length)
    refused(open_dump, path, match="its header should end at byte")


def test_a_safetensors_file_that_is_too_short_or_truncated_is_a_format_error(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": np.ones(100), "b": np.ones(3, np.uint8)}, path)
    whole = path.read_bytes()
    for end in (0, 5, 8, 20, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError):
            SafetensorsFile().open(path)


@given(st.binary(max_size=200))
def test_any_bytes_as_safetensors_bring_only_our_errors(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "a.safetensors"
    path.write_bytes(struct.pack("<Q", max(len(data) - 3, 0)) + data)
    with pytest.raises(SyncpointError):
        SafetensorsFile().open(path)
        raise FormatError("it opened")


# .npy and .npz


@pytest.mark.parametrize(("data", "match"), HOSTILE_NPY)
def test_an_npy_that_is_no_array_of_numbers_is_a_format_error(tmp_path, monkeypatch, data, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.npy").write_bytes(data)
    refused(NpyFolder().open, tmp_path / "a", match=match)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "x.npz", "w", method) as archive:
            archive.writestr("x.npy", data)
        refused(NpzFile().open, tmp_path / "x.npz", match=match)
    assert not (tmp_path / "exploded").exists()


def test_links_that_leave_the_folder_are_refused(tmp_path):
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "secret.npy", np.ones(3))
    (tmp_path / "in" / "x.npy").symlink_to(tmp_path / "secret.npy")
    refused(open_dump, tmp_path / "in", match="leads out of it")


def test_a_link_inside_the_folder_is_followed(tmp_path):
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "y.npy").symlink_to(tmp_path / "x.npy")
    assert len(open_dump(tmp_path).tensors) == 2


def test_an_npy_that_is_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "x.npy")
    refused(NpyFolder().open, tmp_path, match="a regular file")


def npz(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def directory_entry(path: Path) -> int:
    """Where the central directory begins, which is what readers of zips believe."""
    return path.read_bytes().rindex(b"PK\x01\x02")


def patch(path: Path, position: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[position : position + len(data)] = data
    path.write_bytes(whole)


def test_a_claim_that_deflate_cannot_keep_is_refused_before_memory_is_taken(tmp_path):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**28},)}}"
    path = npz(tmp_path / "a.npz", ("x.npy", header(text)), method=zipfile.ZIP_DEFLATED)
    patch(path, directory_entry(path) + 24, struct.pack("<I", 2**31 + 10))
    refused(NpzFile().open, path, match="expand to 2147483658; deflate expands at most")


def test_a_member_that_inflates_to_more_than_a_machine_should_take_is_refused(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("syncpoint.dumps.zip_members.MAX_INFLATED", 1 << 20)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20))
    refused(NpzFile().open, path, match="more than the limit of 1048576; save it with np.savez")


@pytest.mark.parametrize("change", [-8, 8])
def test_a_member_that_inflates_to_another_size_than_claimed_is_a_format_error(tmp_path, change):
    data = npy(np.arange(100.0))
    path = npz(tmp_path / "a.npz", ("x.npy", data), method=zipfile.ZIP_DEFLATED)
    patch(path, directory_entry(path) + 24, struct.pack("<I", len(data) + change))
    refused(NpzFile().open, path, match="bytes, but its header declares")


def test_damaged_deflated_bytes_are_told_when_values_are_asked_for(tmp_path):
    path = npz(tmp_path / "a.npz", ("x.npy", npy(np.random.default_rng(0).random(5000))),
               method=zipfile.ZIP_DEFLATED)  # fmt: skip
    patch(path, 20_000, b"\0\xff" * 20)
    run = NpzFile().open(path)
    refused(run.values, run.tensors[0], match="the bytes of x in .* do not match their checksum")


def test_a_member_that_deflates_on_and_on_yields_no_more_than_it_claimed(tmp_path):
    """The header is true to the claim; the stream behind it is a thousand times as long."""
    honest = npy(np.zeros(10))
    path = npz(tmp_path / "a.npz", ("x.npy", honest + bytes(10**7)), method=zipfile.ZIP_DEFLATED)
    patch(path, directory_entry(path) + 24, struct.pack("<I", len(honest)))
    run = NpzFile().open(path)
    refused(run.values, run.tensors[0], match="the bytes of x in .* do not match their checksum")


def test_zips_that_are_damaged_or_hold_something_else_are_format_errors(tmp_path):
    path = npz(tmp_path / "a.npz", ("x.npy", npy(np.ones(3))), ("y.txt", b"hello"))
    refused(NpzFile().open, path, match="a member that is not a .npy file: 'y.txt'")
    path = npz(tmp_path / "b.npz", ("x.npy", npy(np.ones(3))))
    patch(path, 0, b"XXXX")
    refused(NpzFile().open, path, match="its local ZIP header is not where")
    path = npz(tmp_path / "c.npz", ("x.npy", npy(np.ones(3))))
    path.write_bytes(path.read_bytes()[:-30])
    refused(NpzFile().open, path, match="not a valid ZIP file")
    path = npz(tmp_path / "d.npz", ("x.npy", npy(np.ones(3))), method=zipfile.ZIP_LZMA)
    refused(NpzFile().open, path, match="another method than deflate")


def test_a_member_that_points_outside_its_file_is_a_format_error(tmp_path):
    path = npz(tmp_path / "a.npz", ("x.npy", npy(np.ones(3))))
    patch(path, directory_entry(path) + 20, struct.pack("<II", 2**30, 2**30))
    refused(NpzFile().open, path, match="should end at byte .*, and the file has")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_occurs_twice_in_an_npz_is_a_format_error(tmp_path):
    path = npz(tmp_path / "a.npz", ("x.npy", npy(np.ones(3))), ("x.npy", npy(np.zeros(3))))
    refused(NpzFile().open, path, match="'x' twice")


def test_names_with_dots_in_an_npz_are_only_names(tmp_path):
    path = npz(tmp_path / "a.npz", ("../../etc/x.npy", npy(np.ones(3))))
    run = NpzFile().open(path)
    assert run.ops[0].key.op == "../../etc/x"
    assert run.values(run.tensors[0]).tolist() == [1, 1, 1]


def test_an_npz_with_flipped_bytes_brings_only_our_errors(tmp_path):
    path = tmp_path / "a.npz"
    rng = np.random.default_rng(0)
    np.savez_compressed(path, a=rng.random(100), b=np.asfortranarray(rng.random((5, 7))))
    whole = path.read_bytes()
    for _ in range(300):
        broken = bytearray(whole)
        for position in rng.integers(0, len(whole), 4):
            broken[position] = rng.integers(0, 256)
        path.write_bytes(broken)
        try:
            run = NpzFile().open(path)
            for tensor in run.tensors:
                run.values(tensor)
        except SyncpointError as error:
            assert "\n" not in str(error)
