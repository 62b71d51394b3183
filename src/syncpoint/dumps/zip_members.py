"""Members of zip archives: where their bytes are in the file, and how to inflate them."""

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
"""Largest compressed member that is read; larger ones belong in files that can be mapped."""


_MAX_RATIO = 1032
"""Deflate cannot do better; a member that claims more lies."""


LOCAL_HEADER = struct.Struct("<4s5H3I2H")


BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError)
"""What zipfile raises for an archive that is damaged, or of a kind that it cannot read."""


_STEP = 1 << 20


@dataclass(frozen=True)
class Deflated:
    """Where the compressed bytes of a member lie and what they must become."""

    offset: int
    nbytes: int
    inflated: int
    crc: int
    header: int
    """Inflated bytes before the data."""


@contextmanager
def open_zip(path: Path) -> Iterator[tuple[int, list[zipfile.ZipInfo]]]:
    """A descriptor of the archive at `path`, which must be a regular file, and its members."""
    with os.fdopen(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
        yield file.fileno(), archive.infolist()


def data_start(handle: int, member: zipfile.ZipInfo, where: str) -> int:
    """Offset of the member's data, found in its local header and checked against the file."""
    size = os.fstat(handle).st_size
    local = os.pread(handle, LOCAL_HEADER.size, member.header_offset)
    if len(local) != LOCAL_HEADER.size or not local.startswith(b"PK\x03\x04"):
        raise FormatError(f"a local header for {where}", "none where the directory says")
    fields = LOCAL_HEADER.unpack(local)
    start = member.header_offset + LOCAL_HEADER.size + int(fields[-2]) + int(fields[-1])
    if start + member.compress_size > size:
        raise FormatError(
            f"{member.compress_size} bytes at offset {start} for {where}", f"a file of {size}"
        )
    if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
        raise FormatError(f"equal sizes for {where}, which is stored", "two different ones")
    return start


def inflate_start(
    handle: int, member: zipfile.ZipInfo, start: int, count: int, where: str
) -> bytes:
    """Inflate the first `count` bytes of a deflated member; impossible claims are refused."""
    claimed = member.file_size
    if claimed > _MAX_RATIO * (member.compress_size + 1):
        raise FormatError(
            f"at most {_MAX_RATIO} times {member.compress_size} bytes in {where}",
            f"a claim of {claimed}",
            "deflate cannot do that; do not trust this file",
        )
    if claimed > MAX_INFLATED:
        raise FormatError(
            f"at most {MAX_INFLATED} bytes in {where}",
            f"{claimed}",
            "save it with np.savez, uncompressed, so that it can be mapped",
        )
    packed = os.pread(handle, min(member.compress_size, 2 * count), start)
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, count)
    except zlib.error as error:
        raise FormatError(f"deflated bytes in {where}", describe_error(error)) from error


def inflate_into(whole: Bytes, packed: Bytes) -> int:
    """Inflate `packed` into `whole`; the number of bytes, one more than fit if there are more."""
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    size, taken, pending = 0, 0, b""
    while not engine.eof:
        if not pending:
            pending = packed[taken : taken + _STEP].tobytes()
            taken += len(pending)
        piece = engine.decompress(pending, min(_STEP, max(whole.size - size, 1)))
        # All input may be taken while output is still held back: constant arrays deflate a
        # thousandfold. Only where neither is left does the stream end.
        if not piece and not pending:
            break
        pending = engine.unconsumed_tail
        if size + len(piece) > whole.size:
            return whole.size + 1
        whole[size : size + len(piece)] = np.frombuffer(piece, np.uint8)
        size += len(piece)
    return size
