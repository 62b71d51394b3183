"""Whatever an engine calls a tensor -> an array with its facts, bit for bit.

NumPy arrays and numbers, torch tensors on any device, and objects of other packages that speak
`__array__` or `__dlpack__`. No framework is imported that the caller has not imported already,
but for torch where only it can read what `__dlpack__` gives.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncpoint.errors import InputError, SyncpointError, describe_error
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.dtypes import from_numpy as dtype_of
from syncpoint.runtimes.protocol import Array

_TENSOR_FORMS = (
    "a tensor: a NumPy array, a number, a torch tensor, or what has __array__ or __dlpack__"
)


@dataclass(frozen=True)
class RecordableArray:
    """A value as the recorder takes it; may share memory with the object it came from."""

    array: Array
    dtype: str | None = None
    """Our name of the element type where the array's own does not say it."""
    strides: tuple[int, ...] | None = None
    device: str = ""
    requires_grad: bool | None = None


def to_recordable(value: Any) -> RecordableArray:
    """The values behind an object; an InputError if it is no tensor or cannot be read."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            return _from_torch(value)
        return _from_others(value)
    except SyncpointError:
        raise
    except Exception as error:
        # What foreign objects raise when they are read is as varied as they are.
        raise InputError(
            _TENSOR_FORMS, f"{_describe_type(value)} that cannot be read: {describe_error(error)}"
        ) from (error)


def _from_torch(value: Any) -> RecordableArray:
    import torch

    from syncpoint.runtimes.torch.arrays import dtype_name, to_numpy

    name = dtype_name(value.dtype)
    return RecordableArray(
        to_numpy(value),
        name if name in DTYPES else None,
        tuple(value.stride()) if value.layout is torch.strided else None,
        str(value.device),
        value.requires_grad,
    )


def _from_others(value: Any) -> RecordableArray:
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(_TENSOR_FORMS, "a masked array", "fill it first: value.filled(...)")
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    if isinstance(value, bool | int | float | complex | np.generic):
        return _from_numpy(np.asarray(value))
    failed: Exception | None = None
    if hasattr(value, "__array__"):
        try:
            return _from_numpy(np.asarray(value))
        except (TypeError, RuntimeError, ValueError, BufferError) as error:
            failed = error  # an array on another device: it may still speak DLPack
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value)
    if failed is not None:
        raise failed
    raise InputError(_TENSOR_FORMS, _describe_type(value), "wrap it: numpy.asarray(...)")


def _from_dlpack(value: Any) -> RecordableArray:
    try:
        return _from_numpy(np.from_dlpack(value))
    except (BufferError, RuntimeError, TypeError):
        # NumPy reads neither bf16 nor what lies on another device; torch does.
        from torch.utils.dlpack import from_dlpack

        return _from_torch(from_dlpack(value))


def _from_numpy(array: Array) -> RecordableArray:
    dtype_of(array.dtype)  # refuses text, objects and records
    size = array.dtype.itemsize
    whole = all(step % size == 0 for step in array.strides)
    return RecordableArray(
        array, None, tuple(s // size for s in array.strides) if whole else None, "cpu"
    )


def _describe_type(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
