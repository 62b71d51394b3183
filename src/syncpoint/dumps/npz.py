"""NumPy's .npz: a zip of .npy members. Uncompressed ones are mapped where they lie."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

from syncpoint.dumps.array_store import ArrayStore, Lay
from syncpoint.dumps.named_arrays import Entry, chunks, flat_run, named_values
from syncpoint.dumps.npy_header import MAX_HEADER, make_header, parse_header
from syncpoint.dumps.protocol import API
from syncpoint.dumps.zip_members import (
    BROKEN_ZIP,
    LOCAL_HEADER,
    Deflated,
    data_start,
    inflate_start,
    open_zip,
)
from syncpoint.errors import FormatError, InputError, describe_error
from syncpoint.files.atomic_writes import replacing
from syncpoint.run.digests import CRC32
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.tensor_checksums import Checksum

_ALIGNMENT = 64
_EXTRA = struct.Struct("<HH")
_ALIGN_ID = 0xD935
"""The extra field that Android's zipalign uses for padding."""
_ZIP64_EXTRA = 20


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
            raise InputError(f"a readable file at {path}", describe_error(error)) from error
        except BROKEN_ZIP as error:
            raise FormatError(f"a sound zip archive at {path}", describe_error(error)) from error

    def save(self, run: Run, path: Path) -> None:
        """Uncompressed, each array aligned so that it can be mapped."""
        values = named_values(run)
        headers = [make_header(DTYPES[t.dtype], t.shape) for _, t in values]
        with replacing(path, new=True) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for (name, tensor), header in zip(values, headers, strict=True):
                member = zipfile.ZipInfo(name + ".npy")
                start = archive.start_dir + LOCAL_HEADER.size + len(member.filename.encode())
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
        beginning = inflate_start(handle, member, start, MAX_HEADER, where)
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
