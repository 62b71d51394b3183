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

_WANTED = "a tensor: a NumPy array, a number, a torch tensor, or what has __array__ or __dlpack__"


@dataclass(frozen=True)
class Taken:
    """A value as the recorder takes it; may share memory with the object it came from."""

    array: Array
    dtype: str | None = None
    """Our name of the element type where the array's own does not say it."""
    strides: tuple[int, ...] | None = None
    device: str = ""
    requires_grad: bool | None = None


def taken(value: Any) -> Taken:
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
            _WANTED, f"{_kind(value)} that cannot be read: {describe_error(error)}"
        ) from (error)


def _from_torch(value: Any) -> Taken:
    import torch

    from syncpoint.runtimes.torch.arrays import dtype_name, to_numpy

    name = dtype_name(value.dtype)
    return Taken(
        to_numpy(value),
        name if name in DTYPES else None,
        tuple(value.stride()) if value.layout is torch.strided else None,
        str(value.device),
        value.requires_grad,
    )


def _from_others(value: Any) -> Taken:
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(_WANTED, "a masked array", "fill it first: value.filled(...)")
    if isinstance(value, np.ndarray):
        return _plain(value)
    if isinstance(value, bool | int | float | complex | np.generic):
        return _plain(np.asarray(value))
    failed: Exception | None = None
    if hasattr(value, "__array__"):
        try:
            return _plain(np.asarray(value))
        except (TypeError, RuntimeError, ValueError, BufferError) as error:
            failed = error  # an array on another device: it may still speak DLPack
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value)
    if failed is not None:
        raise failed
    raise InputError(_WANTED, _kind(value), "wrap it: numpy.asarray(...)")


def _from_dlpack(value: Any) -> Taken:
    try:
        return _plain(np.from_dlpack(value))
    except (BufferError, RuntimeError, TypeError):
        # NumPy reads neither bf16 nor what lies on another device; torch does.
        from torch.utils.dlpack import from_dlpack

        return _from_torch(from_dlpack(value))


def _plain(array: Array) -> Taken:
    dtype_of(array.dtype)  # refuses text, objects and records
    size = array.dtype.itemsize
    whole = all(step % size == 0 for step in array.strides)
    return Taken(array, None, tuple(s // size for s in array.strides) if whole else None, "cpu")


def _kind(value: object) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
