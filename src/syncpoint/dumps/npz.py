"""NumPy's .npz: a zip of .npy members. Uncompressed ones are mapped where they lie."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syncpoint.dumps.array_store import ArrayStore, Deflated, Lay, chunks
from syncpoint.dumps.named_arrays import Entry, flat_run, named_values
from syncpoint.dumps.npy_header import MAX_HEADER, make_header, parse_header
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError
from syncpoint.files.safe_access import one_line, open_regular, replacing
from syncpoint.run.digests import CRC32
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.tensor_checksums import Checksum

MAX_INFLATED = 4 << 30
"""Largest compressed member that is read; larger ones belong in files that can be mapped."""
_MAX_RATIO = 1032
"""Deflate cannot do better; a member that claims more lies."""
_LOCAL = struct.Struct("<4s5H3I2H")
_ALIGNMENT = 64
_EXTRA = struct.Struct("<HH")
_ALIGN_ID = 0xD935
"""The extra field that Android's zipalign uses for padding."""
_ZIP64_EXTRA = 20
BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError)
"""What zipfile raises for an archive that is damaged, or of a kind that it cannot read."""


@contextmanager
def open_zip(path: Path) -> Iterator[tuple[int, list[zipfile.ZipInfo]]]:
    """A descriptor of the archive at `path`, which must be a regular file, and its members."""
    with os.fdopen(open_regular(path), "rb") as file, zipfile.ZipFile(file) as archive:
        yield file.fileno(), archive.infolist()


class NpzFile:
    """The key of an array is the name of an op, the array its output 0."""

    API = API
    name = "npz"

    def sniff(self, path: Path) -> bool:
        """A zip whose first member is a .npy."""
        try:
            if not path.is_file() or not zipfile.is_zipfile(path):
                return False
            with zipfile.ZipFile(path) as archive:
                return all(m.filename.endswith(".npy") for m in archive.infolist()[:1])
        except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
            return False

    def open(self, path: Path) -> Run:
        """All members in the order of the archive."""
        try:
            with open_zip(path) as (handle, members):
                return _open(path, handle, members)
        except OSError as error:
            raise InputError(f"a readable file at {path}", one_line(error)) from error
        except BROKEN_ZIP as error:
            raise FormatError(f"a sound zip archive at {path}", one_line(error)) from error

    def save(self, run: Run, path: Path) -> None:
        """Uncompressed, each array aligned so that it can be mapped."""
        values = named_values(run)
        headers = [make_header(DTYPES[t.dtype], t.shape) for _, t in values]
        with replacing(path, new=True) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for (name, tensor), header in zip(values, headers, strict=True):
                member = zipfile.ZipInfo(name + ".npy")
                start = archive.start_dir + _LOCAL.size + len(member.filename.encode())
                pad = -(start + _ZIP64_EXTRA + _EXTRA.size) % _ALIGNMENT
                member.extra = _EXTRA.pack(_ALIGN_ID, pad) + bytes(pad)
                with archive.open(member, "w", force_zip64=True) as file:
                    file.write(header)
                    for chunk in chunks(run, tensor):
                        file.write(chunk.data)


def _open(path: Path, handle: int, members: list[zipfile.ZipInfo]) -> Run:
    entries: list[Entry] = []
    odd: dict[TensorKey, Lay] = {}
    checksums: dict[TensorKey, Checksum] = {}
    seen: set[str] = set()
    for member in members:
        where = f"{member.filename[:80]!r} of {path}"
        if not member.filename.endswith(".npy"):
            raise FormatError(f"only .npy members in {path}", repr(member.filename)[:80])
        name = member.filename.removesuffix(".npy")
        if name in seen:
            raise FormatError(f"each name once in {path}", f"{name!r} twice")
        seen.add(name)
        start = data_start(handle, member, where)
        entry, lay = _member(path, handle, member, start, name, where)
        entries.append(entry)
        key = TensorKey(OpKey(name))
        if lay is not None:
            odd[key] = lay
        if member.compress_type == zipfile.ZIP_STORED:
            checksums[key] = Checksum(CRC32, f"{member.CRC:08x}", start, member.file_size)
    return flat_run(path, NpzFile.name, entries, ArrayStore(path.parent, odd, checksums))


def _member(
    path: Path, handle: int, member: zipfile.ZipInfo, start: int, name: str, where: str
) -> tuple[Entry, Lay | None]:
    stored = member.compress_type == zipfile.ZIP_STORED
    if member.flag_bits & 1 or not (stored or member.compress_type == zipfile.ZIP_DEFLATED):
        raise FormatError(f"a member stored or deflated, {where}", "another method or encryption")
    if stored:
        beginning = os.pread(handle, min(member.file_size, MAX_HEADER), start)
    else:
        beginning = _first_inflated(handle, member, start, where)
    header = parse_header(beginning, where)
    if header.size + header.nbytes != member.file_size:
        raise FormatError(
            f"{header.size + header.nbytes} bytes for the array {where}", f"{member.file_size}"
        )
    entry = Entry(
        name=name,
        dtype=header.dtype,
        shape=header.shape,
        file=path.name,
        offset=start + header.size,
        nbytes=header.nbytes,
    )
    fortran = header.fortran and len(header.shape) > 1
    if stored:
        return entry, None if header.plain else Lay(fortran, header.swapped)
    deflated = Deflated(start, member.compress_size, member.file_size, member.CRC, header.size)
    return entry, Lay(fortran, header.swapped, deflated)


def data_start(handle: int, member: zipfile.ZipInfo, where: str) -> int:
    """Offset of the member's data, found in its local header and checked against the file."""
    size = os.fstat(handle).st_size
    local = os.pread(handle, _LOCAL.size, member.header_offset)
    if len(local) != _LOCAL.size or not local.startswith(b"PK\x03\x04"):
        raise FormatError(f"a local header for {where}", "none where the directory says")
    fields = _LOCAL.unpack(local)
    start = member.header_offset + _LOCAL.size + int(fields[-2]) + int(fields[-1])
    if start + member.compress_size > size:
        raise FormatError(
            f"{member.compress_size} bytes at offset {start} for {where}", f"a file of {size}"
        )
    if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
        raise FormatError(f"equal sizes for {where}, which is stored", "two different ones")
    return start


def _first_inflated(handle: int, member: zipfile.ZipInfo, start: int, where: str) -> bytes:
    """Enough of a deflated member for its header; impossible claims are refused first."""
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
    packed = os.pread(handle, min(member.compress_size, 2 * MAX_HEADER), start)
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, MAX_HEADER)
    except zlib.error as error:
        raise FormatError(f"deflated bytes in {where}", one_line(error)) from error
