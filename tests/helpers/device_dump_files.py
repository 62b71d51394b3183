"""Device dump files made by hand, byte by byte: nothing here comes from the reader under test."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """A field of protobuf; the default is left out, as writers do."""
    return varint(field << 3) + varint(value) if value else b""


def chunk(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def shape(field: int, dims: Sequence[int]) -> bytes:
    return chunk(field, chunk(1, b"".join(varint(d) for d in dims)))


def output(
    dims: Sequence[int],
    size: int,
    data_type: int = 1,
    format: int = 2,
    original: Sequence[int] | None = None,
    sub_format: int = 0,
    address: int = 0,
    more: bytes = b"",
) -> bytes:
    """The message of an output; fields by their public numbers."""
    said = number(1, data_type) + number(2, format) + shape(3, dims) + number(6, size)
    said += shape(7, dims if original is None else original)
    return chunk(3, said + number(8, sub_format) + number(9, address) + more)


def input_(
    dims: Sequence[int], size: int, data_type: int = 1, format: int = 2, more: bytes = b""
) -> bytes:
    """The message of an input, which has other numbers than an output."""
    said = number(1, data_type) + number(2, format) + shape(3, dims) + number(5, size)
    return chunk(4, said + shape(6, dims) + more)


def dump(*messages: bytes, data: bytes = b"", name: str = "", length: int | None = None) -> bytes:
    """A whole file."""
    header = chunk(1, b"2.0") + b"".join(messages) + (chunk(6, name.encode()) if name else b"")
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def one_output(array: np.ndarray, data_type: int = 1, name: str = "") -> bytes:
    return dump(output(array.shape, array.nbytes, data_type), data=array.tobytes(), name=name)


def nano_tensor(
    dims: Sequence[int],
    size: int,
    data_type: int = 0,
    format: int = 2,
    output: bool = True,
    name: bytes = b"origin",
    original: Sequence[int] | None = None,
) -> bytes:
    """A tensor in the header of the smallest devices."""
    original = dims if original is None else original
    tags = [(0, struct.pack(f"<{len(dims)}Q", *dims))]
    tags += [(1, struct.pack(f"<{len(original)}Q", *original))]
    said = struct.pack("<iii", data_type, format, 1)
    if output:
        said += struct.pack("<iii", 3, 0, 1)
        tags += [(2, name)]
    values = b"".join(struct.pack("<II", tag, len(v)) + v for tag, v in tags)
    return said + struct.pack("<QQQI", 77, 5, size, len(values)) + values


def nano(inputs: Sequence[bytes] = (), outputs: Sequence[bytes] = (), data: bytes = b"") -> bytes:
    """A whole file of the smallest devices."""
    header = b"\x5a" * 4 + struct.pack("<I", 1)
    for tag, tensors in ((4, inputs), (5, outputs)):
        if tensors:
            body = struct.pack("<I", len(tensors)) + b"".join(tensors)
            header += struct.pack("<II", tag, len(body)) + body
    return struct.pack("<Q", len(header)) + header + data
