"""Reads inputs from .npy, .npz and .safetensors files; the files are not trusted."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from syncpoint.errors import FormatError, InputError
from syncpoint.run.dtypes import from_safetensors
from syncpoint.runtimes.exception_text import one_line
from syncpoint.runtimes.protocol import Array, Inputs

SUFFIXES = (".npz", ".npy", ".safetensors")


def read_array_file(path: Path) -> Inputs:
    """The inputs in one file: by position from .npy, by name from .npz and .safetensors."""
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return Inputs((_npy(file, path.stat().st_size, path.name),))
        if path.suffix == ".npz":
            return Inputs(kwargs=_npz(path))
        if path.suffix == ".safetensors":
            return Inputs(kwargs=_safetensors(path))
    except OSError as error:
        raise InputError(f"a readable file {path}", one_line(error)) from error
    raise InputError(
        f"{path.name!r} is not a file of inputs ({', '.join(SUFFIXES)})",
        cure="give such a file, a run, module:function, random[:seed], zeros or ones",
    )


def _npz(path: Path) -> dict[str, Array]:
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    found[name] = _npy(file, member.file_size, f"{path.name}:{name}")  # type: ignore[arg-type]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormatError(f"{path.name} as .npz", one_line(error)) from error
    if not found:
        raise InputError("arrays", f"none in {path.name}")
    return found


def _npy(file: BinaryIO, size: int, where: str) -> Array:
    """One .npy stream of `size` bytes; nothing is unpickled and nothing allocated beyond it."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
        else:
            shape, fortran, kind = np.lib.format.read_array_header_2_0(file)
    except (ValueError, EOFError, SyntaxError) as error:
        raise FormatError(f"{where} as .npy", one_line(error)) from error
    if kind.hasobject or kind.kind not in "biufc":
        raise FormatError(f"numbers in {where}", f"NumPy dtype {kind}", "use .safetensors for bf16")
    nbytes = math.prod(shape) * kind.itemsize
    if nbytes > size:
        raise FormatError(f"{nbytes} bytes of values in {where}", f"a file of {size}")
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise FormatError(f"{nbytes} bytes of values in {where}", f"{len(data)}")
    flat = np.frombuffer(bytearray(data), kind)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


def _safetensors(path: Path) -> dict[str, Array]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise FormatError(f"a header of at most {size - 8} bytes in {path.name}", f"{length}")
        try:
            header = json.loads(file.read(length))
            entries = {k: v for k, v in header.items() if k != "__metadata__"}
            spans = {k: _span(v, size - 8 - length) for k, v in entries.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FormatError(f"{path.name} as .safetensors", one_line(error)) from error
        found = {}
        for name, (kind, shape, start, nbytes) in spans.items():
            file.seek(8 + length + start)
            found[name] = np.frombuffer(bytearray(file.read(nbytes)), kind).reshape(shape)
    if not found:
        raise InputError("arrays", f"none in {path.name}")
    return found


def _span(
    entry: Mapping[str, Any], room: int
) -> tuple[np.dtype[np.generic], tuple[int, ...], int, int]:
    """Type, shape, first byte and size of one tensor of a safetensors header, checked."""
    kind = from_safetensors(entry["dtype"])
    if kind is None:
        raise ValueError(f"unknown dtype {entry['dtype']!r}")
    shape = tuple(int(n) for n in entry["shape"])
    start, stop = (int(n) for n in entry["data_offsets"])
    if not 0 <= start <= stop <= room or any(n < 0 for n in shape):
        raise ValueError(f"a tensor at bytes {start} to {stop} of {room}")
    if stop - start != kind.nbytes(math.prod(shape)):
        raise ValueError(f"{stop - start} bytes for shape {list(shape)} of {kind}")
    return kind.numpy, shape, start, stop - start
