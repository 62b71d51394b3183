"""Recorded checksums of tensor bytes, and the ledger of what was checked against them.

A checksum covers a range of one file: the dense bytes of a tensor in our own runs, a whole member
of an archive in a .npz or .pt. Each range is checked once, when its first byte is asked for.
Checksums detect accidents (bad disks, interrupted copies), not attackers.
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
"""In place of the kind of a tensor's digest: whoever reads it verifies it afterwards."""
WINDOW_BYTES = 8 << 20
"""Bytes of a large tensor that are mapped at once while it is checked."""


class Checksum(NamedTuple):
    """A recorded checksum and the bytes of the file that it covers."""

    kind: str
    """A kind that `digests.is_computable` knows."""
    value: str
    offset: int
    nbytes: int


class ChecksumLedger:
    """Which ranges were checked, and with what result.

    Keys are hashes of (shard, checksum): a run may have millions of tensors, and an integer takes
    a third of the memory of the tuple. Adding to a set is atomic, so threads need no lock; two
    that meet check the same range twice.
    """

    def __init__(self) -> None:
        self._sound: set[int] = set()
        self._damaged: set[int] = set()

    def check(
        self,
        tensor: Tensor,
        checksum: Checksum,
        path: Callable[[], Path],
        content: Bytes | None = None,
    ) -> None:
        """Raise DamagedError unless the bytes are those that were recorded.

        `content` is what the checksum covers where the caller has read it already.
        """
        key = hash((tensor.shard, checksum))
        if key in self._sound:
            return
        if key not in self._damaged:
            if content is None or content.size != checksum.nbytes:
                computed = _hash_file(path(), checksum)
            else:
                computed = hash_bytes(checksum.kind, content)
            if computed == checksum.value.lower():
                self._sound.add(key)
                return
            self._damaged.add(key)
        raise tensor_damage_error(tensor, path())


def _hash_file(path: Path, checksum: Checksum) -> str:
    """The checksum of a range of a file, mapped window by window and let go, so that a tensor of
    any size takes little memory."""
    state = new_hasher(checksum.kind)
    end = checksum.offset + checksum.nbytes
    for start in range(checksum.offset, end, WINDOW_BYTES):
        state.update(map_bytes(path, start, min(WINDOW_BYTES, end - start)).data)
    return state.hexdigest()


def tensor_damage_error(tensor: Tensor, where: Path | str) -> DamagedError:
    """The error for bytes that are not those that were recorded."""
    error = DamagedError(
        f"the recorded bytes of {tensor.key} in {where}",
        "other bytes: the file is damaged",
        "copy it again, or record it again",
    )
    error.where = str(where)
    return error
