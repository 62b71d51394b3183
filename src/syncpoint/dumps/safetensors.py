"""The dump format safetensors: parse and check its JSON header, refuse holes and overlaps, read it
as a run, write it."""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path
from typing import Any, TypeGuard

from syncpoint.dumps.named_arrays import ArrayEntry, build_flat_run, iter_chunks, list_named_values
from syncpoint.dumps.protocol import API
from syncpoint.errors import FormatError, Unsupported, describe_error
from syncpoint.files.atomic_writes import replacing
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import open_regular
from syncpoint.files.untrusted_json import parse_json
from syncpoint.run.dtypes import DTYPES, from_safetensors
from syncpoint.run.reader import Run
from syncpoint.run.storage.record_json import to_json_text
from syncpoint.run.storage.shards import PAD
from syncpoint.run.value_store import FileStore

_LENGTH = struct.Struct("<Q")
MAX_HEADER = 100_000_000
"""Bytes; the safetensors library has the same limit."""
_METADATA = "__metadata__"
_ALIGNMENT = 64
_MAX_AXES = 64
_MAX_ELEMENTS = 1 << 60
_CURE = "copy the file again, or record it again"


class SafetensorsFile:
    """A safetensors file: the name of a tensor is the name of an op, the tensor its output 0."""

    API = API
    name = "safetensors"

    def sniff(self, path: Path) -> bool:
        """Whether the file begins with a plausible length and the brace that opens the header."""
        try:
            if not path.is_file():
                return False
            with path.open("rb") as file:
                start = file.read(_LENGTH.size + 1)
        except OSError:
            return False
        if len(start) <= _LENGTH.size or start[_LENGTH.size] != ord("{"):
            return False
        # A ZIP file or a pickle never reads as a small length; a truncated file still does.
        return bool(_LENGTH.unpack_from(start)[0] <= MAX_HEADER) or path.suffix == ".safetensors"

    def open(self, path: Path) -> Run:
        """Open all tensors in the order of their bytes, without the padding of our own shards."""
        with read_errors(path):
            handle = open_regular(path)
        try:
            header, start, size = _read_header(path, handle)
        finally:
            os.close(handle)
        entries = [
            _parse_entry(path, name, body, start, size)
            for name, body in header.items()
            if name != _METADATA
        ]
        entries.sort(key=lambda e: (e.offset, e.offset + e.nbytes))
        _check_contiguous(path, entries, start, size)
        tensor_entries = [e for e in entries if not e.name.startswith(PAD)]
        return build_flat_run(path, self.name, tensor_entries, FileStore(path.parent))

    def save(self, run: Run, path: Path) -> None:
        """Write the tensors in the run's order.

        A type or name that safetensors does not have is Unsupported.
        """
        header: dict[str, Any] = {_METADATA: {"format": "np"}}
        end = 0
        values = list_named_values(run)
        for name, tensor in values:
            dtype = DTYPES[tensor.dtype]
            if dtype.safetensors == "U8" and dtype.name != "u8":
                raise Unsupported(
                    f"safetensors has no element type {dtype}, which {tensor.key} has",
                    cure="keep it as a run" if dtype.packed else "convert to npz",
                )
            if name == _METADATA or name.startswith(PAD):
                raise Unsupported(f"safetensors reserves the name {name}", cure="convert to npz")
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
                for chunk in iter_chunks(run, tensor):
                    file.write(chunk.data)


def _read_header(path: Path, handle: int) -> tuple[dict[str, Any], int, int]:
    """Read the header; returns it, the offset of the data and the size of the file."""
    size = os.fstat(handle).st_size
    beginning = os.pread(handle, _LENGTH.size, 0)
    if len(beginning) < _LENGTH.size:
        raise FormatError(f"{path} is not a safetensors file (only {size} bytes)", cure=_CURE)
    length = _LENGTH.unpack(beginning)[0]
    if length > size - _LENGTH.size:
        raise FormatError(
            f"{path} is cut off or damaged: its header should end at byte {_LENGTH.size + length},"
            f" and the file has {size} bytes",
            cure=_CURE,
        )
    if length > MAX_HEADER:
        raise FormatError(
            f"{path} is damaged: its header declares {length} bytes, and the limit is {MAX_HEADER}",
            cure=_CURE,
        )
    text = _decode_header(os.pread(handle, length, _LENGTH.size), path)
    header = parse_json(text, f"the header of {path}", _CURE)
    if not isinstance(header, dict):
        raise FormatError(
            f"the header of {path} is not a JSON object but a {type(header).__name__}", cure=_CURE
        )
    return header, _LENGTH.size + length, size


def _decode_header(raw: bytes, path: Path) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"the header of {path} is not UTF-8: {describe_error(error)}", cure=_CURE
        ) from error


def _parse_entry(path: Path, name: str, body: object, start: int, size: int) -> ArrayEntry:
    where = f"{name[:80]!r} of {path}"
    if not isinstance(body, dict):
        raise FormatError(
            f"the header of {path} is damaged: the entry {name[:80]!r} is not an object with"
            " dtype, shape and data_offsets",
            cure=_CURE,
        )
    kind, shape, offsets = body.get("dtype"), body.get("shape"), body.get("data_offsets")
    dtype = from_safetensors(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise FormatError(f"{where} has the unknown dtype {repr(kind)[:40]}", cure=_CURE)
    if (
        not _is_natural_list(shape)
        or len(shape) > _MAX_AXES
        or prod(d for d in shape if d) > _MAX_ELEMENTS
    ):
        raise FormatError(f"{where} declares an impossible shape: {repr(shape)[:80]}", cure=_CURE)
    if not _is_natural_list(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(
            f"data_offsets of {where} must be two increasing numbers, not {repr(offsets)[:80]}",
            cure=_CURE,
        )
    if start + offsets[1] > size:
        raise FormatError(
            f"{where} is cut off: it should end at byte {start + offsets[1]}, and the file has"
            f" {size} bytes",
            cure=_CURE,
        )
    nbytes = dtype.nbytes(prod(shape))
    if offsets[1] - offsets[0] != nbytes:
        raise FormatError(
            f"{where} has {offsets[1] - offsets[0]} bytes, but {kind} in shape {shape} needs"
            f" {nbytes}",
            cure=_CURE,
        )
    return ArrayEntry(
        name=name,
        dtype=dtype,
        shape=tuple(shape),
        file=path.name,
        offset=start + offsets[0],
        nbytes=nbytes,
    )


def _is_natural_list(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)


def _check_contiguous(path: Path, entries: list[ArrayEntry], start: int, size: int) -> None:
    """Refuse holes and overlaps, as the format demands: bytes outside of tensors could hide
    anything."""
    end = start
    for entry in entries:
        if entry.offset != end:
            fault = "a hole" if entry.offset > end else "an overlap"
            raise FormatError(f"{path} has {fault} before the tensor {entry.name!r}", cure=_CURE)
        end += entry.nbytes
    if end != size:
        raise FormatError(f"{path} has {size - end} bytes after its last tensor", cure=_CURE)
