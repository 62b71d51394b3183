"""The header of a .npy file, read without trust and written without NumPy's file objects."""

from __future__ import annotations

import io
import os
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from syncpoint.dumps.array_store import Lay
from syncpoint.dumps.named_arrays import Entry
from syncpoint.errors import FormatError, SyncpointError, Unsupported, describe_error
from syncpoint.files.untrusted_files import open_regular, path_inside
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DType

SUFFIX = ".npy"
MAGIC = b"\x93NUMPY"
MAX_HEADER = 16 * 1024
"""More bytes than the header of any plain array has."""
_MAX_COUNT = 1 << 60


@dataclass(frozen=True)
class NpyHeader:
    """What a .npy file says of its array."""

    dtype: DType
    shape: tuple[int, ...]
    fortran: bool
    """Column-major on disk."""
    swapped: bool
    """Big-endian on disk."""
    size: int
    """Bytes before the data."""

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return self.dtype.nbytes(prod(self.shape))

    @property
    def plain(self) -> bool:
        """Whether the bytes can be used as they lie."""
        return not self.swapped and (not self.fortran or len(self.shape) < 2)


def parse_header(start: bytes, where: str) -> NpyHeader:
    """The header at the beginning of `start`, which need not be longer than MAX_HEADER."""
    file = io.BytesIO(start[:MAX_HEADER])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers written by Python 2
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, found = np.lib.format.read_array_header_1_0(file, MAX_HEADER)
            elif version in ((2, 0), (3, 0)):
                shape, fortran, found = np.lib.format.read_array_header_2_0(file, MAX_HEADER)
            else:
                raise ValueError(f"version {version}, where 1 to 3 are known")
    except Exception as error:  # its parser raises whatever the tokenizer and dtype() do
        raise FormatError(f"a .npy header in {where}", describe_error(error)[:120]) from error
    dtype = _element(found, where)
    nonzero = [d for d in shape if d]
    if len(shape) > 64 or any(d < 0 for d in shape) or prod(nonzero) > _MAX_COUNT:
        raise FormatError(f"a shape that a machine can hold in {where}", str(shape)[:80])
    return NpyHeader(dtype, tuple(shape), fortran, not found.isnative, file.tell())


class NotNumbers(FormatError):
    """An array whose elements are no numbers; the file may be as it should be."""

    def __init__(self, where: str, elements: str, cure: str = "") -> None:
        super().__init__(f"an array of numbers in {where}", elements, cure)
        self.args = (where, elements, cure)


def _element(found: np.dtype[np.generic], where: str) -> DType:
    if found.hasobject:
        raise NotNumbers(
            where,
            "pickled Python objects",
            "they are never loaded; save plain arrays",
        )
    if found.names is not None or found.subdtype is not None:
        raise NotNumbers(where, "a structured array", "save its fields apart")
    if found.kind == "V":
        raise NotNumbers(
            where,
            f"elements without a type ({found.itemsize} bytes each)",
            "NumPy drops bf16 and fp8 when it saves; use safetensors",
        )
    try:
        return dtypes.from_numpy(found)
    except SyncpointError as error:
        raise NotNumbers(where, str(found)) from error


def make_header(dtype: DType, shape: tuple[int, ...]) -> bytes:
    """A header for dense row-major bytes; a type that NumPy cannot save is Unsupported."""
    if dtype.numpy.isbuiltin != 1:
        cure = "keep it as a run" if dtype.packed else "convert to safetensors"
        raise Unsupported("an element type that NumPy files know", dtype.name, cure)
    file = io.BytesIO()
    descr = dtype.numpy.newbyteorder("<").str
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def npy_entry(root: Path, name: str) -> tuple[Entry, Lay | None]:
    """One file, by its header; what is not an array of numbers is a FormatError."""
    path = path_inside(root, name)
    try:
        handle = open_regular(path)
    except OSError as error:
        raise FormatError(f"a readable file at {path}", describe_error(error)) from error
    try:
        size = os.fstat(handle).st_size
        header = parse_header(os.pread(handle, MAX_HEADER, 0), str(path))
    finally:
        os.close(handle)
    if header.size + header.nbytes > size:
        raise FormatError(
            f"{header.nbytes} bytes of data in {path}", f"{max(size - header.size, 0)}"
        )
    op = name.removesuffix(SUFFIX)
    entry = Entry(
        name=op,
        dtype=header.dtype,
        shape=header.shape,
        file=name,
        offset=header.size,
        nbytes=header.nbytes,
    )
    fortran = header.fortran and len(header.shape) > 1
    return entry, None if header.plain else Lay(fortran, header.swapped)
