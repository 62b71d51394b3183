"""Convert arrays of the Core AI runtime to NumPy arrays and back (also packed bits), and wrap them
with address, form and digest."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import xxhash
from coreai.runtime import NDArray

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.runtimes.protocol import Array

DTYPE_NAMES = {
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "bfloat16": "bf16",
    "float8e4m3fn": "f8_e4m3fn",
    "float8e5m2": "f8_e5m2",
    "bool": "bool",
    "int2": "i4",
    "int4": "i4",
    **{f"uint{bits}": "u4" for bits in (1, 2, 3, 4)},
    "uint6": "u8",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
"""The runtime's name of an element type -> ours, or our next wider type."""
_PACKED_BITS = {"int2": 2, "int4": 4, **{f"uint{bits}": bits for bits in (1, 2, 3, 4, 6)}}
"""Element types that do not fill whole bytes -> their bits."""
_BYTE_TYPES = {n: DTYPES[o].numpy for n, o in DTYPE_NAMES.items() if n not in _PACKED_BITS}
"""Element types that NumPy has with the same bytes."""


@dataclass(frozen=True, eq=False)
class RuntimeArray:
    """A value in a callback; valid until the callback returns, unless it is a constant."""

    array: Array
    address: int
    """Address of its first byte in the runtime's memory; 0 where it is unknown."""
    digest: int

    @property
    def form(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and element type."""
        return self.array.shape, self.array.dtype


def wrap_raw(raw: Any) -> RuntimeArray:
    """Wrap an array that the runtime passed to a callback, without a copy where possible."""
    dtype = _BYTE_TYPES.get(raw.dtype)
    view = memoryview(raw)
    if not view.c_contiguous:
        array = to_numpy(raw)
        return RuntimeArray(array, 0, _digest(array))
    flat = np.frombuffer(view, np.uint8)
    if dtype is None:  # packed: the values are unpacked, the address is that of the bytes
        array = to_numpy(raw)
        return RuntimeArray(array, int(flat.ctypes.data) if flat.size else 0, _digest(array))
    shape = tuple(raw.shape)
    array = flat.view(dtype).reshape(shape)
    return RuntimeArray(array, int(flat.ctypes.data) if flat.size else 0, _digest(array))


def wrap_array(array: Array) -> RuntimeArray:
    """Wrap an array of ours, which has no address in the runtime's memory."""
    return RuntimeArray(array, 0, _digest(array))


def wrap_ndarray(array: NDArray) -> RuntimeArray | None:
    """Wrap an array that is passed to the runtime, as a callback will show it.

    The runtime works directly on the memory of states. None where this version of coreai-core
    does not show the address.
    """
    raw = getattr(array, "_tensor", None)
    return None if raw is None else wrap_raw(raw)


def to_numpy(raw: Any) -> Array:
    """Return the values of an array of the runtime, of any type and strides."""
    if raw.dtype not in DTYPE_NAMES:
        raise Unsupported(
            f"the elements of a tensor have the type {raw.dtype}, which is not numeric"
        )
    if raw.dtype in _PACKED_BITS:
        return _unpack(raw)
    wrapped = raw if isinstance(raw, NDArray) else NDArray._wrap(raw)
    return wrapped.numpy()


def _unpack(raw: Any) -> Array:
    """Unpack an array, the lowest bits of each byte first.

    Its buffer claims one byte per element. Only the bytes that hold elements are read.
    """
    bits, shape = _PACKED_BITS[raw.dtype], tuple(raw.shape)
    view = memoryview(getattr(raw, "_tensor", raw))
    if not view.c_contiguous:
        raise Unsupported(f"packed integers with strides {tuple(raw.strides)} cannot be read")
    count = prod(shape)
    packed = np.frombuffer(view, np.uint8)[: (count * bits + 7) // 8]
    element_bits = np.unpackbits(packed, bitorder="little")[: count * bits].reshape(count, bits)
    weights = np.arange(bits, dtype=np.uint8)
    integers = (element_bits << weights).sum(1, dtype=np.uint8).reshape(shape)
    if raw.dtype.startswith("int"):
        sign = 1 << (bits - 1)
        return np.asarray((integers.astype(np.int8) ^ sign) - sign, ml_dtypes.int4)
    return integers if bits > 4 else np.asarray(integers, ml_dtypes.uint4)


def to_coreai(array: Array) -> NDArray:
    """Make an array of the runtime, in memory of its own."""
    return NDArray(np.array(array, order="C", copy=True))


def _digest(array: Array) -> int:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return xxhash.xxh3_64_intdigest(flat.data)
