"""Read the values of tensors from shard files (mapped, verified when first read), from an
unfinished run, or from memory; paths of shards.

A run knows its tensors; a store reads their bytes. Dump formats have stores of their own with the
same two methods. A store with checksums verifies every tensor when it is first read.
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
    """Reads the values of tensors; raises FormatError if they cannot be read."""

    def read(self, tensor: Tensor) -> Array:
        """All elements in the tensor's shape, read-only; their memory is freed with the array."""

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Elements `start` to `stop` of the row-major order, one-dimensional, read-only."""


@runtime_checkable
class Verifies(Protocol):
    """A store that checks tensors against their checksums before it returns their values."""

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether there is a checksum that covers the tensor's bytes."""

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the whole tensor if it has a checksum; raise DamagedError if it does not match.
        `content` may be the tensor's dense bytes, so that they are not read again."""


class FileStore:
    """Dense little-endian bytes at `tensor.offset` of the file `tensor.shard` in one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths: dict[str, Path] = {}
        self._ledger = ChecksumLedger()

    def checksum(self, tensor: Tensor) -> Checksum | None:
        """The recorded checksum that covers the tensor's bytes; None if there is none."""
        if tensor.digest and is_computable(tensor.digest_kind):
            return Checksum(tensor.digest_kind, tensor.digest, tensor.offset, tensor.nbytes)
        return None

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether there is a checksum that covers the tensor's bytes."""
        return self.checksum(tensor) is not None

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the whole tensor against its checksum; raise DamagedError if it does not match."""
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
        """`nbytes` bytes of the tensor, starting at its byte `first`."""
        if nbytes == 0:
            return np.empty(0, np.uint8)
        content = map_bytes(self.path(tensor), tensor.offset + first, nbytes)
        # A large mapping is not read here: all of its pages would count as memory of the process.
        can_reuse = nbytes == tensor.nbytes and nbytes <= WINDOW_BYTES
        FileStore.verify(self, tensor, content if can_reuse else None)
        return content

    def dense_file(self, tensor: Tensor) -> Path | None:
        """The file that holds the tensor's elements as dense bytes; None in stores that must check
        or convert the bytes before they are used."""
        return self.path(tensor)

    def path(self, tensor: Tensor) -> Path:
        """The file that holds the bytes of a tensor."""
        path = self._paths.get(tensor.shard)
        if path is None:
            path = self._paths[tensor.shard] = path_inside(self._root, tensor.shard)
        return path


class JournalStore(FileStore):
    """Shards of a run whose writer did not finish: the last one may still be `.partial`.

    The journal is written after the bytes, but after a power failure the disk may hold the journal
    without the bytes: the digest then detects this.
    """

    def dense_file(self, tensor: Tensor) -> Path | None:
        """None, since a running writer may rename the file."""
        return None

    def path(self, tensor: Tensor) -> Path:
        """The shard or its partial file; looked up each time, since a running writer may rename
        it."""
        final = path_inside(self._root, tensor.shard)
        partial = path_inside(self._root, partial_name(tensor.shard))
        return partial if partial.exists() and not final.exists() else final


class MemoryStore:
    """Arrays by key, for runs that are only in memory."""

    def __init__(self, arrays: Mapping[TensorKey, Array]) -> None:
        self._arrays = arrays
        self._verified: set[tuple[TensorKey, str]] = set()

    def has_checksum(self, tensor: Tensor) -> bool:
        """Whether the tensor has a digest of a supported kind."""
        return bool(tensor.digest) and is_computable(tensor.digest_kind)

    def verify(self, tensor: Tensor, content: Bytes | None = None) -> None:
        """Check the array against the tensor's digest; raise DamagedError if it does not match."""
        self.read(tensor)

    def read(self, tensor: Tensor) -> Array:
        """A read-only view."""
        array = self._arrays.get(tensor.key)
        if array is None:
            raise FormatError(f"the run in memory has no values of {tensor.key}")
        key = (tensor.key, tensor.digest)
        if self.has_checksum(tensor) and key not in self._verified:
            content = to_bytes(array, DTYPES[tensor.dtype])
            if hash_bytes(tensor.digest_kind, content) != tensor.digest.lower():
                raise tensor_damage_error(tensor, "memory")
            self._verified.add(key)
        view = array.reshape(tensor.shape)
        view.flags.writeable = False
        return view

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """A read-only view, or a copy if the array is not row-major."""
        window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window
