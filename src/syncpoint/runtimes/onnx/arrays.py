"""Convert values and constants of ONNX Runtime to NumPy arrays and back, bit for bit, in every
known type."""

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
from syncpoint.runtimes.onnx.element_types import DTYPE_CODES, DTYPE_NAMES
from syncpoint.runtimes.protocol import Array

_RAW_BYTES = frozenset({"bf16", "f8_e4m3fn", "f8_e5m2", "u4", "i4"})
"""Types that ONNX Runtime converts to NumPy in another type or not at all: read as bytes."""


def to_numpy(value: Any) -> Array:
    """Return the values of an OrtValue that holds a dense tensor."""
    if not value.is_tensor():
        raise Unsupported(f"the value is not a dense tensor but a {value.data_type()}")
    name = DTYPE_NAMES.get(value.element_type())
    if name is None or name not in _RAW_BYTES:
        array: Array = value.numpy()
        if array.dtype.hasobject or array.dtype.kind not in "biufc":
            raise Unsupported(f"the value is not a tensor of numbers but a {value.data_type()}")
        return array
    shape = tuple(value.shape())
    size = DTYPES[name].nbytes(math.prod(shape))
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8)
    return from_bytes(raw, DTYPES[name], shape)


def to_ort(array: Array) -> Any:
    """Make an OrtValue of these values."""
    array = np.asarray(array, order="C")  # ascontiguousarray would give a scalar an axis
    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
            array.view(np.uint16), DTYPE_CODES["bf16"]
        )
    for name in ("f8_e4m3fn", "f8_e5m2"):
        if array.dtype == DTYPES[name].numpy:
            return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(
                array.view(np.uint8), DTYPE_CODES[name]
            )
    return ort.OrtValue.ortvalue_from_numpy(array)


def constant_to_numpy(value: ir.Value) -> Array | None:
    """Return the values of a parameter or constant; None for computed values and non-numbers."""
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or int(tensor.dtype) not in DTYPE_NAMES:
        return None
    array: Array = tensor.numpy()
    return array
