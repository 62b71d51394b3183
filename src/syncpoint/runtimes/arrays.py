"""Convert the tensors and arrays that a user records by hand (NumPy, torch, DLPack, numbers) to
NumPy arrays, bit for bit.

Accepts NumPy arrays and numbers, torch tensors on any device, and objects of other packages that
have `__array__` or `__dlpack__`. Imports no framework that the caller has not imported already,
except torch where only torch can read a `__dlpack__` object.
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

_TENSOR_FORMS = "a NumPy array, a number, a torch tensor, or an object with __array__ or __dlpack__"


@dataclass(frozen=True)
class RecordableArray:
    """A value in the form that the recorder takes; may share memory with its source object."""

    array: Array
    dtype: str | None = None
    """Our name of the element type, where the dtype of the array is not enough."""
    strides: tuple[int, ...] | None = None
    device: str = ""
    requires_grad: bool | None = None


def to_recordable(value: Any) -> RecordableArray:
    """Read the values of an object; raise InputError if it is not a tensor or cannot be read."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            return _from_torch(value)
        return _from_others(value)
    except SyncpointError:
        raise
    except Exception as error:
        # Objects of other packages may raise anything when they are read.
        raise InputError(
            f"cannot read {_describe_type(value)} as a tensor: {describe_error(error)}",
            cure=f"give {_TENSOR_FORMS}",
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
        raise InputError(
            "a masked array cannot be recorded",
            cure="fill it first: value.filled(...)",
        )
    if isinstance(value, np.ndarray):
        return _from_numpy(value)
    if isinstance(value, bool | int | float | complex | np.generic):
        return _from_numpy(np.asarray(value))
    first_error: Exception | None = None
    if hasattr(value, "__array__"):
        try:
            return _from_numpy(np.asarray(value))
        except (TypeError, RuntimeError, ValueError, BufferError) as error:
            first_error = error  # an array on another device may still have __dlpack__
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value)
    if first_error is not None:
        raise first_error
    raise InputError(
        f"{_describe_type(value)} is not {_TENSOR_FORMS}",
        cure="wrap it: numpy.asarray(...)",
    )


def _from_dlpack(value: Any) -> RecordableArray:
    try:
        return _from_numpy(np.from_dlpack(value))
    except (BufferError, RuntimeError, TypeError):
        # NumPy reads neither bf16 nor memory of another device; torch does.
        from torch.utils.dlpack import from_dlpack

        return _from_torch(from_dlpack(value))


def _from_numpy(array: Array) -> RecordableArray:
    dtype_of(array.dtype)  # raises for text, objects and records
    size = array.dtype.itemsize
    has_whole_strides = all(step % size == 0 for step in array.strides)
    return RecordableArray(
        array,
        None,
        tuple(stride // size for stride in array.strides) if has_whole_strides else None,
        "cpu",
    )


def _describe_type(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
