"""Arrays of the Core AI runtime <-> NumPy arrays, and where they lie in memory."""

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

NAMES = {
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
"""The runtime's name of an element type -> ours, or the next wider one of ours."""
_PACKED = {"int2": 2, "int4": 4, **{f"uint{bits}": bits for bits in (1, 2, 3, 4, 6)}}
"""Bits of the element types of which several lie in a byte or across two."""
_WHOLE_BYTES = {n: DTYPES[o].numpy for n, o in NAMES.items() if n not in _PACKED}
"""What lies in memory as NumPy has it."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A value as a callback showed it: good until the callback returns, unless it is a constant."""

    array: Array
    address: int
    """Of its first byte in the runtime's memory; 0 where it cannot be told."""
    digest: int

    @property
    def form(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Shape and element type."""
        return self.array.shape, self.array.dtype


def seen(raw: Any) -> Seen:
    """What lies behind an array that the runtime handed out, without a copy where that can be."""
    kind = _WHOLE_BYTES.get(raw.dtype)
    view = memoryview(raw)
    if not view.c_contiguous:
        array = to_numpy(raw)
        return Seen(array, 0, _digest(array))
    flat = np.frombuffer(view, np.uint8)
    if kind is None:  # packed: the values are unpacked, the place is that of the bytes
        array = to_numpy(raw)
        return Seen(array, int(flat.ctypes.data) if flat.size else 0, _digest(array))
    shape = tuple(raw.shape)
    array = flat.view(kind).reshape(shape)
    return Seen(array, int(flat.ctypes.data) if flat.size else 0, _digest(array))


def of_array(array: Array) -> Seen:
    """An array of ours as if a callback had shown it, at no place that the runtime knows."""
    return Seen(array, 0, _digest(array))


def placed(array: NDArray) -> Seen | None:
    """What a callback will show of an array that is given to the runtime, which works on the
    memory of states itself; None where this version does not tell."""
    raw = getattr(array, "_tensor", None)
    return None if raw is None else seen(raw)


def to_numpy(raw: Any) -> Array:
    """The values of an array of the runtime, whatever its type and strides."""
    if raw.dtype not in NAMES:
        raise Unsupported("a tensor of numbers", f"elements of {raw.dtype}")
    if raw.dtype in _PACKED:
        return _unpacked(raw)
    wrapped = raw if isinstance(raw, NDArray) else NDArray._wrap(raw)
    return wrapped.numpy()


def _unpacked(raw: Any) -> Array:
    """The elements of a packed array, the lowest bits of each byte first. Its buffer claims a byte
    for each of them: only so many as hold them are read."""
    bits, shape = _PACKED[raw.dtype], tuple(raw.shape)
    view = memoryview(getattr(raw, "_tensor", raw))
    if not view.c_contiguous:
        raise Unsupported("packed integers in order", f"strides {tuple(raw.strides)}")
    count = prod(shape)
    data = np.frombuffer(view, np.uint8)[: (count * bits + 7) // 8]
    each = np.unpackbits(data, bitorder="little")[: count * bits].reshape(count, bits)
    found = (each << np.arange(bits, dtype=np.uint8)).sum(1, dtype=np.uint8).reshape(shape)
    if raw.dtype.startswith("int"):
        sign = 1 << (bits - 1)
        return np.asarray((found.astype(np.int8) ^ sign) - sign, ml_dtypes.int4)
    return found if bits > 4 else np.asarray(found, ml_dtypes.uint4)


def to_coreai(array: Array) -> NDArray:
    """An array of the runtime of these values, in memory of its own."""
    return NDArray(np.array(array, order="C", copy=True))


def _digest(array: Array) -> int:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return xxhash.xxh3_64_intdigest(flat.data)
