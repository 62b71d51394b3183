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

MAX_HEADER = 4 << 20
"""Far more than a header takes; it bounds what a hostile file can make us build from it."""
_FEW = 64 << 10
"""Up to this size of a header, fields that are not known are listed."""
_FIRST = 4096
"""Bytes read at once: the whole header of most files."""


def read_device_file(path: Path) -> DeviceFile:
    """The header of the file at `path`; a file that cannot be one is a FormatError."""
    try:
        handle = open_regular(path)
    except OSError as error:
        raise FormatError(f"a readable file {path.name}", describe_error(error)) from error
    try:
        size = os.fstat(handle).st_size
        header = _header(handle, size, path.name)
    except OSError as error:
        raise FormatError(f"a readable file {path.name}", describe_error(error)) from error
    finally:
        os.close(handle)
    if not header:
        return DeviceFile(size=size)
    parse = parse_nano if is_nano(header) else _parsed
    return parse(header, size, path.name)


def _header(handle: int, size: int, where: str) -> bytes:
    """The bytes of the header; none for the file of an op that had nothing to dump."""
    if size <= 8:
        if size in (0, 8) and os.pread(handle, 8, 0) == bytes(size):
            return b""
        raise FormatError(f"a header in {where}", f"a file of {size} bytes", "dump it again")
    first = os.pread(handle, _FIRST, 0)
    length = struct.unpack("<Q", first[:8])[0]
    if length > size - 8:
        raise FormatError(
            f"a header of {length} bytes in {where}", f"a file of {size} bytes", "dump it again"
        )
    if length > MAX_HEADER:
        raise FormatError(f"a header of at most {MAX_HEADER} bytes in {where}", f"{length}")
    header = first[8 : 8 + length]
    if len(header) < length:
        header += os.pread(handle, length - len(header), 8 + len(header))
    if len(header) < length:
        raise FormatError(f"a header of {length} bytes in {where}", f"{len(header)}")
    return header


def _parsed(header: bytes, size: int, where: str) -> DeviceFile:
    from google.protobuf.message import DecodeError

    from syncpoint.ascend.dumps.device_dump_pb2 import DumpData

    data = DumpData()
    try:
        data.ParseFromString(header)
    except DecodeError as error:
        raise FormatError(
            f"a header in protobuf in {where}", "damaged bytes", "dump it again"
        ) from error
    count = len(data.input) + len(data.output)
    if count + len(data.buffer) + len(data.space) + len(data.attr) > MAX_TENSORS:
        raise FormatError(f"at most {MAX_TENSORS} entries in the header of {where}", "more")
    # Listing them takes an object each, of which a hostile header could have millions.
    unknown = _unknown if len(header) <= _FEW else _no_unknown
    at = 8 + len(header)
    blocks = []
    for role, messages in ((Role.INPUT, data.input), (Role.OUTPUT, data.output)):
        for index, message in enumerate(messages):
            blocks.append(_block(role, index, message, at, unknown))
            at += message.size
    facts: dict[str, Any] = {}
    for name, others in (("buffers", data.buffer), ("workspaces", data.space)):
        if others:
            facts[name] = [_other(o) for o in others]
            at += sum(o.size for o in others)
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
        unused=max(size - at, 0),
    )


def _block(
    role: Role, index: int, message: Any, at: int, unknown: Callable[[Any], dict[str, Any]]
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
        # One more than a shape can have is enough to see that it is none.
        shape=tuple(message.shape.dim[: MAX_DIMS + 1]),
        size=message.size,
        offset=at,
        original_shape=tuple(message.original_shape.dim[: MAX_DIMS + 1]),
        sub_format=message.sub_format,
        address=message.address,
        facts=facts,
    )


def _other(message: Any) -> dict[str, Any]:
    kind = message.buffer_type if hasattr(message, "buffer_type") else message.type
    return {"type": kind, "size": message.size}


def _unknown(message: Any) -> dict[str, Any]:
    """Fields that newer devices write, by their numbers; bytes as their count."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    fields: Iterable[Any] = UnknownFieldSet(message)
    found = {}
    for entry in fields:
        value = entry.data
        plain = value if isinstance(value, int) else f"{_length(value)} bytes"
        found[f"field {entry.field_number}"] = plain
        if len(found) >= MAX_DIMS:
            break
    return found


def _no_unknown(message: Any) -> dict[str, Any]:
    return {}


def _length(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 0


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
