"""Members of .npz and .pt archives are checked against their CRC when their values are read."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from syncpoint.comparison.engine import Options, compare
from syncpoint.dumps import zip_members
from syncpoint.dumps.npz import NpzFile
from syncpoint.errors import DamagedError, FormatError
from syncpoint.reports.checksum_text import verified_text
from syncpoint.run.storage import tensor_checksums

STEP = 1 << 12
"""Window size in these tests, so that all boundaries are met with small arrays."""


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(zip_members, "_STEP_BYTES", STEP)
    monkeypatch.setattr(tensor_checksums, "WINDOW_BYTES", STEP)


def array_of(kind: str, nbytes: int) -> np.ndarray:
    if kind == "constant":
        return np.full(nbytes, 7, np.uint8)
    if kind == "sparse":
        sparse = np.zeros(nbytes, np.uint8)
        sparse[:: max(nbytes // 5, 1)] = 3
        return sparse
    return np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)


def header_size(array: np.ndarray) -> int:
    file = io.BytesIO()
    np.save(file, array)
    return file.tell() - array.nbytes


@pytest.mark.parametrize("kind", ["constant", "sparse", "random"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_sound_members_of_every_size_around_the_windows_are_read(tmp_path, kind, save):
    """A member that deflates a thousandfold has output left when all its input is taken."""
    head = header_size(np.zeros(1, np.uint8))
    sizes = {
        windows * STEP + shift - offset
        for windows in (0, 1, 2, 300)
        for shift in (-1, 0, 1)
        for offset in (0, head)
    }
    members = {f"n{n}": array_of(kind, n) for n in sorted(sizes) if n >= 0}
    save(tmp_path / "a.npz", **members)
    run = NpzFile().open(tmp_path / "a.npz")
    assert len(run.tensors) == len(members)
    for tensor in run.tensors:
        assert run.has_checksum(tensor) and run.verify(tensor)
        expected = members[str(tensor.key.op)]
        assert np.array_equal(run.values(tensor), expected)
        last = run.window(tensor, max(tensor.count - 3, 0), tensor.count)
        assert np.array_equal(last, expected[-3:])


def test_a_constant_array_of_many_real_windows_is_sound(tmp_path, monkeypatch):
    monkeypatch.undo()
    array = np.zeros((4 << 20) + 5, np.float32)
    np.savez_compressed(tmp_path / "a.npz", x=array)
    run = NpzFile().open(tmp_path / "a.npz")
    assert not run.values(run.tensors[0]).any()


def data_offset(path: Path, name: str) -> int:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        member = archive.getinfo(f"{name}.npy")
        file.seek(member.header_offset + 26)
        lengths = np.frombuffer(file.read(4), "<u2")
        return member.header_offset + 30 + int(lengths.sum())


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


ARRAYS = {
    "plain": np.random.default_rng(0).standard_normal(5000).astype(np.float32),
    "fortran": np.asfortranarray(np.random.default_rng(1).standard_normal((70, 90))),
    "swapped": np.random.default_rng(2).standard_normal(5000).astype(">f4"),
    "small": np.arange(5, dtype=np.int64),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_one_flipped_bit_of_a_stored_member_is_damage_of_that_member_alone(tmp_path, name):
    path = tmp_path / "a.npz"
    np.savez(path, **ARRAYS)
    flip(path, data_offset(path, name) + header_size(ARRAYS[name]) + 30)
    run = NpzFile().open(path)
    for tensor in run.tensors:
        if str(tensor.key.op) != name:
            assert np.array_equal(run.values(tensor), ARRAYS[str(tensor.key.op)])
            continue
        for read in (run.values, run.verify, lambda t: run.window(t, 0, 2)):
            with pytest.raises(
                DamagedError, match=f"bytes of {name} in .*a.npz do not match their checksum"
            ):
                read(tensor)


def test_a_misaligned_member_is_checked(tmp_path):
    """Zip tools align nothing: the array is copied, and checked all the same."""
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        file = io.BytesIO()
        np.save(file, ARRAYS["plain"])
        for name in ("a.npy", "abc.npy"):
            archive.writestr(name, file.getvalue())
    offsets = {data_offset(path, name) % 4 for name in ("a", "abc")}
    assert offsets - {0}
    flip(path, data_offset(path, "abc") + 200)
    run = NpzFile().open(path)
    assert run.verify(run.tensors[0])
    with pytest.raises(DamagedError):
        run.values(run.tensors[1])


def test_the_same_damage_in_both_files_is_not_close(tmp_path):
    paths = [tmp_path / f"{side}.npz" for side in "tr"]
    for path in paths:
        np.savez(path, **ARRAYS)
        flip(path, data_offset(path, "plain") + 3000)
    found = compare(*map(NpzFile().open, paths), Options(introduced="off"))
    assert found.exit_code() == 1
    assert [r.target.label for r in found.rows if r.reason.startswith("damaged")] == ["plain"]
    assert verified_text(found.verified["target"]) == "3 of 4 tensors read, 1 damaged"


@pytest.mark.parametrize("kind", ["constant", "sparse", "random"])
@pytest.mark.parametrize("how", ["flip", "crc", "cut", "short"])
def test_damaged_deflated_members_are_never_values(tmp_path, kind, how):
    path = tmp_path / "a.npz"
    array = array_of(kind, 20 * STEP)
    np.savez_compressed(path, x=array)
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        (member,) = archive.infolist()
    start = data_offset(path, "x")
    directory = content.rindex(b"PK\x01\x02")
    if how == "flip":
        content[start + member.compress_size // 2] ^= 0x10
    elif how == "crc":
        content[directory + 16] ^= 1
    elif how == "cut":  # the stream ends early
        middle = start + member.compress_size // 2
        content[middle : start + member.compress_size] = bytes(
            member.compress_size - member.compress_size // 2
        )
    else:  # a sound stream of fewer bytes than the member claims
        packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
        file = io.BytesIO()
        np.save(file, array)
        packed = packer.compress(file.getvalue()[:-STEP]) + packer.flush()
        content[start : start + len(packed)] = packed
        content = content[: max(len(content), start + len(packed))]
    path.write_bytes(content)
    try:
        run = NpzFile().open(path)
        values = run.values(run.tensors[0])
    except FormatError:
        return
    assert np.array_equal(values, array)  # the flipped bit was one that deflate does not read


def test_files_without_checksums_are_called_unverified(tmp_path):
    from syncpoint.dumps.safetensors import SafetensorsFile

    run = NpzFile()
    np.savez(tmp_path / "a.npz", x=ARRAYS["plain"])
    reference = run.open(tmp_path / "a.npz")
    SafetensorsFile().save(reference, tmp_path / "a.safetensors")
    target = SafetensorsFile().open(tmp_path / "a.safetensors")
    found = compare(target, reference, Options(introduced="off"))
    assert found.exit_code() == 0
    assert verified_text(found.verified["target"]) == "0 of 1 tensors read (no checksums)"
    assert verified_text(found.verified["reference"]) == "1 of 1 tensors read"
