"""The rules that every op key and tensor read from a file must keep."""

from __future__ import annotations

from math import prod

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import (
    Kept,
    OpKey,
    Tensor,
)
from syncpoint.run.storage.shards import SHARD_NAME

_MAX_RANK = 64
"""What NumPy can hold."""
_MAX_COUNT = 1 << 60
"""More elements than any machine has; keeps products of hostile shapes within bounds."""


def check_op_key(key: OpKey) -> OpKey:
    """A key as a recorder makes it."""
    if key.call < 0 or key.iteration < 0:
        raise FormatError("call and iteration not below 0", f"{key.call} and {key.iteration}")
    return key


def check_tensor(tensor: Tensor) -> None:
    """The rules between the columns of a tensor; breaking one is a FormatError."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise _broken(tensor, "a known dtype", repr(tensor.dtype))
    shape = tensor.shape
    if len(shape) > _MAX_RANK or (shape and min(shape) < 0):
        raise _broken(tensor, f"at most {_MAX_RANK} axes, none negative", str(tensor.shape)[:80])
    # Zeros are left out: an empty axis must not hide the absurd size of another.
    count = prod(shape)
    if count > _MAX_COUNT or (count == 0 and prod(filter(None, shape)) > _MAX_COUNT):
        raise _broken(tensor, "a size that a machine can hold", f"shape {str(tensor.shape)[:80]}")
    if tensor.offset < 0 or tensor.nbytes < 0 or tensor.key.index < 0:
        raise _broken(
            tensor,
            "offset, nbytes and index not below 0",
            f"{tensor.offset}, {tensor.nbytes} and {tensor.key.index}",
        )
    if tensor.kept is Kept.VALUES:
        whole = dtype.nbytes(count)
        if tensor.nbytes != whole:
            found = f"nbytes {tensor.nbytes}"
            raise _broken(tensor, f"{whole} bytes of {dtype} in shape {tensor.shape}", found)
        if whole and not SHARD_NAME.fullmatch(tensor.shard):
            raise _broken(tensor, "a shard named tensors-NNNNN.safetensors", repr(tensor.shard))
    elif tensor.nbytes or tensor.shard:
        raise _broken(tensor, f"no bytes of a tensor kept as {tensor.kept}", f"{tensor.nbytes}")


def _broken(tensor: Tensor, expected: str, found: str) -> FormatError:
    return FormatError(f"{expected} for {tensor.key}", found)
