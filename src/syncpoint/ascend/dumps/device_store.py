"""Values of device dumps: mapped where they lie, or decoded where nothing else reads their type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.device_types import Stored
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.value_store import FileStore

Array = NDArray[Any]
Pieces = tuple[tuple[Tensor, tuple[int, ...]], ...]
"""Parts of a tensor as tensors, each with the place of its first element in the whole."""


class DeviceStore(FileStore):
    """Tensors in the files of one folder, some of which are decoded, or put together from
    pieces, when they are read."""

    def __init__(
        self,
        root: Path,
        decoded: Mapping[TensorKey, Stored],
        pieces: Mapping[TensorKey, Pieces],
    ) -> None:
        super().__init__(root)
        self._decoded = decoded
        self._pieces = pieces
        self._last: tuple[TensorKey, Array] | None = None

    def read(self, tensor: Tensor) -> Array:
        """All elements, row-major."""
        if tensor.key in self._pieces:
            return self._together(tensor)
        return self._one(tensor)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements of the row-major order."""
        if tensor.key in self._pieces:
            window = self._together(tensor).reshape(-1)[start:stop]
            window.flags.writeable = False
            return window
        return self._window(tensor, start, stop)

    def _together(self, tensor: Tensor) -> Array:
        """The pieces of a tensor, each in its place. The last is kept, so that reading one window
        by window puts it together once."""
        last = self._last
        if last is not None and last[0] == tensor.key:
            return last[1]
        whole = np.empty(tensor.shape, DTYPES[tensor.dtype].numpy)
        for piece, start in self._pieces[tensor.key]:
            place = tuple(slice(s, s + n) for s, n in zip(start, piece.shape, strict=True))
            whole[place] = self._one(piece)
        whole.flags.writeable = False
        self._last = (tensor.key, whole)
        return whole

    def _one(self, tensor: Tensor) -> Array:
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
        """The file of a tensor that is used as it lies."""
        changed = tensor.key in self._decoded or tensor.key in self._pieces
        return None if changed else super().dense_file(tensor)
