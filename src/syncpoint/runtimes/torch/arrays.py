"""Convert torch tensors to NumPy arrays and back, bit for bit; torch dtypes by name; clone, compare
and describe tensors; memory ids: in_place_writes.py."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.dtypes import parse_dtype as named
from syncpoint.runtimes.protocol import Array, Tree

_NAME_BY_DTYPE: dict[torch.dtype, str] = {
    getattr(torch, dtype.long_name): dtype.name for dtype in DTYPES.values() if not dtype.packed
}
_DTYPE_BY_NAME = {name: dtype for dtype, name in _NAME_BY_DTYPE.items()} | {
    "i4": torch.int8,
    "u4": torch.uint8,
}

_INTEGER_VIEWS: dict[torch.dtype, tuple[torch.dtype, np.dtype[np.generic]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
"""Dtypes unknown to NumPy are converted as integers of the same size."""

_ALIGNMENT_BYTES = 64
"""The alignment of torch's own allocator; BLAS may round differently with another one."""


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of an element type; torch's own where we have none."""
    return _NAME_BY_DTYPE.get(dtype) or str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    """The element type of torch that we call `name`."""
    return _DTYPE_BY_NAME[named(name).name]


def complex_dtype_of(dtype: torch.dtype) -> torch.dtype:
    """The complex dtype whose parts are as wide as `dtype`, or the next wider one."""
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def is_float_name(name: str) -> bool:
    """Whether our name `name` is that of a floating-point type."""
    return named(name).kind is Kind.FLOAT


def to_numpy(tensor: torch.Tensor) -> Array:
    """The values of a tensor; shares memory where the tensor is dense and on the CPU."""
    # Each of these calls costs as much as a small op, even where it changes nothing.
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    if not tensor.is_cpu:
        tensor = tensor.cpu()
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.dtype in _INTEGER_VIEWS:
        integer_dtype, numpy_dtype = _INTEGER_VIEWS[tensor.dtype]
        array: Array = tensor.view(integer_dtype).numpy().view(numpy_dtype)
        return array
    if tensor.dtype not in _NAME_BY_DTYPE:
        raise Unsupported(
            f"tensors of {dtype_name(tensor.dtype)} cannot be recorded",
            cure=f"convert to one of: {', '.join(_NAME_BY_DTYPE.values())}",
        )
    return tensor.numpy()


def to_torch(array: Array) -> torch.Tensor:
    """A tensor of these values; shares the memory of the array only where that is safe."""
    if array.dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        array = array.astype(np.int8 if array.dtype == np.dtype(ml_dtypes.int4) else np.uint8)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    tensor: torch.Tensor
    for torch_type, (integer_type, dtype) in _INTEGER_VIEWS.items():
        if array.dtype == dtype:
            integer = np.int16 if integer_type is torch.int16 else np.uint8
            tensor = torch.from_numpy(array.view(integer)).view(torch_type)
            break
    else:
        tensor = torch.from_numpy(array)
    return tensor.clone() if tensor.data_ptr() % _ALIGNMENT_BYTES else tensor


def to_meta_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """A meta tensor with the dtype, shape and strides of this one; None where it has no strides."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def has_same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and bytes."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    a, b = (np.ascontiguousarray(to_numpy(t)).reshape(-1).view(np.uint8) for t in (first, second))
    return bool(np.array_equal(a, b))


def describe_value(value: object) -> str:
    """`f32[2, 3]` for a tensor, else the value itself; for messages."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    return (
        repr(value)
        if isinstance(value, (int, float, bool, str, type(None)))
        else type(value).__qualname__
    )


def clone_tensor(value: Tree) -> Tree:
    """A copy of a tensor; any other value as it is."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def describe_dtype(dtype: torch.dtype) -> str:
    """`float64`, for messages."""
    return str(dtype).removeprefix("torch.")
