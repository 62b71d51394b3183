"""Append-only frames with checksums, in which an unfinished run is kept: write, read all or the
first, tell damage from a cut end by a later intact frame.

It replaces the tables until they exist. After the writer died, the frames up to the first damaged
one are read; a complete frame is reliable, because the writer appends it only after the bytes that
it refers to are in their file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import xxhash

from syncpoint.errors import FormatError
from syncpoint.files.byte_ranges import map_bytes, write_all
from syncpoint.files.untrusted_files import open_regular, starts_with
from syncpoint.files.untrusted_json import parse_json
from syncpoint.run.storage.record_json import to_json_text

JOURNAL = "journal.log"
MAGIC = b"syncpoint journal 1\n"
_FRAME = struct.Struct("<IQ")
"""Length and xxh3-64 of the payload."""
_MAX_FRAME_BYTES = (1 << 32) - 1


def encode_frame(kind: str, body: object) -> bytes:
    """Encode a frame: length and checksum, then `{kind: body}` as JSON."""
    payload = to_json_text({kind: body}).encode()
    if len(payload) > _MAX_FRAME_BYTES:
        raise FormatError(
            f"a journal frame of {len(payload):,} bytes is too large; the limit is 4 GiB"
        )
    return _FRAME.pack(len(payload), xxhash.xxh3_64_intdigest(payload)) + payload


class JournalWriter:
    """Appends frames to a new journal."""

    def __init__(self, path: Path, first: bytes) -> None:
        """Start the journal at `path` with the frame `first`; an older one is replaced."""
        temporary = path.with_name(path.name + ".tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._handle = os.open(temporary, flags, 0o666)
        self._size = 0
        self.append(MAGIC + first)
        os.fsync(self._handle)
        temporary.replace(path)

    @classmethod
    def reopened(cls, path: Path, end: int) -> JournalWriter:
        """Open an existing journal to append after its byte `end`; the rest is cut off."""
        writer = object.__new__(cls)
        writer._handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        writer._size = end
        os.ftruncate(writer._handle, end)
        return writer

    def append(self, frames: bytes | bytearray) -> None:
        """Write frames at the end; after an error the end is unchanged."""
        write_all(self._handle, frames, self._size)
        self._size += len(frames)

    def close(self) -> None:
        """Cut off what a failed append may have written after the last complete frame; close."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            try:
                os.ftruncate(handle, self._size)
            finally:
                os.close(handle)


@dataclass
class Journal:
    """The readable frames of a journal."""

    frames: list[tuple[str, Any]]
    damage: str
    """Where and how reading stopped; "" at a clean end."""
    end: int
    """The byte at which the last complete frame ends."""
    is_damaged: bool = False
    """Whether bytes are wrong; if the writer died, bytes are only missing."""
    is_damaged_inside: bool = False
    """Whether complete frames follow the damage: a writer that died cannot have caused that."""


def is_journal(path: Path) -> bool:
    """Whether the file at `path` is a journal."""
    return starts_with(path, MAGIC)


def read_journal(path: Path, start: int = len(MAGIC)) -> Journal:
    """Read all complete frames in order, or those from the byte `start` on, where one begins."""
    size = path.stat().st_size
    data = map_bytes(path, 0, size)
    if size < len(MAGIC) or data[: len(MAGIC)].tobytes() != MAGIC:
        raise _not_a_journal(path)
    journal = Journal([], "", start)
    for payload, damage, end in _payloads(data.data, start):
        if damage is not None:
            journal.is_damaged_inside = _has_frame_after(data.data, end)
            journal.is_damaged = damage is _Damage.CHECKSUM or journal.is_damaged_inside
            inside = f"its journal is damaged at byte {end}, and complete frames follow"
            journal.damage = inside if journal.is_damaged_inside else damage.describe(end)
            break
        body = parse_json(payload, str(path))
        if not isinstance(body, dict) or len(body) != 1:
            raise FormatError(
                f"{path} contains a frame that is not an object with one key: it may be damaged or"
                " written by another version",
                cure="restore it from a copy, or record again",
            )
        journal.frames.append(next(iter(body.items())))
        journal.end = end
    return journal


def read_first_frame(path: Path, limit: int) -> tuple[str, Any] | None:
    """Read the first frame of a journal; None if it is not complete in the first `limit` bytes."""
    handle = open_regular(path)
    try:
        head = os.pread(handle, limit, 0)
    finally:
        os.close(handle)
    if not head.startswith(MAGIC):
        raise _not_a_journal(path)
    for payload, damage, _ in _payloads(memoryview(head), len(MAGIC)):
        body = None if damage is not None else parse_json(payload, str(path))
        return next(iter(body.items())) if isinstance(body, dict) and len(body) == 1 else None
    return None


def _not_a_journal(path: Path) -> FormatError:
    return FormatError(
        f"{path} is not a journal of version 1 (wrong signature): it may be damaged or written by a"
        " newer version",
        cure="upgrade syncpoint, or restore it from a copy",
    )


class _Damage(Enum):
    """How the frames of a journal end if they do not end cleanly."""

    CUT = "its journal ends inside a frame at byte"
    CHECKSUM = "its journal is damaged at byte"

    def describe(self, position: int) -> str:
        """The damage and its position."""
        return f"{self.value} {position}"


def _payloads(data: memoryview, start: int) -> Iterator[tuple[bytes, _Damage | None, int]]:
    """Yield payloads and their ends; if the end is not clean, last an empty one with the damage."""
    while start < len(data):
        if start + _FRAME.size > len(data):
            yield b"", _Damage.CUT, start
            return
        length, checksum = _FRAME.unpack_from(data, start)
        end = start + _FRAME.size + length
        if end > len(data):
            yield b"", _Damage.CUT, start
            return
        payload = bytes(data[start + _FRAME.size : end])
        if xxhash.xxh3_64_intdigest(payload) != checksum:
            yield b"", _Damage.CHECKSUM, start
            return
        yield payload, None, end
        start = end


def _has_frame_after(data: memoryview, start: int) -> bool:
    """Whether a complete frame begins anywhere after the byte `start`."""
    text = data.obj if isinstance(data.obj, bytes) else bytes(data)
    position = text.find(b'{"', start + _FRAME.size + 1)
    while position >= 0:
        length, checksum = _FRAME.unpack_from(text, position - _FRAME.size)
        payload = data[position : position + length]
        if len(payload) == length and xxhash.xxh3_64_intdigest(payload) == checksum:
            return True
        position = text.find(b'{"', position + 1)
    return False
