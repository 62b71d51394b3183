"""One dump file of a device: its length-prefixed header, and where each tensor's bytes lie.

    length of the header   8 bytes, little-endian
    header                 protobuf, `device_dump.proto`; of small devices, see `nano_file.py`
    data                   of the inputs, the outputs, the buffers and the workspaces, in this order

Only the header is read. What it says is held against the size of the file before anything else.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.device_header import MAX_DIMS, MAX_TENSORS, Block, DeviceFile
from syncpoint.ascend.dumps.nano_file import is_nano, parse_nano
from syncpoint.errors import FormatError, describe_error
from syncpoint.files.untrusted_files import open_regular
from syncpoint.run.model import Role

MAX_HEADER_BYTES = 4 << 20
"""Far more than a header needs. Bounds the memory that a hostile file can take."""
_MAX_LISTED_HEADER_BYTES = 64 << 10
"""Unknown fields are listed for headers up to this size."""
_FIRST_READ_BYTES = 4096
"""Bytes of the first read: the whole header of most files."""


def read_device_file(path: Path) -> DeviceFile:
    """Read the header of a dump file; any other file is a FormatError."""
    try:
        handle = open_regular(path)
    except OSError as error:
        raise FormatError(
            f"cannot read {path.name}: {describe_error(error)}", cure="check the file"
        ) from error
    try:
        size = os.fstat(handle).st_size
        header = _read_header(handle, size, path.name)
    except OSError as error:
        raise FormatError(
            f"cannot read {path.name}: {describe_error(error)}", cure="check the file"
        ) from error
    finally:
        os.close(handle)
    if not header:
        return DeviceFile(size=size)
    parse = parse_nano if is_nano(header) else _parse_protobuf
    return parse(header, size, path.name)


def _read_header(handle: int, size: int, where: str) -> bytes:
    """Read the bytes of the header; none for an op that had nothing to dump."""
    if size <= 8:
        if size in (0, 8) and os.pread(handle, 8, 0) == bytes(size):
            return b""
        raise FormatError(
            f"{where} has {size} bytes, which is too short for a header", cure="dump it again"
        )
    first = os.pread(handle, _FIRST_READ_BYTES, 0)
    length = struct.unpack("<Q", first[:8])[0]
    if length > size - 8:
        raise FormatError(
            f"{where} has {size} bytes, and its header says {length}", cure="dump it again"
        )
    if length > MAX_HEADER_BYTES:
        raise FormatError(
            f"the header of {where} has {length} bytes, and at most {MAX_HEADER_BYTES} are read",
            cure="dump it again",
        )
    header = first[8 : 8 + length]
    if len(header) < length:
        header += os.pread(handle, length - len(header), 8 + len(header))
    if len(header) < length:
        raise FormatError(
            f"the header of {where} ends after {len(header)} of {length} bytes",
            cure="dump it again",
        )
    return header


def _parse_protobuf(header: bytes, size: int, where: str) -> DeviceFile:
    from google.protobuf.message import DecodeError

    from syncpoint.ascend.dumps.device_dump_pb2 import DumpData

    data = DumpData()
    try:
        data.ParseFromString(header)
    except DecodeError as error:
        raise FormatError(
            f"the header of {where} is damaged: it is not valid protobuf", cure="dump it again"
        ) from error
    count = len(data.input) + len(data.output)
    if count + len(data.buffer) + len(data.space) + len(data.attr) > MAX_TENSORS:
        raise FormatError(
            f"the header of {where} has more than {MAX_TENSORS} entries", cure="dump it again"
        )
    # Each listed field takes an object, and a hostile header could have millions.
    unknown = _unknown if len(header) <= _MAX_LISTED_HEADER_BYTES else _no_unknown
    offset = 8 + len(header)
    blocks = []
    for role, messages in ((Role.INPUT, data.input), (Role.OUTPUT, data.output)):
        for index, message in enumerate(messages):
            blocks.append(_block(role, index, message, offset, unknown))
            offset += message.size
    facts: dict[str, Any] = {}
    for name, others in (("buffers", data.buffer), ("workspaces", data.space)):
        if others:
            facts[name] = [_other(o) for o in others]
            offset += sum(o.size for o in others)
    for name, value in (("version", data.version), ("message", data.dfx_message)):
        if value:
            facts[name] = _text(value)
    if data.dump_time:
        facts["dump_time"] = data.dump_time
    facts |= unknown(data)
    attr = {_text(a.name): _text(a.value) for a in data.attr}
    name = _text(data.op_name)
    return DeviceFile(
        size=size,
        op_name=name,
        blocks=tuple(blocks),
        attr=attr,
        facts=facts,
        unused=max(size - offset, 0),
    )


def _block(
    role: Role, index: int, message: Any, offset: int, unknown: Callable[[Any], dict[str, Any]]
) -> Block:
    facts: dict[str, Any] = {}
    if message.data:
        facts["data_in_header"] = len(message.data)
    if message.arg_index:
        facts["arg_index"] = message.arg_index
    if role is Role.INPUT:
        facts |= {n: v for n in ("offset", "input_type") if (v := getattr(message, n))}
    else:
        if message.HasField("original_op"):
            origin = message.original_op
            facts["origin"] = {
                "name": _text(origin.name),
                "output_index": origin.output_index,
                "data_type": origin.data_type,
                "format": origin.format,
            }
        if message.dim_range:
            ranges = message.dim_range[:MAX_DIMS]
            facts["dim_range"] = [[r.dim_start, r.dim_end] for r in ranges]
    facts |= unknown(message)
    return Block(
        role=role,
        index=index,
        data_type=message.data_type,
        format=message.format,
        # One more than the maximum is enough to see that the shape is invalid.
        shape=tuple(message.shape.dim[: MAX_DIMS + 1]),
        size=message.size,
        offset=offset,
        original_shape=tuple(message.original_shape.dim[: MAX_DIMS + 1]),
        sub_format=message.sub_format,
        address=message.address,
        facts=facts,
    )


def _other(message: Any) -> dict[str, Any]:
    kind = message.buffer_type if hasattr(message, "buffer_type") else message.type
    return {"type": kind, "size": message.size}


def _unknown(message: Any) -> dict[str, Any]:
    """List the fields that newer devices write, by number; for bytes only their count."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    fields: Iterable[Any] = UnknownFieldSet(message)
    unknown_fields = {}
    for entry in fields:
        value = entry.data
        plain = value if isinstance(value, int) else f"{_length(value)} bytes"
        unknown_fields[f"field {entry.field_number}"] = plain
        if len(unknown_fields) >= MAX_DIMS:
            break
    return unknown_fields


def _no_unknown(message: Any) -> dict[str, Any]:
    return {}


def _length(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 0


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
