"""Values of `.npy` files whose element type is another than the file can say: bf16 kept as f32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.array_store import ArrayStore, Lay
from syncpoint.errors import FormatError, InputError
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DTYPES, DType, Kind
from syncpoint.run.model import Tensor, TensorKey, replace_fields

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

    def dense_file(self, tensor: Tensor) -> Path | None:
        """The file of a tensor that lies there in its own type."""
        return None if tensor.key in self._stored else super().dense_file(tensor)


def _as_stored(tensor: Tensor, stored: DType) -> Tensor:
    return replace_fields(tensor, dtype=stored.name, nbytes=stored.nbytes(tensor.count))


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


_UNPACKED = {"i4": "int8", "u4": "uint8"}
"""What the .npy file has where elements are smaller than a byte."""


def torch_name(dtype: DType) -> str:
    """What torch calls an element type; of four bits, what torch holds them in."""
    return f"torch.{_UNPACKED.get(dtype.name, dtype.long_name)}"


def stored_as(dtype: DType) -> DType:
    """The element type that a .npy file can hold all values of `dtype` in."""
    if dtype.numpy.isbuiltin == 1:
        return dtype
    if dtype.kind is Kind.FLOAT:
        return DTYPES["f32"]
    return DTYPES["i8" if dtype.name == "i4" else "u8"]


def widened(values: Array, dtype: DType) -> Array:
    """The values in the type they are stored in, in the memory order they have."""
    if dtype.name == "bf16":  # by its bits, so that a NaN stays the NaN it is
        return (values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(stored_as(dtype).numpy, copy=False)


def labelled_dtype(label: str, stored: DType, where: str) -> DType:
    """The type that `torch_dtype` says; the file's own where torch's name is not known here."""
    if not label.startswith("torch."):
        return stored
    try:
        said = dtypes.parse_dtype(label)
    except InputError:
        return stored
    check_fits(said, stored, where)
    return said


def check_fits(said: DType, stored: DType, where: str) -> None:
    """A file may hold a type that NumPy cannot name in a wider one of the same kind."""
    if said is not stored and (said.kind is not stored.kind or said.bits >= stored.bits):
        raise FormatError(f"{said} for {where}, as its metadata says", f"{stored} in the file")
