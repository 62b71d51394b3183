"""Torch's `.pt` files as they lie on disk: a zip with a pickle and the bytes of a storage.

Only where the bytes are is found out here; they are mapped from the archive when they are asked
for. Torch stores them as they are, never deflated.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path

from syncpoint.ascend.msprobe.pickled import Described, describe
from syncpoint.dumps.zip_members import BROKEN_ZIP, find_data_start, open_zip
from syncpoint.errors import FormatError, describe_error
from syncpoint.run.digests import CRC32
from syncpoint.run.dtypes import DType
from syncpoint.run.storage.tensor_checksums import Checksum

_PICKLE = "/data.pkl"
_MAX_PICKLE = 1 << 16
"""That of a tensor has a few hundred bytes."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Where the values of a tensor lie in a file."""

    dtype: DType
    shape: tuple[int, ...]
    offset: int
    """Of the first byte of the tensor, or of its storage where it is not `dense`."""
    nbytes: int
    """Of the tensor, or of its storage where it is not `dense`."""
    dense: bool = True
    """Whether the bytes are row-major, without holes, and little-endian."""
    start: int = 0
    """Of the first element in the storage, in elements, where it is not `dense`."""
    strides: tuple[int, ...] = ()
    swapped: bool = False
    crc32: str = ""
    """Of the tensor's bytes, where the archive says it: eight hexadecimal digits."""
    checksum: Checksum | None = None
    """Of the whole storage, which may hold more than the tensor."""


def place(path: Path) -> Placed:
    """Where the one tensor in the file at `path` lies; damage is a FormatError."""
    try:
        with open_zip(path) as (handle, members):
            return _place(path, handle, members)
    except OSError as error:
        raise FormatError(f"the file {path}", describe_error(error)) from error
    except BROKEN_ZIP as error:
        raise FormatError(
            f"a file of torch.save in its zip format at {path}",
            describe_error(error),
            "it is truncated, or of torch before 1.6; dump it again",
        ) from error


def _place(path: Path, handle: int, members: list[zipfile.ZipInfo]) -> Placed:
    by_name = {member.filename: member for member in members}
    if len(by_name) != len(members):
        raise FormatError(f"each name once in {path}", "one twice")
    pickles = [name for name in by_name if name.endswith(_PICKLE) and name.count("/") == 1]
    if len(pickles) != 1:
        raise FormatError(f"one data.pkl in {path}", f"{len(pickles)}")
    folder = pickles[0].removesuffix(_PICKLE)
    pickle = _content(handle, by_name[pickles[0]], path)
    summed = zlib.crc32(pickle) == by_name[pickles[0]].CRC
    if not summed and by_name[pickles[0]].CRC:
        # Torch can be told to leave the sums out; then they are zero.
        raise FormatError(f"the checksum of data.pkl in {path}", "another", "it is damaged")
    order = by_name.get(f"{folder}/byteorder")
    swapped = order is not None and _content(handle, order, path).strip() == b"big"
    said = describe(pickle, str(path))
    member = by_name.get(f"{folder}/data/{said.storage}")
    if member is None:
        raise FormatError(f"the storage {said.storage} in {path}", "none")
    start = _start(handle, member, path)
    return _within(path, said, member, start, swapped, summed)


def _within(
    path: Path, said: Described, member: zipfile.ZipInfo, start: int, swapped: bool, summed: bool
) -> Placed:
    """The tensor inside its storage; one that leads out of it is refused."""
    size, count = said.dtype.bits // 8, prod(said.shape)
    held = member.file_size // size
    last = said.offset + sum((n - 1) * s for n, s in zip(said.shape, said.strides, strict=True))
    if count and last >= held:
        raise FormatError(
            f"a tensor within the {held} elements of its storage in {path}", f"element {last}"
        )
    if count > held:
        raise FormatError(
            f"at most the {held} elements of its storage in the tensor of {path}",
            f"shape {list(said.shape)}",
            "it was expanded; save it contiguous",
        )
    swapped = swapped and size > 1
    checksum = None
    if summed:
        checksum = Checksum(CRC32, f"{member.CRC:08x}", start, member.file_size)
    if swapped or (count and not _row_major(said.shape, said.strides)):
        return Placed(
            dtype=said.dtype,
            shape=said.shape,
            offset=start,
            nbytes=member.file_size,
            dense=False,
            start=said.offset,
            strides=said.strides,
            swapped=swapped,
            checksum=checksum,
        )
    whole = summed and count * size == member.file_size
    return Placed(
        dtype=said.dtype,
        shape=said.shape,
        offset=start + said.offset * size,
        nbytes=count * size,
        crc32=f"{member.CRC:08x}" if whole else "",
        checksum=checksum,
    )


def _row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    wanted = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != wanted:
            return False
        wanted *= length
    return True


def _start(handle: int, member: zipfile.ZipInfo, path: Path) -> int:
    where = f"{member.filename[:80]!r} of {path}"
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise FormatError(f"a member stored as it is, {where}", "a compressed or encrypted one")
    return find_data_start(handle, member, where)


def _content(handle: int, member: zipfile.ZipInfo, path: Path) -> bytes:
    """All of a small member."""
    if member.file_size > _MAX_PICKLE:
        raise FormatError(
            f"at most {_MAX_PICKLE} bytes in {member.filename[:80]!r} of {path}",
            f"{member.file_size}",
        )
    return os.pread(handle, member.file_size, _start(handle, member, path))
