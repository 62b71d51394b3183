"""Values of ONNX Runtime <-> NumPy arrays, bit for bit, in every element type we know."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from syncpoint.errors import Unsupported
from syncpoint.run.array_bytes import from_bytes
from syncpoint.run.dtypes import DTYPES
from syncpoint.runtimes.onnx.element_types import CODES, NAMES
from syncpoint.runtimes.protocol import Array

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


def constant(value: ir.Value) -> Array | None:
    """The values of a parameter or constant; None for what is computed or is no number."""
    found = ir.convenience.get_const_tensor(value)
    if found is None or int(found.dtype) not in NAMES:
        return None
    array: Array = found.numpy()
    return array
