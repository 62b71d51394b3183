"""Values of .npy files as they lie on disk: also column-major, big-endian, or deflated."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.zip_members import Deflated, inflate_into
from syncpoint.errors import describe_error
from syncpoint.files.byte_ranges import map_bytes
from syncpoint.run.array_bytes import Bytes, from_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.storage.tensor_checksums import Checksum, tensor_damage_error
from syncpoint.run.value_store import FileStore

Array = NDArray[Any]

_KEPT = 2
"""Inflated arrays that are kept, so that reading one window by window inflates it once."""


@dataclass(frozen=True)
class Lay:
    """How an array lies on disk, where that is not dense, row-major and little-endian."""

    fortran: bool = False
    swapped: bool = False
    deflated: Deflated | None = None


class ArrayStore(FileStore):
    """Arrays in files of one folder, the odd ones put in order when they are read."""

    def __init__(
        self,
        root: Path,
        odd: dict[TensorKey, Lay],
        checksums: Mapping[TensorKey, Checksum] | None = None,
    ) -> None:
        """`checksums` are those of members that are stored as they are."""
        super().__init__(root)
        self._odd = odd
        self._checksums = checksums or {}
        self._inflated: OrderedDict[TensorKey, Array] = OrderedDict()
        self._lock = threading.Lock()

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """The checksum of the archive's member that has the array; none in a plain .npy file."""
        return self._checksums.get(tensor.key)

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the array is in an archive, which keeps a checksum of each member."""
        return self._is_deflated(tensor) or super().has_checksum(tensor)

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the array; a deflated one is checked by inflating it."""
        if self._is_deflated(tensor):
            self.read(tensor)
        else:
            super().verify(tensor, content)

    def _is_deflated(self, tensor: Tensor) -> bool:
        lay = self._odd.get(tensor.key)
        return lay is not None and lay.deflated is not None

    def read(self, tensor: Tensor) -> Array:
        """All elements, row-major."""
        lay = self._odd.get(tensor.key)
        if lay is None:
            return super().read(tensor)
        if lay.deflated is None:
            return _ordered(self.raw(tensor, 0, tensor.nbytes), tensor, lay)
        with self._lock:
            array = self._inflated.get(tensor.key)
            if array is None:
                array = _ordered(self._inflate(tensor, lay.deflated), tensor, lay)
                self._inflated[tensor.key] = array
                while len(self._inflated) > _KEPT:
                    self._inflated.popitem(last=False)
            return array

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements of the row-major order."""
        lay = self._odd.get(tensor.key)
        if lay is None:
            return super().window(tensor, start, stop)
        if lay.deflated is None:
            raw = self.raw(tensor, 0, tensor.nbytes)
            stored = _stored(raw, tensor, lay)
            window = _native(stored.flat[start:stop])
        else:
            window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window

    def dense_file(self, tensor: Tensor) -> Path | None:
        """The file of an array that lies as others read it."""
        return None if tensor.key in self._odd else self.path(tensor)

    def _inflate(self, tensor: Tensor, member: Deflated) -> Bytes:
        """The member's data; more or less than it claims, or other bits, is a DamagedError."""
        path = self.path(tensor)
        packed = map_bytes(path, member.offset, member.nbytes)
        whole = np.empty(member.inflated, np.uint8)
        try:
            size = inflate_into(whole, packed)
        except zlib.error as error:
            raise tensor_damage_error(tensor, f"{path} ({describe_error(error)})") from error
        if size != member.inflated or zlib.crc32(whole.data) != member.crc:
            raise tensor_damage_error(tensor, path)
        return whole[member.header :]


def _stored(raw: Bytes, tensor: Tensor, lay: Lay) -> Array:
    """The array in its shape and the byte order of the file."""
    dtype = DTYPES[tensor.dtype].numpy
    if lay.swapped:
        dtype = dtype.newbyteorder(">")
    array = raw.view(dtype)
    return array.reshape(tensor.shape, order="F" if lay.fortran else "C")


def _native(array: Array) -> Array:
    native = array.dtype.newbyteorder("=")
    return np.array(array, dtype=native, order="C", copy=True)


def _ordered(raw: Bytes, tensor: Tensor, lay: Lay) -> Array:
    if not lay.swapped and not lay.fortran:
        return from_bytes(raw, DTYPES[tensor.dtype], tensor.shape)
    array = _native(_stored(raw, tensor, lay))
    array.flags.writeable = False
    return array
