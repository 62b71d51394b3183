"""Read values and windows of .npy data in any storage: row- or column-major, big-endian, or
deflated in a ZIP file; verify its CRC."""

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

_MAX_INFLATED_ARRAYS = 2
"""Inflated arrays in the cache, so that reading an array by windows inflates it once."""


@dataclass(frozen=True)
class StoredLayout:
    """How an array is stored, where that is not dense, row-major and little-endian."""

    fortran: bool = False
    """Column-major."""
    swapped: bool = False
    """Big-endian."""
    deflated: Deflated | None = None


class ArrayStore(FileStore):
    """Arrays in files of one folder; those in another layout are converted when they are read."""

    def __init__(
        self,
        root: Path,
        layouts: dict[TensorKey, StoredLayout],
        checksums: Mapping[TensorKey, Checksum] | None = None,
    ) -> None:
        """`layouts` has the arrays that are not plain, `checksums` those of members that are not
        compressed."""
        super().__init__(root)
        self._layouts = layouts
        self._checksums = checksums or {}
        self._inflated: OrderedDict[TensorKey, Array] = OrderedDict()
        self._lock = threading.Lock()

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """Return the checksum of the archive member with the array; None for a plain .npy file."""
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
        layout = self._layouts.get(tensor.key)
        return layout is not None and layout.deflated is not None

    def read(self, tensor: Tensor) -> Array:
        """Read all elements, row-major."""
        layout = self._layouts.get(tensor.key)
        if layout is None:
            return super().read(tensor)
        if layout.deflated is None:
            return _to_row_major(self.raw(tensor, 0, tensor.nbytes), tensor, layout)
        with self._lock:
            array = self._inflated.get(tensor.key)
            if array is None:
                array = _to_row_major(self._inflate(tensor, layout.deflated), tensor, layout)
                self._inflated[tensor.key] = array
                while len(self._inflated) > _MAX_INFLATED_ARRAYS:
                    self._inflated.popitem(last=False)
            return array

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Read the elements `start` to `stop` of the row-major order."""
        layout = self._layouts.get(tensor.key)
        if layout is None:
            return super().window(tensor, start, stop)
        if layout.deflated is None:
            raw = self.raw(tensor, 0, tensor.nbytes)
            stored = _view_stored(raw, tensor, layout)
            window = _copy_native(stored.flat[start:stop])
        else:
            window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window

    def dense_file(self, tensor: Tensor) -> Path | None:
        """Return the file of an array that is stored dense; None for other layouts."""
        return None if tensor.key in self._layouts else self.path(tensor)

    def _inflate(self, tensor: Tensor, member: Deflated) -> Bytes:
        """Inflate the member; another size or CRC than it declares is a DamagedError."""
        path = self.path(tensor)
        packed = map_bytes(path, member.offset, member.nbytes)
        content = np.empty(member.inflated, np.uint8)
        try:
            size = inflate_into(content, packed)
        except zlib.error as error:
            raise tensor_damage_error(tensor, f"{path} ({describe_error(error)})") from error
        if size != member.inflated or zlib.crc32(content.data) != member.crc:
            raise tensor_damage_error(tensor, path)
        return content[member.header :]


def _view_stored(raw: Bytes, tensor: Tensor, layout: StoredLayout) -> Array:
    """View the bytes as an array with its shape, in the byte order of the file."""
    dtype = DTYPES[tensor.dtype].numpy
    if layout.swapped:
        dtype = dtype.newbyteorder(">")
    array = raw.view(dtype)
    return array.reshape(tensor.shape, order="F" if layout.fortran else "C")


def _copy_native(array: Array) -> Array:
    native = array.dtype.newbyteorder("=")
    return np.array(array, dtype=native, order="C", copy=True)


def _to_row_major(raw: Bytes, tensor: Tensor, layout: StoredLayout) -> Array:
    if not layout.swapped and not layout.fortran:
        return from_bytes(raw, DTYPES[tensor.dtype], tensor.shape)
    array = _copy_native(_view_stored(raw, tensor, layout))
    array.flags.writeable = False
    return array
