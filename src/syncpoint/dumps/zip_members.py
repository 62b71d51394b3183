"""Find the bytes of members of a ZIP archive in its file; inflate a raw deflate stream step by step
into a buffer, with a size limit."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from syncpoint.errors import FormatError, describe_error
from syncpoint.files.untrusted_files import open_regular
from syncpoint.run.array_bytes import Bytes

MAX_INFLATED = 4 << 30
"""Bytes of the largest compressed member that is read; larger ones belong in mapped files."""
_MAX_RATIO = 1032
"""Largest compression ratio of deflate; a member that claims more is forged."""
LOCAL_HEADER = struct.Struct("<4s5H3I2H")
BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError)
"""Exceptions of zipfile for an archive that is damaged, or of a kind that it cannot read."""
_STEP_BYTES = 1 << 20
_CURE = "copy the file again, or record it again"


@dataclass(frozen=True)
class Deflated:
    """Where the compressed bytes of a member are, and what they must inflate to."""

    offset: int
    nbytes: int
    inflated: int
    """Bytes after inflating, with the header."""
    crc: int
    header: int
    """Inflated bytes before the data."""


@contextmanager
def open_zip(path: Path) -> Iterator[tuple[int, list[zipfile.ZipInfo]]]:
    """Open the archive at `path`, a regular file; yields its descriptor and its members."""
    with os.fdopen(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
        yield file.fileno(), archive.infolist()


def find_data_start(handle: int, member: zipfile.ZipInfo, where: str) -> int:
    """Find the offset of a member's data in its local header; it must lie inside the file."""
    size = os.fstat(handle).st_size
    local = os.pread(handle, LOCAL_HEADER.size, member.header_offset)
    if len(local) != LOCAL_HEADER.size or not local.startswith(b"PK\x03\x04"):
        raise FormatError(
            f"{where} is damaged: its local ZIP header is not where the central directory says",
            cure=_CURE,
        )
    fields = LOCAL_HEADER.unpack(local)
    start = member.header_offset + LOCAL_HEADER.size + int(fields[-2]) + int(fields[-1])
    if start + member.compress_size > size:
        raise FormatError(
            f"{where} is cut off: it should end at byte {start + member.compress_size}, and the"
            f" file has {size} bytes",
            cure=_CURE,
        )
    if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
        raise FormatError(
            f"{where} is stored without compression, but declares two sizes:"
            f" {member.compress_size} and {member.file_size} bytes",
            cure=_CURE,
        )
    return start


def inflate_start(
    handle: int, member: zipfile.ZipInfo, start: int, count: int, where: str
) -> bytes:
    """Inflate the first `count` bytes of a deflated member; impossible sizes are refused."""
    declared = member.file_size
    if declared > _MAX_RATIO * (member.compress_size + 1):
        raise FormatError(
            f"{where} declares that {member.compress_size} compressed bytes expand to {declared};"
            f" deflate expands at most {_MAX_RATIO} times",
            cure="do not trust this file",
        )
    if declared > MAX_INFLATED:
        raise FormatError(
            f"{where} inflates to {declared} bytes, more than the limit of {MAX_INFLATED}",
            cure="save it with np.savez, without compression",
        )
    packed = os.pread(handle, min(member.compress_size, 2 * count), start)
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, count)
    except zlib.error as error:
        raise FormatError(
            f"{where} cannot be inflated: {describe_error(error)}", cure=_CURE
        ) from error


def inflate_into(buffer: Bytes, packed: Bytes) -> int:
    """Inflate `packed` into `buffer`; returns the bytes written, or one more than fit."""
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    size, position, pending = 0, 0, b""
    while not engine.eof:
        if not pending:
            pending = packed[position : position + _STEP_BYTES].tobytes()
            position += len(pending)
        piece = engine.decompress(pending, min(_STEP_BYTES, max(buffer.size - size, 1)))
        # All input may be consumed while output is still pending: constant arrays deflate a
        # thousandfold. The stream ends only when neither remains.
        if not piece and not pending:
            break
        pending = engine.unconsumed_tail
        if size + len(piece) > buffer.size:
            return buffer.size + 1
        buffer[size : size + len(piece)] = np.frombuffer(piece, np.uint8)
        size += len(piece)
    return size
