"""Parse and write the header of a .npy file (magic bytes, dtype, shape, order), as untrusted data;
read one file's entry."""

from __future__ import annotations

import io
import os
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from syncpoint.dumps.array_store import StoredLayout
from syncpoint.dumps.named_arrays import ArrayEntry
from syncpoint.errors import FormatError, SyncpointError, Unsupported, describe_error
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import open_regular, path_inside
from syncpoint.run import dtypes
from syncpoint.run.dtypes import DType

SUFFIX = ".npy"
MAGIC = b"\x93NUMPY"
MAX_HEADER = 16 * 1024
"""Bytes; the header of any plain array is smaller."""
_MAX_ELEMENTS = 1 << 60
_MAX_AXES = 64


@dataclass(frozen=True)
class NpyHeader:
    """What a .npy file declares about its array."""

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
    def is_plain(self) -> bool:
        """Whether the bytes can be used as they are: row-major and little-endian."""
        return not self.swapped and (not self.fortran or len(self.shape) < 2)


def parse_header(start: bytes, where: str) -> NpyHeader:
    """Parse the header at the beginning of `start`, which need not be longer than MAX_HEADER."""
    file = io.BytesIO(start[:MAX_HEADER])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers written by Python 2
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, element = np.lib.format.read_array_header_1_0(file, MAX_HEADER)
            elif version in ((2, 0), (3, 0)):
                shape, fortran, element = np.lib.format.read_array_header_2_0(file, MAX_HEADER)
            else:
                raise ValueError(f"version {version}, but only 1 to 3 are known")
    except Exception as error:  # NumPy's parser raises whatever its tokenizer and dtype() raise
        raise FormatError(
            f"{where} has no valid .npy header: {describe_error(error)[:120]}",
            cure="save it again with np.save",
        ) from error
    dtype = _parse_element_type(element, where)
    nonzero = [d for d in shape if d]
    if len(shape) > _MAX_AXES or any(d < 0 for d in shape) or prod(nonzero) > _MAX_ELEMENTS:
        raise FormatError(
            f"{where} declares an impossible shape: {str(shape)[:80]}", cure="save it again"
        )
    return NpyHeader(dtype, tuple(shape), fortran, not element.isnative, file.tell())


class NotNumbers(FormatError):
    """An array whose elements are not numbers; the file itself may be intact."""

    def __init__(self, where: str, elements: str, cure: str = "") -> None:
        super().__init__(f"{where} does not hold an array of numbers but {elements}", cure=cure)
        self.elements = elements
        """What it holds instead."""
        self.args = (where, elements, cure)


def _parse_element_type(element: np.dtype[np.generic], where: str) -> DType:
    if element.hasobject:
        raise NotNumbers(
            where,
            "pickled Python objects",
            "save plain arrays; pickles are never loaded",
        )
    if element.names is not None or element.subdtype is not None:
        raise NotNumbers(where, "a structured array", "save each field as an array of its own")
    if element.kind == "V":
        raise NotNumbers(
            where,
            f"elements without a type ({element.itemsize} bytes each)",
            "use safetensors; NumPy drops the types bf16 and fp8 when it saves",
        )
    try:
        return dtypes.from_numpy(element)
    except SyncpointError as error:
        raise NotNumbers(where, f"elements of type {element}", "save numbers") from error


def make_header(dtype: DType, shape: tuple[int, ...]) -> bytes:
    """Make a header for dense row-major bytes; a type that NumPy cannot save is Unsupported."""
    if dtype.numpy.isbuiltin != 1:
        cure = "keep it as a run" if dtype.packed else "convert to safetensors"
        raise Unsupported(f"NumPy files have no element type {dtype.name}", cure=cure)
    file = io.BytesIO()
    descr = dtype.numpy.newbyteorder("<").str
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def read_npy_entry(root: Path, name: str) -> tuple[ArrayEntry, StoredLayout | None]:
    """Read the header of one .npy file below `root`; None for the layout where it is plain.

    A file that is not an array of numbers is a FormatError.
    """
    path = path_inside(root, name)
    with read_errors(path, FormatError):
        handle = open_regular(path)
    try:
        size = os.fstat(handle).st_size
        header = parse_header(os.pread(handle, MAX_HEADER, 0), str(path))
    finally:
        os.close(handle)
    if header.size + header.nbytes > size:
        raise FormatError(
            f"{path} is cut off: it should end at byte {header.size + header.nbytes}, and the file"
            f" has {size} bytes",
            cure="copy it again, or record it again",
        )
    entry = ArrayEntry(
        name=name.removesuffix(SUFFIX),
        dtype=header.dtype,
        shape=header.shape,
        file=name,
        offset=header.size,
        nbytes=header.nbytes,
    )
    fortran = header.fortran and len(header.shape) > 1
    return entry, None if header.is_plain else StoredLayout(fortran, header.swapped)
