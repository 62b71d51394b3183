"""Values of .npy files as they lie on disk: also column-major, big-endian, or deflated."""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.elements import Bytes, from_bytes
from syncpoint.run.files import map_bytes, one_line
from syncpoint.run.model import Tensor, TensorKey
from syncpoint.run.store import FileStore

Array = NDArray[Any]

_KEPT = 2
"""Inflated arrays that are kept, so that reading one window by window inflates it once."""
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


@dataclass(frozen=True)
class Lay:
    """How an array lies on disk, where that is not dense, row-major and little-endian."""

    fortran: bool = False
    swapped: bool = False
    deflated: Deflated | None = None


class ArrayStore(FileStore):
    """Arrays in files of one folder, the odd ones put in order when they are read."""

    def __init__(self, root: Path, odd: dict[TensorKey, Lay]) -> None:
        super().__init__(root)
        self._odd = odd
        self._inflated: OrderedDict[TensorKey, Array] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, tensor: Tensor) -> Array:
        """All elements, row-major."""
        lay = self._odd.get(tensor.key)
        if lay is None:
            return super().read(tensor)
        if lay.deflated is None:
            return _ordered(self.raw(tensor, 0, tensor.nbytes), tensor, lay)
        with self._lock:
            array = self._inflated.get(tensor.key)
            if array is None:
                array = _ordered(self._inflate(tensor, lay.deflated), tensor, lay)
                self._inflated[tensor.key] = array
                while len(self._inflated) > _KEPT:
                    self._inflated.popitem(last=False)
            return array

    def window(self, tensor: Tensor, start: int, stop: int) -> Array:
        """Some elements of the row-major order."""
        lay = self._odd.get(tensor.key)
        if lay is None:
            return super().window(tensor, start, stop)
        if lay.deflated is None:
            raw = self.raw(tensor, 0, tensor.nbytes)
            stored = _stored(raw, tensor, lay)
            window = _native(stored.flat[start:stop])
        else:
            window = self.read(tensor).reshape(-1)[start:stop]
        window.flags.writeable = False
        return window

    def place(self, tensor: Tensor) -> Path | None:
        """The file of an array that lies as others read it."""
        return None if tensor.key in self._odd else self.path(tensor)

    def _inflate(self, tensor: Tensor, member: Deflated) -> Bytes:
        """The member's data; more or less than it claims, or other bits, is a FormatError."""
        path = self.path(tensor)
        packed = map_bytes(path, member.offset, member.nbytes)
        whole = np.empty(member.inflated, np.uint8)
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        done, taken, rest = 0, 0, b""
        try:
            while done < member.inflated and not engine.eof:
                if not rest:
                    rest = packed[taken : taken + _STEP].tobytes()
                    taken += len(rest)
                    if not rest:
                        break
                piece = engine.decompress(rest, min(_STEP, member.inflated - done))
                rest = engine.unconsumed_tail
                whole[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
        except zlib.error as error:
            raise FormatError(f"deflated bytes of {tensor.key}", one_line(error)) from error
        if done != member.inflated or zlib.crc32(whole.data) != member.crc:
            raise FormatError(
                f"{member.inflated} sound bytes of {tensor.key} in {path}",
                f"{done} with another checksum",
            )
        return whole[member.header :]


def _stored(raw: Bytes, tensor: Tensor, lay: Lay) -> Array:
    """The array in its shape and the byte order of the file."""
    dtype = DTYPES[tensor.dtype].numpy
    if lay.swapped:
        dtype = dtype.newbyteorder(">")
    array = raw.view(dtype)
    return array.reshape(tensor.shape, order="F" if lay.fortran else "C")


def _native(array: Array) -> Array:
    native = array.dtype.newbyteorder("=")
    return np.array(array, dtype=native, order="C", copy=True)


def _ordered(raw: Bytes, tensor: Tensor, lay: Lay) -> Array:
    if not lay.swapped and not lay.fortran:
        return from_bytes(raw, DTYPES[tensor.dtype], tensor.shape)
    array = _native(_stored(raw, tensor, lay))
    array.flags.writeable = False
    return array
