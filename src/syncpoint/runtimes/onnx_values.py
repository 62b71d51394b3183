"""Values of ONNX Runtime <-> NumPy arrays, bit for bit, in every element type we know."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.elements import from_bytes
from syncpoint.runtimes.protocol import Array

NAMES: Mapping[int, str] = {
    1: "f32",
    2: "u8",
    3: "i8",
    4: "u16",
    5: "i16",
    6: "i32",
    7: "i64",
    9: "bool",
    10: "f16",
    11: "f64",
    12: "u32",
    13: "u64",
    14: "c64",
    15: "c128",
    16: "bf16",
    17: "f8_e4m3fn",
    19: "f8_e5m2",
    21: "u4",
    22: "i4",
}
"""Number of an element type in ONNX -> our name."""
CODES = {name: number for number, name in NAMES.items()}
FLOATS = frozenset({"f64", "f32", "f16", "bf16", "f8_e4m3fn", "f8_e5m2"})
_BY_HAND = frozenset({"bf16", "f8_e4m3fn", "f8_e5m2", "u4", "i4"})
"""What ONNX Runtime gives NumPy in another type, or not at all."""


def to_numpy(value: Any) -> Array:
    """The values of an OrtValue that holds a dense tensor."""
    if not value.is_tensor():
        raise Unsupported("a dense tensor", f"a {value.data_type()}")
    name = NAMES.get(value.element_type())
    if name is None or name not in _BY_HAND:
        found: Array = value.numpy()
        if found.dtype.hasobject or found.dtype.kind not in "biufc":
            raise Unsupported("a tensor of numbers", f"a {value.data_type()}")
        return found
    shape = tuple(value.shape())
    size = DTYPES[name].nbytes(math.prod(shape))
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8)
    return from_bytes(raw, DTYPES[name], shape)


def to_ort(array: Array) -> Any:
    """An OrtValue of these values."""
    array = np.asarray(array, order="C")  # ascontiguousarray would give a scalar an axis
    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), CODES["bf16"])
    for name in ("f8_e4m3fn", "f8_e5m2"):
        if array.dtype == DTYPES[name].numpy:
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
                array.view(np.uint8), CODES[name]
            )
    return ort.OrtValue.ortvalue_from_numpy(array)
