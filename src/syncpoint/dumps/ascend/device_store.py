"""Values of device dumps: mapped where they lie, or decoded where nothing else reads their type."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from syncpoint.dumps.ascend.device_types import Stored
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.store import FileStore

Array = NDArray[Any]


class DeviceStore(FileStore):
    """Tensors in the files of one folder, some of which are decoded when they are read."""

    def __init__(self, root: Path, decoded: Mapping[TensorKey, Stored]) -> None:
        super().__init__(root)
        self._decoded = decoded

    def read(self, tensor: Tensor) -> Array:
        """All elements, row-major."""
        if tensor.key not in self._decoded:
            return super().read(tensor)
        return self.window(tensor, 0, tensor.count).reshape(tensor.shape)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements of the row-major order."""
        stored = self._decoded.get(tensor.key)
        if stored is None or stored.decode is None:
            return super().window(tensor, start, stop)
        first = start * stored.bits // 8
        skip = start - first * 8 // stored.bits
        raw = self.raw(tensor, first, stored.nbytes(stop) - first)
        values = stored.decode(raw, skip + stop - start)[skip:]
        values.flags.writeable = False
        return values

    def place(self, tensor: Tensor) -> Path | None:
        """The file of a tensor that is used as it lies."""
        return None if tensor.key in self._decoded else super().place(tensor)
