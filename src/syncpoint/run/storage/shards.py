"""Writing the values of a run: safetensors files of about 256 MB, in large writes.

A shard is `tensors-NNNNN.partial` until its header is in place and its bytes are on the disk.
The header goes into space reserved at the start, since only the last tensor tells how long it
is. safetensors allows no holes, so what aligns a tensor is itself an entry, named `~pad.N`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import struct
from pathlib import Path

from syncpoint.files.atomic_writes import sync
from syncpoint.files.byte_ranges import start_writing_back, write_all
from syncpoint.run.array_bytes import Bytes
from syncpoint.run.dtypes import DType

SHARD_NAME = re.compile(r"tensors-[0-9]{5,9}\.safetensors")
PARTIAL_NAME = re.compile(r"tensors-[0-9]{5,9}\.partial")
PAD = "~pad."
ALIGNMENT = 64
SHARD_BYTES = 256 << 20
WRITE_BYTES = 4 << 20
BLOCK = 2 << 20
"""What the page cache keeps in one piece if it is first written in one; in 4 KiB pieces, reading
it through a mapping costs almost twice as much."""
FIRST_RESERVE = 64 << 10
MAX_RESERVE = 4 << 20
_LENGTH = struct.Struct("<Q")
_NAME_LIMIT = 512
"""Characters of a tensor's name in the header, where it only serves other tools."""


def partial_name(shard: str) -> str:
    """What the shard is called while it is being written."""
    return shard.removesuffix(".safetensors") + ".partial"


class ShardWriter:
    """Takes the bytes of tensors one after another and spreads them over shards."""

    def __init__(self, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._reserve = FIRST_RESERVE
        self._shard: _Shard | None = None
        self.count = 0
        """Shards begun so far."""
        self.closed: list[str] = []
        """Shards that are whole under their final name."""

    def add(self, name: str, dtype: DType, shape: tuple[int, ...], data: Bytes) -> tuple[str, int]:
        """Take one tensor; gives its shard and the offset of its first byte there.

        The bytes are in the file only after `flush`.
        """
        shard = self._shard
        if shard is not None:
            full = shard.end + data.size > self._shard_bytes
            crowded = not shard.fits(name, shape)
            if crowded and not full:
                self._reserve = min(self._reserve * 4, MAX_RESERVE)
            if full or crowded:
                self.close()
                shard = None
        if shard is None:
            file = f"tensors-{self.count:05}.safetensors"
            shard = self._shard = _Shard(self._folder, file, self._reserve)
            self.count += 1
        return shard.file, shard.add(name, dtype, shape, data)

    def flush(self) -> None:
        """Every byte taken so far is in its file when this returns."""
        if self._shard is not None:
            self._shard.flush()

    @property
    def waiting(self) -> int:
        """Bytes taken that are not in their file yet."""
        return self._shard.waiting if self._shard is not None else 0

    def has(self, file: str, end: int) -> bool:
        """Whether the bytes before `end` of a shard are in its file."""
        shard = self._shard
        return file in self.closed or (
            shard is not None and shard.file == file and end <= shard.written
        )

    def close(self) -> None:
        """Finish the open shard, if any; later tensors begin another."""
        if self._shard is not None:
            self._shard.close()
            self.closed.append(self._shard.file)
            self._shard = None

    def abandon(self) -> None:
        """After a failed write: finish the open shard with what is whole in it.

        Entries whose bytes did not reach the file are left out.
        """
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.abandon()


class _Shard:
    """One file of tensors."""

    def __init__(self, folder: Path, file: str, reserve: int) -> None:
        self.file = file
        self._final = folder / file
        self._partial = folder / partial_name(file)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._handle = os.open(self._partial, flags, 0o666)
        self._reserve = reserve
        self._buffer = bytearray(b" " * reserve)
        self.written = 0
        """Bytes of tensors and header in the file."""
        self._blocks = 0
        """Up to here the file has been written to, if only with zeros."""
        self._under_way = 0
        """Up to here it is on its way to the disk."""
        self._entries: list[tuple[str, int]] = []
        """JSON of each entry and where it ends in the file."""
        self._header = len('{"__metadata__":{"format":"np"}}')
        self._names = {"__metadata__": 1}
        self._pads = 0

    @property
    def end(self) -> int:
        """Size of the file once everything taken is written."""
        return self.written + len(self._buffer)

    @property
    def waiting(self) -> int:
        return len(self._buffer)

    def fits(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether the header has room for this tensor and the padding before it."""
        # Twelve bytes a character is the most that JSON escapes take.
        entry = 12 * min(len(name), _NAME_LIMIT) + 20 * len(shape) + 128
        pad = 128
        return self._header + entry + pad <= self._reserve - _LENGTH.size

    def add(self, name: str, dtype: DType, shape: tuple[int, ...], data: Bytes) -> int:
        gap = -self.end % ALIGNMENT
        if gap:
            self._append(f"{PAD}{self._pads}", "U8", (gap,), gap)
            self._pads += 1
            self._buffer += bytes(gap)
        offset = self.end
        as_bytes = dtype.safetensors == "U8"
        self._append(
            self._unique(name),
            dtype.safetensors,
            (data.size,) if as_bytes and dtype.name != "u8" else shape,
            data.size,
        )
        if data.size < WRITE_BYTES:
            self._buffer += data.data
            if len(self._buffer) >= WRITE_BYTES:
                self._write_buffer()
        else:
            self._write_buffer()
            self._write(data)
        return offset

    def flush(self) -> None:
        """Everything taken is in the file; where that is little, its block is filled with zeros
        that later tensors will overwrite."""
        end = self.end
        if self._buffer and end > self._blocks and len(self._buffer) < WRITE_BYTES:
            zeros = -end % BLOCK
            try:
                write_all(self._handle, self._buffer + bytes(zeros), self.written)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                # Perhaps there is room for the bytes that matter, once the zeros are gone.
                os.ftruncate(self._handle, self.written)
                self._blocks = self.written
            else:
                self._blocks = end + zeros
                self.written = end
                self._buffer = bytearray()
        self._write_buffer()

    def _write_buffer(self) -> None:
        if self._buffer:
            buffer, self._buffer = self._buffer, bytearray()
            try:
                self._write(buffer)
            except OSError:
                self._buffer = buffer
                raise

    def _write(self, data: bytearray | Bytes) -> None:
        write_all(self._handle, data, self.written)
        self.written += len(data)
        self._blocks = max(self._blocks, self.written)
        # Whole blocks only: the next write must not wait for a page that is under way.
        whole = self.written - self.written % BLOCK
        if whole - self._under_way >= WRITE_BYTES:
            start_writing_back(self._handle, self._under_way, whole - self._under_way)
            self._under_way = whole

    def close(self) -> None:
        self.flush()
        self._finish(self.written)

    def abandon(self) -> None:
        self._buffer = bytearray()
        whole = [end for _, end in self._entries if end <= self.written]
        self._finish(max(whole, default=self._reserve))

    def _finish(self, end: int) -> None:
        try:
            os.ftruncate(self._handle, end)
            entries = [text for text, stop in self._entries if stop <= end]
            header = '{"__metadata__":{"format":"np"}' + "".join("," + e for e in entries) + "}"
            padded = header.encode("ascii").ljust(self._reserve - _LENGTH.size)
            write_all(self._handle, _LENGTH.pack(len(padded)) + padded, 0)
            os.fsync(self._handle)
        finally:
            # Forgotten at once: the number may soon be another file's.
            handle, self._handle = self._handle, -1
            os.close(handle)
        self._partial.rename(self._final)
        sync(self._final.parent)

    def _append(self, name: str, kind: str, shape: tuple[int, ...], nbytes: int) -> None:
        start = self.end - self._reserve
        text = _entry(name, kind, shape, start, nbytes)
        self._entries.append((text, self.end + nbytes))
        self._header += len(text) + 1

    def _unique(self, name: str) -> str:
        """A name no other entry of this shard has; keys are unique, their text need not be."""
        name = name[:_NAME_LIMIT]
        if name.startswith(PAD):
            name = "~" + name
        unique = name
        while unique in self._names:
            self._names[name] += 1
            unique = f"{name}~{self._names[name]}"
        self._names[unique] = 1
        return unique


def _entry(name: str, kind: str, shape: tuple[int, ...], start: int, nbytes: int) -> str:
    axes = ",".join(map(str, shape))
    place = f"{start},{start + nbytes}"
    return f'{json.dumps(name)}:{{"dtype":"{kind}","shape":[{axes}],"data_offsets":[{place}]}}'
