"""Tensors of torch <-> NumPy arrays, bit for bit; bf16 and fp8 as views, never through f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.dtypes import parse_dtype as named
from syncpoint.runtimes.protocol import Array, Tree

_NAMES: dict[torch.dtype, str] = {
    getattr(torch, dtype.long_name): dtype.name for dtype in DTYPES.values() if not dtype.packed
}
_TORCH = {name: dtype for dtype, name in _NAMES.items()} | {"i4": torch.int8, "u4": torch.uint8}

_DISGUISES: dict[torch.dtype, tuple[torch.dtype, np.dtype[np.generic]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
"""What NumPy alone does not know crosses over as integers of the same size."""

_ALIGNMENT = 64
"""What torch's own allocator gives; BLAS may round differently on memory aligned otherwise."""


def dtype_name(dtype: torch.dtype) -> str:
    """Our name of an element type; torch's own where we have none."""
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype:
    """The element type of torch that we call `name`."""
    return _TORCH[named(name).name]


def complex_of(dtype: torch.dtype) -> torch.dtype:
    """The complex type whose parts are as wide as `dtype`, or the nearest wider one."""
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def is_float_name(name: str) -> bool:
    """Whether our name `name` is that of a floating-point type."""
    return named(name).kind is Kind.FLOAT


def to_numpy(tensor: torch.Tensor) -> Array:
    """The values of a tensor; shares memory where the tensor is dense and on the CPU."""
    # Each of these costs as much as a small op, even where it has nothing to do.
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
    if tensor.dtype in _DISGUISES:
        plain, dtype = _DISGUISES[tensor.dtype]
        found: Array = tensor.view(plain).numpy().view(dtype)
        return found
    if tensor.dtype not in _NAMES:
        raise Unsupported(
            f"an element type among {', '.join(_NAMES.values())}", dtype_name(tensor.dtype)
        )
    return tensor.numpy()


def to_torch(array: Array) -> torch.Tensor:
    """A tensor of these values; shares the array's memory only where that is safe."""
    if array.dtype in (np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)):
        array = array.astype(np.int8 if array.dtype == np.dtype(ml_dtypes.int4) else np.uint8)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, order="C")
    tensor: torch.Tensor
    for disguised, (plain, dtype) in _DISGUISES.items():
        if array.dtype == dtype:
            integer = np.int16 if plain is torch.int16 else np.uint8
            tensor = torch.from_numpy(array.view(integer)).view(disguised)
            break
    else:
        tensor = torch.from_numpy(array)
    return tensor.clone() if tensor.data_ptr() % _ALIGNMENT else tensor


def form_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor without values that has the type, shape and strides of this one.

    None for what has no strides.
    """
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and bytes."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    a, b = (np.ascontiguousarray(to_numpy(t)).reshape(-1).view(np.uint8) for t in (left, right))
    return bool(np.array_equal(a, b))


def describe(value: object) -> str:
    """`f32[2, 3]` for a tensor, else the value itself; for messages."""
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}{list(value.shape)}"
    return (
        repr(value)
        if isinstance(value, (int, float, bool, str, type(None)))
        else type(value).__qualname__
    )


def cloned(value: Tree) -> Tree:
    """A tensor with memory of its own; everything else as it is."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def describe_dtype(dtype: torch.dtype) -> str:
    """`float64`, for messages."""
    return str(dtype).removeprefix("torch.")
