"""The dump format .npz, a ZIP file of .npy members: recognise, read (members that are not
compressed are mapped) and write it."""

from __future__ import annotations

import os
import struct
import zipfile
from pathlib import Path

from syncpoint.dumps.array_store import ArrayStore, StoredLayout
from syncpoint.dumps.named_arrays import ArrayEntry, build_flat_run, iter_chunks, list_named_values
from syncpoint.dumps.npy_header import MAX_HEADER, make_header, parse_header
from syncpoint.dumps.protocol import API
from syncpoint.dumps.zip_members import (
    BROKEN_ZIP,
    LOCAL_HEADER,
    Deflated,
    find_data_start,
    inflate_start,
    open_zip,
)
from syncpoint.errors import FormatError, describe_error
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.read_errors import read_errors
from syncpoint.run.digests import CRC32
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import OpKey, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.storage.tensor_checksums import Checksum

_ALIGNMENT = 64
_EXTRA = struct.Struct("<HH")
_ALIGN_ID = 0xD935
"""The extra field that Android's zipalign uses for padding."""
_ZIP64_EXTRA_BYTES = 20
_CURE = "save it again with np.savez"


class NpzFile:
    """A .npz file: the name of an array is the name of an op, the array is its output 0."""

    API = API
    name = "npz"

    def sniff(self, path: Path) -> bool:
        """Whether `path` is a ZIP file whose first member is a .npy file."""
        try:
            if not path.is_file() or not zipfile.is_zipfile(path):
                return False
            with zipfile.ZipFile(path) as archive:
                return all(m.filename.endswith(".npy") for m in archive.infolist()[:1])
        except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
            return False

    def open(self, path: Path) -> Run:
        """Open all members, in the order of the archive; reads the headers only."""
        try:
            with read_errors(path), open_zip(path) as (handle, members):
                return _open_members(path, handle, members)
        except BROKEN_ZIP as error:
            raise FormatError(
                f"{path} is not a valid ZIP file: {describe_error(error)}",
                cure="copy it again, or record it again",
            ) from error

    def save(self, run: Run, path: Path) -> None:
        """Write the values uncompressed, each array aligned so that it can be mapped."""
        values = list_named_values(run)
        headers = [make_header(DTYPES[t.dtype], t.shape) for _, t in values]
        with replacing(path, new=True) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            for (name, tensor), header in zip(values, headers, strict=True):
                member = zipfile.ZipInfo(name + ".npy")
                start = archive.start_dir + LOCAL_HEADER.size + len(member.filename.encode())
                pad = -(start + _ZIP64_EXTRA_BYTES + _EXTRA.size) % _ALIGNMENT
                member.extra = _EXTRA.pack(_ALIGN_ID, pad) + bytes(pad)
                with archive.open(member, "w", force_zip64=True) as file:
                    file.write(header)
                    for chunk in iter_chunks(run, tensor):
                        file.write(chunk.data)


def _open_members(path: Path, handle: int, members: list[zipfile.ZipInfo]) -> Run:
    entries: list[ArrayEntry] = []
    layouts: dict[TensorKey, StoredLayout] = {}
    checksums: dict[TensorKey, Checksum] = {}
    names: set[str] = set()
    for member in members:
        where = f"{member.filename[:80]!r} of {path}"
        if not member.filename.endswith(".npy"):
            raise FormatError(
                f"{path} has a member that is not a .npy file: {repr(member.filename)[:80]}",
                cure=_CURE,
            )
        name = member.filename.removesuffix(".npy")
        if name in names:
            raise FormatError(f"{path} has the name {name!r} twice", cure=_CURE)
        names.add(name)
        start = find_data_start(handle, member, where)
        entry, layout = _read_member(path, handle, member, start, name, where)
        entries.append(entry)
        key = TensorKey(OpKey(name))
        if layout is not None:
            layouts[key] = layout
        if member.compress_type == zipfile.ZIP_STORED:
            checksums[key] = Checksum(CRC32, f"{member.CRC:08x}", start, member.file_size)
    return build_flat_run(path, NpzFile.name, entries, ArrayStore(path.parent, layouts, checksums))


def _read_member(
    path: Path, handle: int, member: zipfile.ZipInfo, start: int, name: str, where: str
) -> tuple[ArrayEntry, StoredLayout | None]:
    stored = member.compress_type == zipfile.ZIP_STORED
    if member.flag_bits & 1 or not (stored or member.compress_type == zipfile.ZIP_DEFLATED):
        raise FormatError(
            f"{where} is encrypted or compressed with another method than deflate", cure=_CURE
        )
    if stored:
        beginning = os.pread(handle, min(member.file_size, MAX_HEADER), start)
    else:
        beginning = inflate_start(handle, member, start, MAX_HEADER, where)
    header = parse_header(beginning, where)
    if header.size + header.nbytes != member.file_size:
        raise FormatError(
            f"{where} has {member.file_size} bytes, but its header declares"
            f" {header.size + header.nbytes}",
            cure=_CURE,
        )
    entry = ArrayEntry(
        name=name,
        dtype=header.dtype,
        shape=header.shape,
        file=path.name,
        offset=start + header.size,
        nbytes=header.nbytes,
    )
    fortran = header.fortran and len(header.shape) > 1
    if stored:
        return entry, None if header.is_plain else StoredLayout(fortran, header.swapped)
    deflated = Deflated(start, member.compress_size, member.file_size, member.CRC, header.size)
    return entry, StoredLayout(fortran, header.swapped, deflated)
