"""The safetensors format: a length, a JSON header, and the bytes of the tensors without holes."""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from syncpoint.dumps.named_arrays import Entry, chunks, flat_run, named_values
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, InputError, Unsupported, describe_error
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.untrusted_files import open_regular
from syncpoint.files.untrusted_json import parse_json
from syncpoint.run.dtypes import DTYPES, from_safetensors
from syncpoint.run.reader import Run
from syncpoint.run.storage.record_json import to_json_text
from syncpoint.run.storage.shards import PAD
from syncpoint.run.value_store import FileStore

_LENGTH = struct.Struct("<Q")
MAX_HEADER = 100_000_000
"""The limit that the safetensors library has too."""
_METADATA = "__metadata__"
_ALIGNMENT = 64


class SafetensorsFile:
    """The key of a tensor is the name of an op, the tensor its output 0."""

    API = API
    name = "safetensors"

    def sniff(self, path: Path) -> bool:
        """A length that fits into the file, then the brace that opens the header."""
        try:
            if not path.is_file():
                return False
            with path.open("rb") as file:
                start = file.read(_LENGTH.size + 1)
        except OSError:
            return False
        if len(start) <= _LENGTH.size or start[_LENGTH.size] != ord("{"):
            return False
        # A zip or a pickle never reads as a small length; a truncated file still should.
        return bool(_LENGTH.unpack_from(start)[0] <= MAX_HEADER) or path.suffix == ".safetensors"

    def open(self, path: Path) -> Run:
        """All tensors in the order of their bytes; the padding of our own shards left out."""
        try:
            handle = open_regular(path)
        except OSError as error:
            raise InputError(f"a readable file at {path}", describe_error(error)) from error
        try:
            header, start, size = _header(path, handle)
        finally:
            os.close(handle)
        entries = [
            _entry(path, name, body, start, size)
            for name, body in header.items()
            if name != _METADATA
        ]
        entries.sort(key=lambda e: (e.offset, e.offset + e.nbytes))
        _check_contiguous(path, entries, start, size)
        kept = [e for e in entries if not e.name.startswith(PAD)]
        return flat_run(path, self.name, kept, FileStore(path.parent))

    def save(self, run: Run, path: Path) -> None:
        """The tensors in the run's order; what safetensors has no name for is Unsupported."""
        header: dict[str, Any] = {_METADATA: {"format": "np"}}
        end = 0
        values = named_values(run)
        for name, tensor in values:
            dtype = DTYPES[tensor.dtype]
            if dtype.safetensors == "U8" and dtype.name != "u8":
                raise Unsupported(
                    "an element type that safetensors knows",
                    f"{dtype} of {tensor.key}",
                    "keep it as a run" if dtype.packed else "convert to npz",
                )
            if name == _METADATA or name.startswith(PAD):
                raise Unsupported("a name that safetensors leaves free", name, "convert to npz")
            header[name] = {
                "dtype": dtype.safetensors,
                "shape": list(tensor.shape),
                "data_offsets": [end, end + tensor.nbytes],
            }
            end += tensor.nbytes
        text = to_json_text(header).encode("ascii")
        text = text.ljust(len(text) + -(len(text) + _LENGTH.size) % _ALIGNMENT)
        with replacing(path, new=True) as temporary, temporary.open("wb") as file:
            file.write(_LENGTH.pack(len(text)) + text)
            for _, tensor in values:
                for chunk in chunks(run, tensor):
                    file.write(chunk.data)


def _header(path: Path, handle: int) -> tuple[dict[str, Any], int, int]:
    """The header, where the data begins, and the size of the file."""
    size = os.fstat(handle).st_size
    beginning = os.pread(handle, _LENGTH.size, 0)
    if len(beginning) < _LENGTH.size:
        raise FormatError(f"a safetensors file at {path}", f"only {size} bytes")
    length = _LENGTH.unpack(beginning)[0]
    if length > min(MAX_HEADER, size - _LENGTH.size):
        raise FormatError(
            f"a header inside the {size} bytes of {path}", f"one that claims {length} bytes"
        )
    header = parse_json(_decoded(os.pread(handle, length, _LENGTH.size), path), str(path))
    if not isinstance(header, dict):
        raise FormatError(f"a JSON object as header of {path}", type(header).__name__)
    return header, _LENGTH.size + length, size


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"UTF-8 in the header of {path}", describe_error(error)) from error


def _entry(path: Path, name: str, body: object, start: int, size: int) -> Entry:
    where = f"{name[:80]!r} of {path}"
    if not isinstance(body, dict):
        raise FormatError(f"dtype, shape and data_offsets for {where}", "another structure")
    kind, shape, place = body.get("dtype"), body.get("shape"), body.get("data_offsets")
    dtype = from_safetensors(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise FormatError(f"a known dtype for {where}", repr(kind)[:40])
    if not _naturals(shape) or len(shape) > 64 or prod(d for d in shape if d) > 1 << 60:
        raise FormatError(f"a shape that a machine can hold for {where}", repr(shape)[:80])
    if not _naturals(place) or len(place) != 2 or place[0] > place[1]:
        raise FormatError(f"two rising data_offsets for {where}", repr(place)[:80])
    if start + place[1] > size:
        raise FormatError(
            f"data inside the {size} bytes of the file for {where}",
            f"data_offsets up to byte {start + place[1]}",
        )
    nbytes = dtype.nbytes(prod(shape))
    if place[1] - place[0] != nbytes:
        raise FormatError(
            f"{nbytes} bytes of {kind} in shape {shape} for {where}", f"{place[1] - place[0]}"
        )
    return Entry(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        file=path.name,
        offset=start + place[0],
        nbytes=nbytes,
    )


def _naturals(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


def _check_contiguous(path: Path, entries: list[Entry], start: int, size: int) -> None:
    """The format allows neither holes nor overlaps: bytes nobody sees could hide anything."""
    end = start
    for entry in entries:
        if entry.offset != end:
            what = "a hole" if entry.offset > end else "an overlap"
            raise FormatError(f"tensors end to end in {path}", f"{what} before {entry.name!r}")
        end += entry.nbytes
    if end != size:
        raise FormatError(f"nothing behind the last tensor of {path}", f"{size - end} bytes")
