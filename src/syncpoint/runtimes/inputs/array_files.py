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

ARRAY_SUFFIXES = (".npz", ".npy", ".safetensors")


def read_array_file(path: Path) -> Inputs:
    """The inputs in one file: by position from .npy, by name from .npz and .safetensors."""
    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                return Inputs((_read_npy(file, path.stat().st_size, path.name),))
        if path.suffix == ".npz":
            return Inputs(kwargs=_read_npz(path))
        if path.suffix == ".safetensors":
            return Inputs(kwargs=_read_safetensors(path))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {one_line(error)}",
            cure="check that the file exists and that you may read it",
        ) from error
    raise InputError(
        f"{path.name!r} is not a file of inputs ({', '.join(ARRAY_SUFFIXES)})",
        cure="give such a file, a run, module:function, random[:seed], zeros or ones",
    )


def _read_npz(path: Path) -> dict[str, Array]:
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _read_npy(file, member.file_size, f"{path.name}:{name}")  # type: ignore[arg-type]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise FormatError(
            f"{path.name} is not a .npz file: {one_line(error)}",
            cure="write it with numpy.savez",
        ) from error
    if not arrays:
        raise InputError(
            f"{path.name} holds no arrays",
            cure="give a file with at least one array",
        )
    return arrays


def _read_npy(file: BinaryIO, size: int, where: str) -> Array:
    """Read one .npy stream of `size` bytes; never unpickle, never allocate more than `size`."""
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        else:
            shape, is_fortran_order, dtype = np.lib.format.read_array_header_2_0(file)
    except (ValueError, EOFError, SyntaxError) as error:
        raise FormatError(
            f"{where} is not a .npy file: {one_line(error)}",
            cure="write it with numpy.save",
        ) from error
    if dtype.hasobject or dtype.kind not in "biufc":
        raise FormatError(
            f"{where} holds NumPy dtype {dtype}, not numbers",
            cure="use .safetensors for bf16",
        )
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > size:
        raise FormatError(
            f"{where} declares {nbytes} bytes of values, but has only {size} bytes",
            cure="write the file again",
        )
    value_bytes = file.read(nbytes)
    if len(value_bytes) != nbytes:
        raise FormatError(
            f"{where} is truncated: {len(value_bytes)} of {nbytes} bytes of values",
            cure="write the file again",
        )
    values = np.frombuffer(bytearray(value_bytes), dtype)
    return values.reshape(shape[::-1]).T if is_fortran_order else values.reshape(shape)


def _read_safetensors(path: Path) -> dict[str, Array]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise FormatError(
                f"{path.name} is not a .safetensors file: its header declares {length} bytes,"
                f" the file has {size}",
                cure="write it with safetensors.save_file",
            )
        try:
            header = json.loads(file.read(length))
            entries = {k: v for k, v in header.items() if k != "__metadata__"}
            spans = {k: _check_entry(v, size - 8 - length) for k, v in entries.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise FormatError(
                f"{path.name} is not a .safetensors file: {one_line(error)}",
                cure="write it with safetensors.save_file",
            ) from error
        arrays = {}
        for name, (dtype, shape, start, nbytes) in spans.items():
            file.seek(8 + length + start)
            arrays[name] = np.frombuffer(bytearray(file.read(nbytes)), dtype).reshape(shape)
    if not arrays:
        raise InputError(
            f"{path.name} holds no arrays",
            cure="give a file with at least one array",
        )
    return arrays


def _check_entry(
    entry: Mapping[str, Any], available_bytes: int
) -> tuple[np.dtype[np.generic], tuple[int, ...], int, int]:
    """Check one entry of a safetensors header: dtype, shape, first byte and size in bytes."""
    dtype = from_safetensors(entry["dtype"])
    if dtype is None:
        raise ValueError(f"unknown dtype {entry['dtype']!r}")
    shape = tuple(int(n) for n in entry["shape"])
    start, stop = (int(n) for n in entry["data_offsets"])
    if not 0 <= start <= stop <= available_bytes or any(n < 0 for n in shape):
        raise ValueError(f"a tensor is at bytes {start} to {stop} of {available_bytes}")
    if stop - start != dtype.nbytes(math.prod(shape)):
        raise ValueError(f"{stop - start} bytes for shape {list(shape)} of {dtype}")
    return dtype.numpy, shape, start, stop - start
