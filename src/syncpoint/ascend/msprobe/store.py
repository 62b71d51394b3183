"""Values of the `.pt` files of a dump, also those that are not row-major or cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.msprobe.pt_file import Placed
from syncpoint.errors import SyncpointError
from syncpoint.files.byte_ranges import Bytes, map_bytes
from syncpoint.run.digests import CRC32, compute_digests
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.storage.tensor_checksums import DEFERRED, Checksum, tensor_damage_error
from syncpoint.run.value_store import FileStore

Array = NDArray[Any]


class PtStore(FileStore):
    """Tensors in files of one folder. What is wrong with one of them is said when it is asked
    for, so that one damaged file does not hide all the others."""

    def __init__(
        self,
        root: Path,
        odd: Mapping[TensorKey, Placed],
        broken: Mapping[TensorKey, SyncpointError],
        checksums: Mapping[TensorKey, Checksum],
        digests: Mapping[TensorKey, str],
    ) -> None:
        """`checksums` are of the archives' members; `digests` are what dump.json says of tensors
        whose archives have none."""
        super().__init__(root)
        self._odd = odd
        self._broken = broken
        self._checksums = checksums
        self._digests = digests
        self._sound: set[TensorKey] = set()

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """The checksum of the member that has the tensor's storage."""
        return self._checksums.get(tensor.key)

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the archive or dump.json has one."""
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
        """All elements, row-major."""
        self.verify(tensor)
        return self._read(tensor)

    def _read(self, tensor: Tensor) -> Array:
        placed = self._odd.get(tensor.key)
        return super().read(tensor) if placed is None else self._gathered(tensor, placed)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements of the row-major order."""
        self.verify(tensor)
        placed = self._odd.get(tensor.key)
        if placed is None:
            return super().window(tensor, start, stop)
        return self._gathered(tensor, placed).reshape(-1)[start:stop]

    def dense_file(self, tensor: Tensor) -> Path | None:
        """The file of a tensor that can be read as it lies."""
        apart = tensor.key in self._odd or tensor.key in self._broken
        return None if apart else super().dense_file(tensor)

    def _check(self, tensor: Tensor) -> None:
        trouble = self._broken.get(tensor.key)
        if trouble is not None:
            raise type(trouble)(trouble.expected, trouble.found, trouble.cure)

    def _gathered(self, tensor: Tensor, placed: Placed) -> Array:
        """A copy in order. Offset and strides were checked against the storage."""
        dtype = placed.dtype.numpy
        if placed.swapped:
            dtype = dtype.newbyteorder(">")
        size = dtype.itemsize
        raw = map_bytes(self.path(tensor), placed.offset, placed.nbytes // size * size)
        strides = [stride * size for stride in placed.strides]
        lying = np.lib.stride_tricks.as_strided(
            raw.view(dtype)[placed.start :], placed.shape, strides, writeable=False
        )
        array = np.array(lying, dtype=placed.dtype.numpy, order="C")
        array.flags.writeable = False
        return array
