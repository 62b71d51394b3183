"""Write tensor bytes into shards: safetensors files of about 256 MB, in large writes; close them,
or keep the complete tensors after a failed write.

A shard is `tensors-NNNNN.partial` until its header is written and its bytes are on the disk. The
header goes into space reserved at the start, since its length is known only after the last tensor.
safetensors allows no holes, so the padding that aligns a tensor is an entry itself, named `~pad.N`.
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
"""Block that the page cache keeps in one piece if it is first written in one piece; mapped reads of
4 KiB pieces cost almost twice as much."""
FIRST_RESERVE = 64 << 10
MAX_RESERVE = 4 << 20
_LENGTH = struct.Struct("<Q")
_MAX_NAME_CHARS = 512
"""Maximum length of a tensor's name in the header; only other tools read it."""


def partial_name(shard: str) -> str:
    """The name of the shard while it is being written."""
    return shard.removesuffix(".safetensors") + ".partial"


class ShardWriter:
    """Writes the bytes of tensors, one after another, into shards."""

    def __init__(self, folder: Path, *, shard_bytes: int = SHARD_BYTES) -> None:
        self._folder = folder
        self._shard_bytes = shard_bytes
        self._reserve = FIRST_RESERVE
        self._shard: _Shard | None = None
        self.count = 0
        """Number of shards so far."""
        self.closed: list[str] = []
        """Shards that are complete under their final name."""

    def add(self, name: str, dtype: DType, shape: tuple[int, ...], data: Bytes) -> tuple[str, int]:
        """Add a tensor; returns its shard and the offset of its first byte there.

        The bytes are in the file only after `flush`.
        """
        shard = self._shard
        if shard is not None:
            is_full = shard.end + data.size > self._shard_bytes
            is_header_full = not shard.has_header_space(name, shape)
            if is_header_full and not is_full:
                self._reserve = min(self._reserve * 4, MAX_RESERVE)
            if is_full or is_header_full:
                self.close()
                shard = None
        if shard is None:
            file = f"tensors-{self.count:05}.safetensors"
            shard = self._shard = _Shard(self._folder, file, self._reserve)
            self.count += 1
        return shard.file, shard.add(name, dtype, shape, data)

    def flush(self) -> None:
        """Write all added bytes to their file."""
        if self._shard is not None:
            self._shard.flush()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that are not in their file yet."""
        return self._shard.buffered_bytes if self._shard is not None else 0

    def has(self, file: str, end: int) -> bool:
        """Whether the bytes before `end` of a shard are in its file."""
        shard = self._shard
        return file in self.closed or (
            shard is not None and shard.file == file and end <= shard.written
        )

    def close(self) -> None:
        """Finish the open shard, if any; later tensors go into a new one."""
        if self._shard is not None:
            self._shard.close()
            self.closed.append(self._shard.file)
            self._shard = None

    def abandon(self) -> None:
        """After a failed write: finish the open shard with its complete tensors.

        Entries whose bytes are not in the file are left out.
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
        self._allocated_end = 0
        """End of the written part of the file, including zeros that fill a block."""
        self._writeback_end = 0
        """End of the part that is being written to the disk."""
        self._entries: list[tuple[str, int]] = []
        """JSON of each entry and its end in the file."""
        self._header = len('{"__metadata__":{"format":"np"}}')
        self._names = {"__metadata__": 1}
        self._pads = 0

    @property
    def end(self) -> int:
        """Size of the file when everything added is written."""
        return self.written + len(self._buffer)

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def has_header_space(self, name: str, shape: tuple[int, ...]) -> bool:
        """Whether the header has space for this tensor and the padding before it."""
        # JSON escapes take at most twelve bytes per character.
        entry = 12 * min(len(name), _MAX_NAME_CHARS) + 20 * len(shape) + 128
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
            self._make_unique(name),
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
        """Write everything added to the file; a small write fills its block with zeros, which later
        tensors overwrite."""
        end = self.end
        if self._buffer and end > self._allocated_end and len(self._buffer) < WRITE_BYTES:
            zeros = -end % BLOCK
            try:
                write_all(self._handle, self._buffer + bytes(zeros), self.written)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                # Without the zeros there may be enough space for the tensors.
                os.ftruncate(self._handle, self.written)
                self._allocated_end = self.written
            else:
                self._allocated_end = end + zeros
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
        self._allocated_end = max(self._allocated_end, self.written)
        # Only full blocks: the next write must not wait for a page that is being written back.
        full_end = self.written - self.written % BLOCK
        if full_end - self._writeback_end >= WRITE_BYTES:
            start_writing_back(self._handle, self._writeback_end, full_end - self._writeback_end)
            self._writeback_end = full_end

    def close(self) -> None:
        self.flush()
        self._finish(self.written)

    def abandon(self) -> None:
        self._buffer = bytearray()
        complete_ends = [end for _, end in self._entries if end <= self.written]
        self._finish(max(complete_ends, default=self._reserve))

    def _finish(self, end: int) -> None:
        try:
            os.ftruncate(self._handle, end)
            entries = [text for text, stop in self._entries if stop <= end]
            header = '{"__metadata__":{"format":"np"}' + "".join("," + e for e in entries) + "}"
            padded = header.encode("ascii").ljust(self._reserve - _LENGTH.size)
            write_all(self._handle, _LENGTH.pack(len(padded)) + padded, 0)
            os.fsync(self._handle)
        finally:
            # Reset before closing: the system may reuse the number for another file.
            handle, self._handle = self._handle, -1
            os.close(handle)
        self._partial.rename(self._final)
        sync(self._final.parent)

    def _append(self, name: str, kind: str, shape: tuple[int, ...], nbytes: int) -> None:
        start = self.end - self._reserve
        text = _encode_entry(name, kind, shape, start, nbytes)
        self._entries.append((text, self.end + nbytes))
        self._header += len(text) + 1

    def _make_unique(self, name: str) -> str:
        """Make a name unique in this shard; keys are unique, their text need not be."""
        name = name[:_MAX_NAME_CHARS]
        if name.startswith(PAD):
            name = "~" + name
        unique = name
        while unique in self._names:
            self._names[name] += 1
            unique = f"{name}~{self._names[name]}"
        self._names[unique] = 1
        return unique


def _encode_entry(name: str, kind: str, shape: tuple[int, ...], start: int, nbytes: int) -> str:
    axes = ",".join(map(str, shape))
    offsets = f"{start},{start + nbytes}"
    return f'{json.dumps(name)}:{{"dtype":"{kind}","shape":[{axes}],"data_offsets":[{offsets}]}}'
