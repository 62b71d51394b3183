"""Locate the tensor's bytes in a `.pt` file (ZIP archive of torch.save; truncated and old ones are
refused) and read its values, with checksums."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.msprobe.pickled_tensor import PickledTensor, read_pickled_tensor
from syncpoint.dumps.zip_members import BROKEN_ZIP, find_data_start, open_zip
from syncpoint.errors import FormatError, SyncpointError, describe_error
from syncpoint.files.byte_ranges import Bytes, map_bytes
from syncpoint.files.read_errors import CHECK_FILE, read_errors
from syncpoint.run.digests import CRC32, compute_digests
from syncpoint.run.dtypes import DType
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.storage.tensor_checksums import DEFERRED, Checksum, tensor_damage_error
from syncpoint.run.value_store import FileStore

_PICKLE = "/data.pkl"
_MAX_PICKLE_BYTES = 1 << 16
"""The pickle of a tensor has a few hundred bytes."""

Array = NDArray[Any]


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
        with (
            read_errors(path, FormatError, cure=f"{CHECK_FILE}, or dump it again"),
            open_zip(path) as (handle, members),
        ):
            return _locate_in_archive(path, handle, members)
    except BROKEN_ZIP as error:
        raise FormatError(
            f"{path} is not a ZIP file of torch.save ({describe_error(error)}): it is truncated,"
            " or written by torch before 1.6",
            cure="copy it again, or dump it again",
        ) from error


def _locate_in_archive(path: Path, handle: int, members: list[zipfile.ZipInfo]) -> TensorLocation:
    by_name = {member.filename: member for member in members}
    if len(by_name) != len(members):
        raise FormatError(
            f"{path} has two members with the same name", cure="copy it again, or dump it again"
        )
    pickles = [name for name in by_name if name.endswith(_PICKLE) and name.count("/") == 1]
    if len(pickles) != 1:
        raise FormatError(
            f"{path} must contain one data.pkl, but contains {len(pickles)}",
            cure="copy it again, or dump it again",
        )
    folder = pickles[0].removesuffix(_PICKLE)
    pickle = _read_member(handle, by_name[pickles[0]], path)
    has_checksum = zlib.crc32(pickle) == by_name[pickles[0]].CRC
    if not has_checksum and by_name[pickles[0]].CRC:
        # Torch can leave out the checksums; then they are zero.
        raise FormatError(
            f"{path} is damaged: the contents of data.pkl do not match their checksum",
            cure="copy it again, or dump it again",
        )
    order = by_name.get(f"{folder}/byteorder")
    swapped = order is not None and _read_member(handle, order, path).strip() == b"big"
    tensor = read_pickled_tensor(pickle, str(path))
    member = by_name.get(f"{folder}/data/{tensor.storage}")
    if member is None:
        raise FormatError(
            f"{path} is incomplete: it has no storage {tensor.storage}, which the tensor uses",
            cure="copy it again, or dump it again",
        )
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
            f"the tensor in {path} needs element {last} of its storage, which has only"
            f" {stored_count} elements",
            cure="copy it again, or dump it again",
        )
    if count > stored_count:
        raise FormatError(
            f"the tensor in {path} has shape {list(tensor.shape)}, more than the {stored_count}"
            " elements of its storage: it was expanded",
            cure="save it as tensor.contiguous()",
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
            cure="copy it again, or dump it again",
        )
    return find_data_start(handle, member, where)


def _read_member(handle: int, member: zipfile.ZipInfo, path: Path) -> bytes:
    """Read all of a small member."""
    if member.file_size > _MAX_PICKLE_BYTES:
        raise FormatError(
            f"{member.filename[:80]!r} of {path} has {member.file_size:,} bytes, over the"
            f" limit of {_MAX_PICKLE_BYTES:,} bytes",
            cure="save only the tensor in the file, without other objects",
        )
    return os.pread(handle, member.file_size, _find_start(handle, member, path))


class PtStore(FileStore):
    """Tensors in the files of one folder.

    An unreadable file raises its error when its tensor is read, so that the others stay usable.
    """

    def __init__(
        self,
        root: Path,
        odd: Mapping[TensorKey, TensorLocation],
        broken: Mapping[TensorKey, SyncpointError],
        checksums: Mapping[TensorKey, Checksum],
        digests: Mapping[TensorKey, str],
    ) -> None:
        """`checksums` are those of archive members; `digests` come from dump.json, for tensors
        whose archives have no checksum."""
        super().__init__(root)
        self._odd = odd
        self._broken = broken
        self._checksums = checksums
        self._digests = digests
        self._sound: set[TensorKey] = set()

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """Return the checksum of the archive member that holds the tensor's storage."""
        return self._checksums.get(tensor.key)

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the archive or dump.json has a checksum of the tensor."""
        return tensor.key in self._checksums or tensor.key in self._digests

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the tensor against its archive, or else against dump.json."""
        self._check(tensor)
        super().verify(tensor, content)
        digest = self._digests.get(tensor.key) if tensor.digest_kind != DEFERRED else None
        if digest is not None and tensor.key not in self._sound:
            if digest not in compute_digests(CRC32, tensor.dtype, lambda: [self._read(tensor)]):
                raise tensor_damage_error(tensor, f"{self.path(tensor)}, as dump.json has them")
            self._sound.add(tensor.key)

    def read(self, tensor: Tensor) -> Array:
        """Read all elements, row-major."""
        self.verify(tensor)
        return self._read(tensor)

    def _read(self, tensor: Tensor) -> Array:
        location = self._odd.get(tensor.key)
        return super().read(tensor) if location is None else self._copy_in_order(tensor, location)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Read some elements in row-major order."""
        self.verify(tensor)
        location = self._odd.get(tensor.key)
        if location is None:
            return super().window(tensor, start, stop)
        return self._copy_in_order(tensor, location).reshape(-1)[start:stop]

    def dense_file(self, tensor: Tensor) -> Path | None:
        """Return the file of a tensor that is stored densely, or None."""
        needs_copy = tensor.key in self._odd or tensor.key in self._broken
        return None if needs_copy else super().dense_file(tensor)

    def _check(self, tensor: Tensor) -> None:
        error = self._broken.get(tensor.key)
        if error is not None:
            raise type(error)(error.problem, cure=error.cure)

    def _copy_in_order(self, tensor: Tensor, location: TensorLocation) -> Array:
        """Copy into row-major order. Offset and strides were checked against the storage."""
        dtype = location.dtype.numpy
        if location.swapped:
            dtype = dtype.newbyteorder(">")
        size = dtype.itemsize
        raw = map_bytes(self.path(tensor), location.offset, location.nbytes // size * size)
        strides = [stride * size for stride in location.strides]
        strided = np.lib.stride_tricks.as_strided(
            raw.view(dtype)[location.start :], location.shape, strides, writeable=False
        )
        array = np.array(strided, dtype=location.dtype.numpy, order="C")
        array.flags.writeable = False
        return array
