"""Types that a .npy file cannot hold: store bf16 as f32, narrow it when read; torch's names of
dtypes in `metadata.json`, parsed and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.dumps.array_store import ArrayStore, StoredLayout
from syncpoint.errors import FormatError, InputError
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DTYPES, DType, Kind
from syncpoint.run.model import Tensor, TensorKey, replace_fields

Array = NDArray[Any]


class NarrowingStore(ArrayStore):
    """Arrays in files of one folder; some files have a wider type than their tensor."""

    def __init__(
        self,
        root: Path,
        layouts: dict[TensorKey, StoredLayout],
        stored_dtypes: dict[TensorKey, DType],
    ) -> None:
        """`stored_dtypes` has the type in the file where it is not that of the tensor."""
        super().__init__(root, layouts)
        self._stored_dtypes = stored_dtypes

    def read(self, tensor: Tensor) -> Array:
        """Read all elements, in the tensor's own type."""
        stored = self._stored_dtypes.get(tensor.key)
        if stored is None:
            return super().read(tensor)
        return _narrow(super().read(_with_dtype(tensor, stored)), tensor)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Read the elements `start` to `stop`, in the tensor's own type."""
        stored = self._stored_dtypes.get(tensor.key)
        if stored is None:
            return super().window(tensor, start, stop)
        return _narrow(super().window(_with_dtype(tensor, stored), start, stop), tensor)

    def dense_file(self, tensor: Tensor) -> Path | None:
        """Return the file of a tensor that is stored in its own type; None for others."""
        return None if tensor.key in self._stored_dtypes else super().dense_file(tensor)


def _with_dtype(tensor: Tensor, stored: DType) -> Tensor:
    return replace_fields(tensor, dtype=stored.name, nbytes=stored.nbytes(tensor.count))


def _narrow(wide: Array, tensor: Tensor) -> Array:
    """Convert values to the tensor's type.

    Rounding would hide an error, so a value that the type cannot hold is a FormatError.
    """
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
            f"metadata.json declares {dtype} for {tensor.key}, but"
            f" {int(same.size - np.count_nonzero(same))} of its values in {tensor.shard} cannot be"
            f" represented exactly in {dtype}",
            cure="correct its torch_dtype in metadata.json",
        )
    narrow.flags.writeable = False
    return narrow


_UNPACKED = {"i4": "int8", "u4": "uint8"}
"""Types smaller than a byte -> the type of their .npy file."""


def torch_dtype_name(dtype: DType) -> str:
    """Return torch's name of an element type; 4-bit types have the name of their container."""
    return f"torch.{_UNPACKED.get(dtype.name, dtype.long_name)}"


def storage_dtype(dtype: DType) -> DType:
    """Return the element type in which a .npy file can hold all values of `dtype`."""
    if dtype.numpy.isbuiltin == 1:
        return dtype
    if dtype.kind is Kind.FLOAT:
        return DTYPES["f32"]
    return DTYPES["i8" if dtype.name == "i4" else "u8"]


def widen(values: Array, dtype: DType) -> Array:
    """Convert values to the type of their file; the memory order stays."""
    if dtype.name == "bf16":  # by its bits, so that a NaN keeps its payload
        return (values.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values.astype(storage_dtype(dtype).numpy, copy=False)


def parse_torch_dtype(label: str, stored: DType, where: str) -> DType:
    """Parse `torch_dtype` of an entry; an unknown name gives the type of the file."""
    if not label.startswith("torch."):
        return stored
    try:
        declared = dtypes.parse_dtype(label)
    except InputError:
        return stored
    check_fits_storage(declared, stored, where)
    return declared


def check_fits_storage(declared: DType, stored: DType, where: str) -> None:
    """Refuse a file whose type is neither the declared one nor a wider one of the same kind."""
    if declared is not stored and (
        declared.kind is not stored.kind or declared.bits >= stored.bits
    ):
        raise FormatError(
            f"type mismatch of {where}: {declared} in its metadata, {stored} in the file",
            cure="correct its torch_dtype in metadata.json",
        )
