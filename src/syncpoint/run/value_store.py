"""Where the values of a run come from: files mapped window by window, or memory.

A run knows its tensors; a store knows how to get at their bytes. Dumps bring stores of their
own behind the same two verbs. Stores that know checksums check every tensor when it is first read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError
from syncpoint.files.byte_ranges import map_bytes
from syncpoint.files.untrusted_files import path_inside
from syncpoint.run.array_bytes import Bytes, byte_range, from_bytes, to_bytes
from syncpoint.run.digests import hash_bytes, is_computable
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.storage.shards import partial_name
from syncpoint.run.storage.tensor_checksums import (
    DEFERRED,
    WINDOW_BYTES,
    Checksum,
    ChecksumLedger,
    tensor_damage_error,
)

Array = NDArray[Any]


class Store(Protocol):
    """Gives the values of tensors; what cannot be read is a FormatError."""

    def read(self, tensor: Tensor) -> Array:
        """All elements in the tensor's shape, read-only, freed with the array."""

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Elements `start` to `stop` of the row-major order, one-dimensional, read-only."""


@runtime_checkable
class Verifies(Protocol):
    """A store that checks tensors against their checksums before it gives their values."""

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether there is a checksum that covers the tensor's bytes."""

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the whole tensor, if there is something to check it against; damage is a
        DamagedError. `content` may be the tensor's dense bytes, so that they are not read again."""


class FileStore:
    """Dense little-endian bytes at `tensor.offset` of the file `tensor.shard` in one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: dict[str, Path] = {}
        self._ledger = ChecksumLedger()

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """The recorded checksum that covers the tensor's bytes, if there is one."""
        if tensor.digest and is_computable(tensor.digest_kind):
            return Checksum(tensor.digest_kind, tensor.digest, tensor.offset, tensor.nbytes)
        return None

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether there is a checksum that covers the tensor's bytes."""
        return self.checksum(tensor) is not None

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the whole tensor against its checksum; damage is a DamagedError."""
        checksum = self.checksum(tensor) if tensor.digest_kind != DEFERRED else None
        if checksum is not None:
            self._ledger.check(tensor, checksum, lambda: self.path(tensor), content)

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
        content = map_bytes(self.path(tensor), tensor.offset + first, nbytes)
        # A large mapping is not touched here: all of its pages would count as our memory.
        whole = nbytes == tensor.nbytes and nbytes <= WINDOW_BYTES
        FileStore.verify(self, tensor, content if whole else None)
        return content

    def dense_file(self, tensor: Tensor) -> Path | None:
        """The file in which the tensor's elements lie as they are; None in stores that must look
        at the bytes, or turn them into something else, before they are used."""
        return self.path(tensor)

    def path(self, tensor: Tensor) -> Path:
        """The file that has the bytes of a tensor."""
        path = self._paths.get(tensor.shard)
        if path is None:
            path = self._paths[tensor.shard] = path_inside(self._root, tensor.shard)
        return path


class JournalStore(FileStore):
    """Shards of a run whose writer did not finish: the last may still be `.partial`.

    The journal is written after the bytes, but after a loss of power the disk may have kept the
    one without the other: then the digest tells.
    """

    def dense_file(self, tensor: Tensor) -> Path | None:
        """None, as a live writer may rename the file."""
        return None

    def path(self, tensor: Tensor) -> Path:
        """The shard, or what there is of it; looked up anew as a live writer may rename it."""
        final = path_inside(self._root, tensor.shard)
        partial = path_inside(self._root, partial_name(tensor.shard))
        return partial if partial.exists() and not final.exists() else final


class MemoryStore:
    """Arrays by key; for tests and for runs that never touch the disk."""

    def __init__(self, arrays: Mapping[TensorKey, Array]) -> None:
        self._arrays = arrays
        self._sound: set[tuple[TensorKey, str]] = set()

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the tensor carries a digest that can be computed."""
        return bool(tensor.digest) and is_computable(tensor.digest_kind)

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the array against the tensor's digest; other bytes are a DamagedError."""
        self.read(tensor)

    def read(self, tensor: Tensor) -> Array:
        """A read-only view."""
        array = self._arrays.get(tensor.key)
        if array is None:
            raise FormatError(f"values of {tensor.key}", "none in memory")
        key = (tensor.key, tensor.digest)
        if self.has_checksum(tensor) and key not in self._sound:
            content = to_bytes(array, DTYPES[tensor.dtype])
            if hash_bytes(tensor.digest_kind, content) != tensor.digest.lower():
                raise tensor_damage_error(tensor, "memory")
            self._sound.add(key)
        view = array.reshape(tensor.shape)
        view.flags.writeable = False
        return view

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """A read-only view, or a copy where the array is not row-major."""
        window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window
