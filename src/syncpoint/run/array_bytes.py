"""Convert arrays to the dense bytes that are stored and back; reinterpret dtypes; pack and unpack
four-bit types; byte range of a window.

Stored bytes are row-major and little-endian. Two four-bit elements share a byte, the first in the
low half; in a last byte with one element the upper half is zero.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import InputError
from syncpoint.run.dtypes import DType

Array = NDArray[Any]
Bytes = NDArray[np.uint8]


def to_bytes(array: Array, dtype: DType) -> Bytes:
    """Return the dense bytes of `array`, whose elements are `dtype`; a view if possible."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype.packed:
        return pack(flat)
    if flat.dtype.byteorder == ">":
        flat = flat.astype(flat.dtype.newbyteorder("<"))
    return flat.view(np.uint8)


def from_bytes(raw: Bytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Return the elements in `raw`, read-only; a view unless they are packed or misaligned."""
    if dtype.packed:
        array: Array = unpack(raw, prod(shape)).view(dtype.numpy)
    else:
        array = raw.view(dtype.numpy)
        if not array.flags.aligned:
            array = array.copy()
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def pack(values: Array) -> Bytes:
    """Pack two four-bit elements into each byte, the first in the low half."""
    nibbles = values.reshape(-1).view(np.uint8) & np.uint8(0x0F)
    packed = nibbles[0::2].copy()
    packed[: nibbles.size // 2] |= nibbles[1::2] << np.uint8(4)
    return packed


def unpack(raw: Bytes, count: int) -> Bytes:
    """Unpack `count` four-bit elements to one byte each, the form of ml_dtypes."""
    nibbles = np.empty(raw.size * 2, np.uint8)
    np.bitwise_and(raw, 0x0F, out=nibbles[0::2])
    np.right_shift(raw, 4, out=nibbles[1::2])
    return nibbles[:count]


def reinterpret(array: Array, dtype: DType) -> Array:
    """Reinterpret the bytes of `array` as `dtype`, which may be wider, narrower or packed.

    For a packed type an array of ml_dtypes elements is returned unchanged; an array of bytes holds
    two elements per byte, so its last axis doubles.
    """
    if array.dtype == dtype.numpy:
        return array
    if dtype.packed:
        if array.dtype.itemsize != 1 or array.ndim == 0:
            raise _reinterpret_error(array, dtype)
        shape = (*array.shape[:-1], array.shape[-1] * 2)
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return unpack(raw, raw.size * 2).view(dtype.numpy).reshape(shape)
    try:
        return array.view(dtype.numpy)
    except (TypeError, ValueError) as error:
        raise _reinterpret_error(array, dtype) from error


def byte_range(dtype: DType, start: int, stop: int) -> tuple[int, int, int]:
    """First byte and end byte of a window of elements, and elements to skip in the first byte."""
    first = start * dtype.bits // 8
    skip = start - first * 8 // dtype.bits
    return first, dtype.nbytes(stop), skip


def _reinterpret_error(array: Array, dtype: DType) -> InputError:
    return InputError(
        f"an array of {array.dtype} with shape {array.shape} cannot be reinterpreted as {dtype}",
        cure="leave dtype out, or pass the raw bytes with the last axis contiguous",
    )
