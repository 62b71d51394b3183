"""Digests of the dense bytes of a tensor, of every kind that can be computed here.

Ours is xxh3-128. Other tools keep others; where one side of a comparison has values, its digest is
computed in the kind of the other side.
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
"""Gives the values of a tensor piece by piece, from the beginning each time."""


class Hasher(Protocol):
    """The state of a digest, fed part by part."""

    def update(self, data: Any, /) -> object:
        """Add bytes."""

    def hexdigest(self) -> str:
        """The digest so far, in lower-case hexadecimal digits."""


class _Checksum:
    """The checksums of zlib in the manner of hashlib."""

    def __init__(self, function: Callable[[Any, int], int], start: int) -> None:
        self._function = function
        self._value = start

    def update(self, data: Any, /) -> None:
        self._value = self._function(data, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


def _named(name: str) -> Callable[[], Hasher]:
    # Not for safety, so that machines which forbid old kinds for that still compute them.
    return lambda: hashlib.new(name, usedforsecurity=False)


_KINDS: dict[str, Callable[[], Hasher]] = {
    XXH3_128: xxhash.xxh3_128,
    "xxh3-64": xxhash.xxh3_64,
    "xxh64": xxhash.xxh64,
    "xxh32": xxhash.xxh32,
    CRC32: lambda: _Checksum(zlib.crc32, 0),
    "adler32": lambda: _Checksum(zlib.adler32, 1),
    **{name: _named(name) for name in ("md5", "sha1", "sha256", "sha512")},
    "blake2b": _named("blake2b"),
}


def is_computable(kind: str) -> bool:
    """Whether a digest of this kind can be computed from values."""
    return kind in _KINDS


def new_hasher(kind: str) -> Hasher:
    """A new state of this kind."""
    return _KINDS[kind]()


def compute_digest(kind: str, windows: Iterable[NDArray[Any]], dtype: str) -> str:
    """The digest of a tensor that comes window by window, in row-major order."""
    state = new_hasher(kind)
    for values in windows:
        state.update(to_bytes(values, DTYPES[dtype]).data)
    return state.hexdigest()


def compute_digests(kind: str, dtype: str, windows: Windows) -> frozenset[str]:
    """The digest that a tool may have taken; of bf16 there are two, since some tools take that of
    the numbers as float32."""
    found = {compute_digest(kind, windows(), dtype)}
    if kind == CRC32 and dtype == "bf16":
        found.add(compute_digest(kind, (np.asarray(v, np.float32) for v in windows()), "f32"))
    return frozenset(found)


def hash_bytes(kind: str, content: Bytes) -> str:
    """The checksum of bytes in memory."""
    if kind == XXH3_128:  # in one call: most tensors are small
        return xxhash.xxh3_128_hexdigest(content.data)
    state = new_hasher(kind)
    state.update(content.data)
    return state.hexdigest()
