"""Read the values of device dumps: map them from the file, decode the device's own types, assemble
pieces."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_types import StoredType
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.value_store import FileStore

Array = NDArray[Any]
Pieces = tuple[tuple[Tensor, tuple[int, ...]], ...]
"""Parts of a tensor, each with the position of its first element in the whole."""


class DeviceStore(FileStore):
    """Tensors in the files of one folder. Some are decoded, or assembled from pieces, when read."""

    def __init__(
        self,
        root: Path,
        decoded: Mapping[TensorKey, StoredType],
        pieces: Mapping[TensorKey, Pieces],
    ) -> None:
        super().__init__(root)
        self._decoded = decoded
        self._pieces = pieces
        self._last: tuple[TensorKey, Array] | None = None

    def read(self, tensor: Tensor) -> Array:
        """Read all elements, row-major."""
        if tensor.key in self._pieces:
            return self._assemble(tensor)
        return self._read_one(tensor)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Read some elements in row-major order."""
        if tensor.key in self._pieces:
            window = self._assemble(tensor).reshape(-1)[start:stop]
            window.flags.writeable = False
            return window
        return self._window(tensor, start, stop)

    def _assemble(self, tensor: Tensor) -> Array:
        """Assemble a tensor from its pieces. The last one is cached for reading by windows."""
        last = self._last
        if last is not None and last[0] == tensor.key:
            return last[1]
        whole = np.empty(tensor.shape, DTYPES[tensor.dtype].numpy)
        for piece, start in self._pieces[tensor.key]:
            place = tuple(slice(s, s + n) for s, n in zip(start, piece.shape, strict=True))
            whole[place] = self._read_one(piece)
        whole.flags.writeable = False
        self._last = (tensor.key, whole)
        return whole

    def _read_one(self, tensor: Tensor) -> Array:
        if tensor.key not in self._decoded:
            return super().read(tensor)
        return self._window(tensor, 0, tensor.count).reshape(tensor.shape)

    def _window(self, tensor: Tensor, start: int, stop: int) -> Array:
        stored = self._decoded.get(tensor.key)
        if stored is None or stored.decode is None:
            return super().window(tensor, start, stop)
        first = start * stored.bits // 8
        skip = start - first * 8 // stored.bits
        raw = self.raw(tensor, first, stored.nbytes(stop) - first)
        values = stored.decode(raw, skip + stop - start)[skip:]
        values.flags.writeable = False
        return values

    def dense_file(self, tensor: Tensor) -> Path | None:
        """Return the file of a tensor that is stored densely, or None."""
        changed = tensor.key in self._decoded or tensor.key in self._pieces
        return None if changed else super().dense_file(tensor)
