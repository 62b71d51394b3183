"""Values of `.npy` files whose element type is another than the file can say: bf16 kept as f32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.array_store import ArrayStore, Lay
from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DTYPES, DType
from syncpoint.run.model import Tensor, TensorKey, changed

Array = NDArray[Any]


class NarrowingStore(ArrayStore):
    """Arrays in files of one folder, some in a wider type than they are said to have."""

    def __init__(
        self, root: Path, odd: dict[TensorKey, Lay], stored: dict[TensorKey, DType]
    ) -> None:
        """`stored` has the type in the file where that is not the tensor's own."""
        super().__init__(root, odd)
        self._stored = stored

    def read(self, tensor: Tensor) -> Array:
        """All elements in the tensor's own type."""
        stored = self._stored.get(tensor.key)
        if stored is None:
            return super().read(tensor)
        return _narrowed(super().read(_as_stored(tensor, stored)), tensor)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements in the tensor's own type."""
        stored = self._stored.get(tensor.key)
        if stored is None:
            return super().window(tensor, start, stop)
        return _narrowed(super().window(_as_stored(tensor, stored), start, stop), tensor)

    def place(self, tensor: Tensor) -> Path | None:
        """The file of a tensor that lies there in its own type."""
        return None if tensor.key in self._stored else super().place(tensor)


def _as_stored(tensor: Tensor, stored: DType) -> Tensor:
    return changed(tensor, dtype=stored.name, nbytes=stored.nbytes(tensor.count))


def _narrowed(wide: Array, tensor: Tensor) -> Array:
    """The same numbers in the tensor's type. Rounding them silently would hide an error, so a
    value that the type cannot hold is a FormatError."""
    dtype = DTYPES[tensor.dtype]
    if dtype.name == "bf16" and wide.dtype == np.float32:
        bits = wide.view(np.uint32)
        if not (bits & np.uint32(0xFFFF)).any():
            narrow: Array = (bits >> np.uint32(16)).astype(np.uint16).view(dtype.numpy)
            narrow.flags.writeable = False
            return narrow
    with np.errstate(all="ignore"):
        narrow = wide.astype(dtype.numpy)
        back = narrow.astype(wide.dtype)
    same = (back == wide) | ((back != back) & (wide != wide))
    if not same.all():
        raise FormatError(
            f"values that {dtype} can hold for {tensor.key}",
            f"{int(same.size - np.count_nonzero(same))} that it cannot, in {tensor.shard}",
            "its torch_dtype is wrong; correct it in metadata.json",
        )
    narrow.flags.writeable = False
    return narrow
