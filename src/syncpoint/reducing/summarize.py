"""Read a tensor once, window by window: digest, statistics, minimum and maximum; verify its
checksum.

Elements that are dense in their file are read, not mapped: the writer may truncate the file
meanwhile, and access to a mapping of missing bytes kills the process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from syncpoint.metrics import Operand
from syncpoint.metrics import statistics as compute_statistics
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
"""Elements per window: a few megabytes, so that both passes find them in the cache. The number is
even, so that a packed element never shares its byte with the next window."""


@dataclass(frozen=True)
class Extrema:
    """The least and the greatest element; NaN if one of the elements is NaN, as in NumPy."""

    min: Any
    max: Any


@dataclass(frozen=True)
class TensorSummary:
    """The result of one pass over a tensor."""

    digest: str
    """xxh3-128 of the dense bytes."""
    statistics: Statistics | None = None
    extrema: Extrema | None = None
    """None for a tensor without elements."""


def summarize_tensor(
    run: Run,
    tensor: Tensor,
    handle: int,
    *,
    with_statistics: bool = False,
    with_extrema: bool = False,
) -> TensorSummary:
    """Read a tensor once. `handle` is its open file; elements that are not dense in it are read
    through the run. Raises DamagedError if the tensor does not match its recorded checksum."""
    dtype = DTYPES[tensor.dtype]
    hasher = xxhash.xxh3_128()
    total: Statistics | None = None
    extrema: Extrema | None = None
    for values in windows(run, tensor, handle):
        hasher.update(to_bytes(values, dtype).data)
        statistics = None
        if with_statistics or (with_extrema and not _has_fast_extrema(dtype)):
            statistics = compute_statistics(Operand(values, tensor.dtype))
        if with_statistics and statistics is not None:
            total = statistics if total is None else merge_statistics(total, statistics)
        if with_extrema:
            extrema = _merge_extrema(extrema, values, statistics)
    if with_statistics and total is None:
        total = compute_statistics(Operand(np.empty(0, dtype.numpy), tensor.dtype))
    digest = hasher.hexdigest()
    _verify(run, tensor, handle, digest)
    return TensorSummary(digest, total, extrema)


def _verify(run: Run, tensor: Tensor, handle: int, digest: str) -> None:
    """Raise DamagedError if a tensor with this digest does not match its recorded checksum."""
    checksum = run.checksum(tensor)
    if checksum is None:
        return
    if checksum.kind != XXH3_128:
        # For example of a whole member of an archive. Its pages have just been read.
        hasher = new_hasher(checksum.kind)
        end = checksum.offset + checksum.nbytes
        buffer = np.empty(min(WINDOW, checksum.nbytes), np.uint8)
        for start in range(checksum.offset, end, WINDOW):
            window = buffer[: min(WINDOW, end - start)]
            read_into(handle, window, start, tensor)
            hasher.update(window.data)
        digest = hasher.hexdigest()
    if digest != checksum.value.lower():
        raise tensor_damage_error(tensor, tensor.shard)


def windows(run: Run, tensor: Tensor, handle: int) -> Iterator[Array]:
    """The elements in row-major order. Each array is valid until the next one is requested."""
    if run.dense_file(tensor, verify=False) is None:  # `summarize_tensor` verifies it
        # Put in order once: stores would do so again for each window.
        elements = run.values(tensor).reshape(-1)
        for start in range(0, tensor.count, WINDOW):
            yield elements[start : start + WINDOW]
        return
    dtype = DTYPES[tensor.dtype]
    buffer = np.empty(dtype.nbytes(min(WINDOW, tensor.count)), np.uint8)
    for start in range(0, tensor.count, WINDOW):
        count = min(WINDOW, tensor.count - start)
        window = buffer[: dtype.nbytes(count)]
        read_into(handle, window, tensor.offset + dtype.nbytes(start), tensor)
        yield from_bytes(window, dtype, (count,))


def _has_fast_extrema(dtype: DType) -> bool:
    """Whether NumPy finds the extrema of this dtype fast. Statistics are no substitute for
    integers: they are in float64."""
    return dtype.name not in ("f16", "bf16")


def _merge_extrema(
    extrema: Extrema | None, values: Array, statistics: Statistics | None
) -> Extrema:
    if statistics is not None and not statistics.nan and not statistics.inf:
        least = np.asarray(statistics.min).astype(values.dtype)[()]
        greatest = np.asarray(statistics.max).astype(values.dtype)[()]
    else:
        with np.errstate(invalid="ignore"):
            least, greatest = values.min(), values.max()
    if extrema is None:
        return Extrema(least, greatest)
    with np.errstate(invalid="ignore"):
        return Extrema(np.minimum(extrema.min, least), np.maximum(extrema.max, greatest))
