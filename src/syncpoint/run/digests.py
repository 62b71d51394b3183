"""Compute digests of tensor bytes: xxh3-128, CRC32, MD5 and the other kinds that tools record.

This package records xxh3-128. Other tools record other kinds; if one side of a comparison has
values, its digest is computed in the kind of the other side.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from syncpoint.run.array_bytes import Bytes, to_bytes
from syncpoint.run.dtypes import DTYPES

XXH3_128 = "xxh3-128"
CRC32 = "crc32"

Windows = Callable[[], Iterable[NDArray[Any]]]
"""Returns the values of a tensor window by window, from the beginning at each call."""


class Hasher(Protocol):
    """The state of a digest that is updated part by part."""

    def update(self, data: Any, /) -> object:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The digest so far, in lower-case hexadecimal digits."""


class _ZlibHasher:
    """The checksums of zlib with the interface of hashlib."""

    def __init__(self, function: Callable[[Any, int], int], start: int) -> None:
        self._function = function
        self._value = start

    def update(self, data: Any, /) -> None:
        self._value = self._function(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _hashlib_factory(name: str) -> Callable[[], Hasher]:
    # usedforsecurity=False: machines that forbid md5 and sha1 for security still compute them.
    return lambda: hashlib.new(name, usedforsecurity=False)


_KINDS: dict[str, Callable[[], Hasher]] = {
    XXH3_128: xxhash.xxh3_128,
    "xxh3-64": xxhash.xxh3_64,
    "xxh64": xxhash.xxh64,
    "xxh32": xxhash.xxh32,
    CRC32: lambda: _ZlibHasher(zlib.crc32, 0),
    "adler32": lambda: _ZlibHasher(zlib.adler32, 1),
    **{name: _hashlib_factory(name) for name in ("md5", "sha1", "sha256", "sha512")},
    "blake2b": _hashlib_factory("blake2b"),
}


def is_computable(kind: str) -> bool:
    """Whether a digest of this kind can be computed from values."""
    return kind in _KINDS


def new_hasher(kind: str) -> Hasher:
    """Create the state of a digest of this kind."""
    return _KINDS[kind]()


def compute_digest(kind: str, windows: Iterable[NDArray[Any]], dtype: str) -> str:
    """Compute the digest of a tensor from its windows in row-major order."""
    state = new_hasher(kind)
    for values in windows:
        state.update(to_bytes(values, DTYPES[dtype]).data)
    return state.hexdigest()


def compute_digests(kind: str, dtype: str, windows: Windows) -> frozenset[str]:
    """Compute the digests that a tool may have recorded: one, or two for bf16 with CRC32, since
    some tools convert bf16 to float32 first."""
    digests = {compute_digest(kind, windows(), dtype)}
    if kind == CRC32 and dtype == "bf16":
        digests.add(compute_digest(kind, (np.asarray(v, np.float32) for v in windows()), "f32"))
    return frozenset(digests)


def hash_bytes(kind: str, content: Bytes) -> str:
    """Compute the digest of bytes in memory."""
    if kind == XXH3_128:  # one call is faster, and most tensors are small
        return xxhash.xxh3_128_hexdigest(content.data)
    state = new_hasher(kind)
    state.update(content.data)
    return state.hexdigest()
