"""Where the values of a run come from: files mapped window by window, or memory.

A run knows its tensors; a store knows how to get at their bytes. Dumps bring stores of their
own behind the same two verbs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DTYPES, DType
from syncpoint.run.elements import Bytes, from_bytes
from syncpoint.run.files import inside, map_bytes
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.shards import partial_name

Array = NDArray[Any]


class Store(Protocol):
    """Gives the values of tensors; what cannot be read is a FormatError."""

    def read(self, tensor: Tensor) -> Array:
        """All elements in the tensor's shape, read-only, freed with the array."""

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Elements `start` to `stop` of the row-major order, one-dimensional, read-only."""


class FileStore:
    """Dense little-endian bytes at `tensor.offset` of the file `tensor.shard` in one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: dict[str, Path] = {}

    def read(self, tensor: Tensor) -> Array:
        """All elements, mapped."""
        dtype = DTYPES[tensor.dtype]
        return from_bytes(self.raw(tensor, 0, tensor.nbytes), dtype, tensor.shape)

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements, mapped on their own."""
        dtype = DTYPES[tensor.dtype]
        first, last, skip = byte_range(dtype, start, stop)
        last = min(last, tensor.nbytes)
        raw = self.raw(tensor, first, last - first)
        return from_bytes(raw, dtype, (skip + stop - start,))[skip:]

    def raw(self, tensor: Tensor, first: int, nbytes: int) -> Bytes:
        """`nbytes` bytes of the tensor from its byte `first` on."""
        if nbytes == 0:
            return np.empty(0, np.uint8)
        return map_bytes(self.path(tensor), tensor.offset + first, nbytes)

    def place(self, tensor: Tensor) -> Path | None:
        """The file in which the tensor's elements lie as they are; None in stores that must look
        at the bytes, or turn them into something else, before they are used."""
        return self.path(tensor)

    def path(self, tensor: Tensor) -> Path:
        """The file that has the bytes of a tensor."""
        path = self._paths.get(tensor.shard)
        if path is None:
            path = self._paths[tensor.shard] = inside(self._root, tensor.shard)
        return path


class JournalStore(FileStore):
    """Shards of a run whose writer did not finish: the last may still be `.partial`.

    The journal is written after the bytes, but after a loss of power the disk may have kept the
    one without the other. So the digest of a tensor is checked before its first use.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._sound: set[tuple[str, int, int]] = set()
        self._lock = threading.Lock()

    def raw(self, tensor: Tensor, first: int, nbytes: int) -> Bytes:
        """Bytes of a tensor that has been found whole."""
        place = (tensor.shard, tensor.offset, tensor.nbytes)
        if place not in self._sound:
            whole = super().raw(tensor, 0, tensor.nbytes)
            if xxhash.xxh3_128_hexdigest(whole.data) != tensor.digest:
                raise FormatError(
                    f"the recorded bytes of {tensor.key} in {tensor.shard}",
                    "others",
                    "its writer died before they reached the disk; record the run again",
                )
            with self._lock:
                self._sound.add(place)
        return super().raw(tensor, first, nbytes)

    def place(self, tensor: Tensor) -> Path | None:
        """None, as the digest is checked first."""
        return None

    def path(self, tensor: Tensor) -> Path:
        """The shard, or what there is of it; looked up anew as a live writer may rename it."""
        final = inside(self._root, tensor.shard)
        partial = inside(self._root, partial_name(tensor.shard))
        return partial if partial.exists() and not final.exists() else final


class MemoryStore:
    """Arrays by key; for tests and for runs that never touch the disk."""

    def __init__(self, arrays: Mapping[TensorKey, Array]) -> None:
        self._arrays = arrays

    def read(self, tensor: Tensor) -> Array:
        """A read-only view."""
        array = self._arrays.get(tensor.key)
        if array is None:
            raise FormatError(f"values of {tensor.key}", "none in memory")
        view = array.reshape(tensor.shape)
        view.flags.writeable = False
        return view

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """A read-only view, or a copy where the array is not row-major."""
        window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window


def byte_range(dtype: DType, start: int, stop: int) -> tuple[int, int, int]:
    """First byte, end byte, and elements to skip in the first byte, of an element window."""
    first = start * dtype.bits // 8
    skip = start - first * 8 // dtype.bits
    return first, dtype.nbytes(stop), skip
