"""Locates the tensor in a `.pt` file: a ZIP archive with a pickle and the bytes of a storage.

The bytes are mapped from the archive when they are read. Torch stores them uncompressed.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path

from syncpoint.ascend.msprobe.pickled import PickledTensor, read_pickled_tensor
from syncpoint.dumps.zip_members import BROKEN_ZIP, find_data_start, open_zip
from syncpoint.errors import FormatError, describe_error
from syncpoint.run.digests import CRC32
from syncpoint.run.dtypes import DType
from syncpoint.run.storage.tensor_checksums import Checksum

_PICKLE = "/data.pkl"
_MAX_PICKLE_BYTES = 1 << 16
"""The pickle of a tensor has a few hundred bytes."""


@dataclass(frozen=True, kw_only=True)
class TensorLocation:
    """Where the values of a tensor lie in a file."""

    dtype: DType
    shape: tuple[int, ...]
    offset: int
    """First byte of the tensor, or of its storage if it is not `dense`."""
    nbytes: int
    """Bytes of the tensor, or of its storage if it is not `dense`."""
    dense: bool = True
    """Whether the bytes are row-major, without holes, and little-endian."""
    start: int = 0
    """First element in the storage, in elements, if it is not `dense`."""
    strides: tuple[int, ...] = ()
    swapped: bool = False
    crc32: str = ""
    """CRC-32 of the tensor's bytes if the archive has it: eight hexadecimal digits."""
    checksum: Checksum | None = None
    """Checksum of the whole storage, which may hold more than the tensor."""


def locate_tensor(path: Path) -> TensorLocation:
    """Locate the one tensor in a file; damage is a FormatError."""
    try:
        with open_zip(path) as (handle, members):
            return _locate_in_archive(path, handle, members)
    except OSError as error:
        raise FormatError(
            f"cannot read {path}: {describe_error(error)}",
            cure="check that the file exists and that you may read it, or dump it again",
        ) from error
    except BROKEN_ZIP as error:
        raise FormatError(
            f"{path} is not a ZIP file of torch.save ({describe_error(error)}): it is truncated,"
            " or written by torch before 1.6",
            cure="dump it again",
        ) from error


def _locate_in_archive(path: Path, handle: int, members: list[zipfile.ZipInfo]) -> TensorLocation:
    by_name = {member.filename: member for member in members}
    if len(by_name) != len(members):
        raise FormatError(f"{path} has two members of one name", cure="dump it again")
    pickles = [name for name in by_name if name.endswith(_PICKLE) and name.count("/") == 1]
    if len(pickles) != 1:
        raise FormatError(
            f"{path} must hold one data.pkl, and holds {len(pickles)}", cure="dump it again"
        )
    folder = pickles[0].removesuffix(_PICKLE)
    pickle = _read_member(handle, by_name[pickles[0]], path)
    has_checksum = zlib.crc32(pickle) == by_name[pickles[0]].CRC
    if not has_checksum and by_name[pickles[0]].CRC:
        # Torch can leave out the checksums; then they are zero.
        raise FormatError(
            f"{path} is damaged: data.pkl does not have its checksum", cure="dump it again"
        )
    order = by_name.get(f"{folder}/byteorder")
    swapped = order is not None and _read_member(handle, order, path).strip() == b"big"
    tensor = read_pickled_tensor(pickle, str(path))
    member = by_name.get(f"{folder}/data/{tensor.storage}")
    if member is None:
        raise FormatError(f"{path} has no storage {tensor.storage}", cure="dump it again")
    start = _find_start(handle, member, path)
    return _locate_in_storage(path, tensor, member, start, swapped, has_checksum)


def _locate_in_storage(
    path: Path,
    tensor: PickledTensor,
    member: zipfile.ZipInfo,
    start: int,
    swapped: bool,
    has_checksum: bool,
) -> TensorLocation:
    """Locate a tensor in its storage; refuse one that reaches beyond it."""
    size, count = tensor.dtype.bits // 8, prod(tensor.shape)
    stored_count = member.file_size // size
    last = tensor.offset + sum(
        (n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)
    )
    if count and last >= stored_count:
        raise FormatError(
            f"the tensor in {path} reaches element {last}, and its storage has {stored_count}",
            cure="dump it again",
        )
    if count > stored_count:
        raise FormatError(
            f"the tensor in {path} has shape {list(tensor.shape)}, more than the {stored_count}"
            " elements of its storage: it was expanded",
            cure="save it contiguous",
        )
    swapped = swapped and size > 1
    checksum = None
    if has_checksum:
        checksum = Checksum(CRC32, f"{member.CRC:08x}", start, member.file_size)
    if swapped or (count and not _is_row_major(tensor.shape, tensor.strides)):
        return TensorLocation(
            dtype=tensor.dtype,
            shape=tensor.shape,
            offset=start,
            nbytes=member.file_size,
            dense=False,
            start=tensor.offset,
            strides=tensor.strides,
            swapped=swapped,
            checksum=checksum,
        )
    fills_storage = has_checksum and count * size == member.file_size
    return TensorLocation(
        dtype=tensor.dtype,
        shape=tensor.shape,
        offset=start + tensor.offset * size,
        nbytes=count * size,
        crc32=f"{member.CRC:08x}" if fills_storage else "",
        checksum=checksum,
    )


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    dense_stride = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != dense_stride:
            return False
        dense_stride *= length
    return True


def _find_start(handle: int, member: zipfile.ZipInfo, path: Path) -> int:
    where = f"{member.filename[:80]!r} of {path}"
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise FormatError(
            f"{where} is compressed or encrypted; torch.save stores members as they are",
            cure="dump it again",
        )
    return find_data_start(handle, member, where)


def _read_member(handle: int, member: zipfile.ZipInfo, path: Path) -> bytes:
    """Read all of a small member."""
    if member.file_size > _MAX_PICKLE_BYTES:
        raise FormatError(
            f"{member.filename[:80]!r} of {path} has {member.file_size} bytes, and at most"
            f" {_MAX_PICKLE_BYTES} are read",
            cure="save the tensor alone",
        )
    return os.pread(handle, member.file_size, _find_start(handle, member, path))
