"""Map, read and write byte ranges of files, and start writing them back to the disk without
waiting."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError, describe_error
from syncpoint.files.untrusted_files import open_regular

Bytes = NDArray[np.uint8]

_SMALL = 16 * 1024
"""Up to this size reading is cheaper than mapping with its page faults."""


def map_bytes(path: Path, offset: int, nbytes: int) -> Bytes:
    """Map a byte range of a file read-only; the mapping is freed with the array.

    Raises FormatError if the file is missing or too short.
    """
    try:
        handle = open_regular(path)
    except OSError as error:
        cure = ""
        if isinstance(error, FileNotFoundError):
            cure = "the recording is damaged; restore the file, or record it again"
        raise FormatError(f"cannot read {path}: {describe_error(error)}", cure=cure) from error
    try:
        size = os.fstat(handle).st_size
        if offset < 0 or nbytes < 0 or offset + nbytes > size:
            raise FormatError(
                f"cannot read {nbytes} bytes at offset {offset} of {path}: "
                f"the file has only {size:,} bytes",
                cure="it is damaged (truncated), or its index is wrong; record it again",
            )
        if nbytes == 0:
            return _frozen(np.empty(0, np.uint8))
        if nbytes <= _SMALL:
            data = os.pread(handle, nbytes, offset)
            if len(data) != nbytes:
                raise FormatError(
                    f"cannot read {nbytes} bytes at offset {offset} of {path}: "
                    f"only {len(data):,} could be read",
                    cure="make sure that nothing is writing to the file, then try again",
                )
            return np.frombuffer(data, np.uint8)
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        length = offset - start + nbytes
        mapped = mmap.mmap(handle, length, access=mmap.ACCESS_READ, offset=start)
        return np.frombuffer(mapped, np.uint8, count=nbytes, offset=offset - start)
    except OSError as error:
        raise FormatError(f"cannot read {path}: {describe_error(error)}") from error
    finally:
        os.close(handle)


def _frozen(array: Bytes) -> Bytes:
    array.flags.writeable = False
    return array


def write_all(handle: int, data: bytes | bytearray | memoryview | Bytes, offset: int) -> None:
    """Write all bytes at `offset`; the kernel may split a large write."""
    remaining = memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B")
    while remaining:
        written = os.pwrite(handle, remaining, offset)
        remaining = remaining[written:]
        offset += written


def start_writing_back(handle: int, offset: int, nbytes: int) -> None:
    """Ask the kernel to start writing these bytes to the disk, without waiting for it.

    Otherwise it may start only when the file is synced at its end, while the recorder waits. On
    systems without this call nothing happens here.
    """
    call = _sync_file_range()
    if call is not None:
        call(handle, offset, nbytes, _SYNC_FILE_RANGE_WRITE)


_SYNC_FILE_RANGE_WRITE = 2


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    sync_file_range: Callable[[int, int, int, int], int] = call
    return sync_file_range
