"""One pass over the elements of a tensor: its digest and its statistics, a window at a time.

Elements that lie dense in their file are read, not mapped: whoever writes the file may cut it short
while we look, and a mapping of what is no longer there kills the process that looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from syncpoint.metrics import Operand
from syncpoint.metrics import statistics as describe
from syncpoint.reducing.file_access import read_into
from syncpoint.run.array_bytes import from_bytes, to_bytes
from syncpoint.run.digests import XXH3_128, new_hasher
from syncpoint.run.dtypes import DTYPES, DType
from syncpoint.run.model import Statistics, Tensor
from syncpoint.run.reader import Run
from syncpoint.run.statistics import merge_statistics
from syncpoint.run.storage.tensor_checksums import tensor_damage_error

Array = NDArray[Any]

WINDOW = 1 << 20
"""Elements looked at together: a few megabytes, which both passes find in the cache. Even, so that
a packed element never shares its byte with the next window."""


@dataclass(frozen=True)
class Ends:
    """The least and the greatest element, NaN where there is one among them, as NumPy has it."""

    least: Any
    greatest: Any


@dataclass(frozen=True)
class Measured:
    """What one pass found."""

    digest: str
    """xxh3-128 of the dense bytes."""
    statistics: Statistics | None = None
    ends: Ends | None = None
    """None of a tensor without elements."""


def measure(
    run: Run, tensor: Tensor, handle: int, *, figures: bool = False, ends: bool = False
) -> Measured:
    """Read a tensor once. `handle` is its open file; elements that do not lie dense in it come
    through the run. A tensor that does not fit its recorded checksum is a DamagedError."""
    dtype = DTYPES[tensor.dtype]
    state = xxhash.xxh3_128()
    found: Statistics | None = None
    both: Ends | None = None
    for values in windows(run, tensor, handle):
        state.update(to_bytes(values, dtype).data)
        some = None
        if figures or (ends and not _exact(dtype)):
            some = describe(Operand(values, tensor.dtype))
        if figures and some is not None:
            found = some if found is None else merge_statistics(found, some)
        if ends:
            both = _ends(both, values, some)
    if figures and found is None:
        found = describe(Operand(np.empty(0, dtype.numpy), tensor.dtype))
    digest = state.hexdigest()
    _verify(run, tensor, handle, digest)
    return Measured(digest, found, both)


def _verify(run: Run, tensor: Tensor, handle: int, digest: str) -> None:
    """Raise DamagedError where a tensor with this digest is not the one that was recorded."""
    checksum = run.checksum(tensor)
    if checksum is None:
        return
    if checksum.kind != XXH3_128:
        # Of a whole member of an archive, say. Its pages have just been read.
        state = new_hasher(checksum.kind)
        end = checksum.offset + checksum.nbytes
        buffer = np.empty(min(WINDOW, checksum.nbytes), np.uint8)
        for start in range(checksum.offset, end, WINDOW):
            raw = buffer[: min(WINDOW, end - start)]
            read_into(handle, raw, start, tensor)
            state.update(raw.data)
        digest = state.hexdigest()
    if digest != checksum.value.lower():
        raise tensor_damage_error(tensor, tensor.shard)


def windows(run: Run, tensor: Tensor, handle: int) -> Iterator[Array]:
    """The elements in row-major order; each array is only good until the next is asked for."""
    if run.dense_file(tensor, verify=False) is None:  # `measure` verifies it
        # Put in order once: stores do so for each window anew.
        whole = run.values(tensor).reshape(-1)
        for start in range(0, tensor.count, WINDOW):
            yield whole[start : start + WINDOW]
        return
    dtype = DTYPES[tensor.dtype]
    buffer = np.empty(dtype.nbytes(min(WINDOW, tensor.count)), np.uint8)
    for start in range(0, tensor.count, WINDOW):
        count = min(WINDOW, tensor.count - start)
        raw = buffer[: dtype.nbytes(count)]
        read_into(handle, raw, tensor.offset + dtype.nbytes(start), tensor)
        yield from_bytes(raw, dtype, (count,))


def _exact(dtype: DType) -> bool:
    """Whether NumPy is quick at the ends of this type; statistics know of integers only what
    float64 does."""
    return dtype.name not in ("f16", "bf16")


def _ends(so_far: Ends | None, values: Array, some: Statistics | None) -> Ends:
    if some is not None and not some.nan and not some.inf:
        least = np.asarray(some.min).astype(values.dtype)[()]
        greatest = np.asarray(some.max).astype(values.dtype)[()]
    else:
        with np.errstate(invalid="ignore"):
            least, greatest = values.min(), values.max()
    if so_far is None:
        return Ends(least, greatest)
    with np.errstate(invalid="ignore"):
        return Ends(np.minimum(so_far.least, least), np.maximum(so_far.greatest, greatest))
