"""The checksum of each tensor's byte range in a file: check it once when first read, remember the
result, build the error.

A checksum covers a range of one file: the dense bytes of a tensor in a run, a whole member of an
archive in a .npz or .pt file. Each range is checked once, when its first byte is read. Checksums
detect accidents (bad disks, interrupted copies), not attacks.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from syncpoint.errors import DamagedError
from syncpoint.files.byte_ranges import Bytes, map_bytes
from syncpoint.run.digests import hash_bytes, new_hasher
from syncpoint.run.model import Tensor

DEFERRED = "deferred"
"""Replaces the kind of a tensor's digest if the caller verifies the tensor later."""
WINDOW_BYTES = 8 << 20
"""Bytes of a large tensor that are mapped at once while it is checked."""


class Checksum(NamedTuple):
    """A recorded checksum and the byte range of the file that it covers."""

    kind: str
    """A kind for which `digests.is_computable` is true."""
    value: str
    offset: int
    nbytes: int


class ChecksumLedger:
    """Which ranges were checked, and the results.

    Keys are hashes of (shard, checksum): a run may have millions of tensors, and an integer takes
    a third of the memory of the tuple. Adding to a set is atomic, so threads need no lock; at worst
    two threads check the same range.
    """

    def __init__(self) -> None:
        self._intact: set[int] = set()
        self._damaged: set[int] = set()

    def check(
        self,
        tensor: Tensor,
        checksum: Checksum,
        path: Callable[[], Path],
        content: Bytes | None = None,
    ) -> None:
        """Raise DamagedError unless the bytes match the checksum.

        `content` is the range that the checksum covers, if the caller has read it already.
        """
        key = hash((tensor.shard, checksum))
        if key in self._intact:
            return
        if key not in self._damaged:
            if content is None or content.size != checksum.nbytes:
                computed = _hash_file(path(), checksum)
            else:
                computed = hash_bytes(checksum.kind, content)
            if computed == checksum.value.lower():
                self._intact.add(key)
                return
            self._damaged.add(key)
        raise tensor_damage_error(tensor, path())


def _hash_file(path: Path, checksum: Checksum) -> str:
    """Compute the checksum of a range of a file, mapping one window at a time, so that a tensor of
    any size takes little memory."""
    state = new_hasher(checksum.kind)
    end = checksum.offset + checksum.nbytes
    for start in range(checksum.offset, end, WINDOW_BYTES):
        state.update(map_bytes(path, start, min(WINDOW_BYTES, end - start)).data)
    return state.hexdigest()


def tensor_damage_error(tensor: Tensor, where: Path | str) -> DamagedError:
    """Build the error for bytes that do not match their checksum."""
    error = DamagedError(
        f"the bytes of {tensor.key} in {where} do not match their checksum: the file is damaged",
        cure="copy it again, or record it again",
    )
    error.where = str(where)
    return error
