"""Check the op keys and tensors that were read from a file (dtype, shape, sizes, offsets, shard
name); a contradiction is a FormatError."""

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
"""Maximum number of axes in NumPy."""
_MAX_COUNT = 1 << 60
"""More elements than any machine can hold; bounds the products of hostile shapes."""


def check_op_key(key: OpKey) -> OpKey:
    """Return the key if a recorder can have created it, else raise FormatError."""
    if key.call < 0 or key.iteration < 0:
        raise FormatError(f"{key} has a negative call or iteration: {key.call} and {key.iteration}")
    return key


def check_tensor(tensor: Tensor) -> None:
    """Raise FormatError if the columns of a tensor contradict each other."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise FormatError(f"{tensor.key} has the unknown dtype {tensor.dtype!r}")
    shape = tensor.shape
    if len(shape) > _MAX_RANK or (shape and min(shape) < 0):
        raise FormatError(
            f"{tensor.key} has the shape {str(tensor.shape)[:80]}; "
            f"at most {_MAX_RANK} axes and no negative ones are allowed"
        )
    # Without the zeros: an empty axis must not hide the absurd size of another one.
    count = prod(shape)
    if count > _MAX_COUNT or (count == 0 and prod(filter(None, shape)) > _MAX_COUNT):
        raise FormatError(
            f"{tensor.key} has the shape {str(tensor.shape)[:80]}, too large for any machine"
        )
    if tensor.offset < 0 or tensor.nbytes < 0 or tensor.key.index < 0:
        raise FormatError(
            f"{tensor.key} has a negative offset, nbytes or index: "
            f"{tensor.offset}, {tensor.nbytes} and {tensor.key.index}"
        )
    if tensor.kept is Kept.VALUES:
        nbytes = dtype.nbytes(count)
        if tensor.nbytes != nbytes:
            raise FormatError(
                f"{tensor.key} has nbytes {tensor.nbytes}, "
                f"but {dtype} of shape {tensor.shape} takes {nbytes} bytes"
            )
        if nbytes and not SHARD_NAME.fullmatch(tensor.shard):
            raise FormatError(
                f"{tensor.key} is in the shard {tensor.shard!r}, "
                "but shards are named tensors-NNNNN.safetensors"
            )
    elif tensor.nbytes or tensor.shard:
        raise FormatError(
            f"the recording is inconsistent: {tensor.key} is marked {tensor.kept} and has"
            f" {tensor.nbytes} bytes of values in the shard {tensor.shard!r}",
            cure="record it again",
        )
