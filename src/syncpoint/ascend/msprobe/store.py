"""Reads tensor values from the `.pt` files of a dump, including those that are not row-major."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.msprobe.pt_file import TensorLocation
from syncpoint.errors import SyncpointError
from syncpoint.files.byte_ranges import Bytes, map_bytes
from syncpoint.run.digests import CRC32, compute_digests
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.storage.tensor_checksums import DEFERRED, Checksum, tensor_damage_error
from syncpoint.run.value_store import FileStore

Array = NDArray[Any]


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
