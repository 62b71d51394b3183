"""Values of the `.pt` files of a dump, also those that are not row-major or cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.msprobe.pt_file import Placed
from syncpoint.errors import SyncpointError
from syncpoint.run.files import map_bytes
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.store import FileStore

Array = NDArray[Any]


class PtStore(FileStore):
    """Tensors in files of one folder. What is wrong with one of them is said when it is asked
    for, so that one damaged file does not hide all the others."""

    def __init__(
        self,
        root: Path,
        odd: Mapping[TensorKey, Placed],
        broken: Mapping[TensorKey, SyncpointError],
    ) -> None:
        super().__init__(root)
        self._odd = odd
        self._broken = broken

    def read(self, tensor: Tensor) -> Array:
        """All elements, row-major."""
        self._check(tensor)
        placed = self._odd.get(tensor.key)
        return super().read(tensor) if placed is None else self._gathered(tensor, placed)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements of the row-major order."""
        self._check(tensor)
        placed = self._odd.get(tensor.key)
        if placed is None:
            return super().window(tensor, start, stop)
        return self._gathered(tensor, placed).reshape(-1)[start:stop]

    def place(self, tensor: Tensor) -> Path | None:
        """The file of a tensor that can be read as it lies."""
        apart = tensor.key in self._odd or tensor.key in self._broken
        return None if apart else super().place(tensor)

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
