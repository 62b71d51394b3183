"""Parse the header of one device dump file (protobuf or Nano form): where each tensor's bytes lie,
names of types and layouts, unknown fields, facts as attributes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syncpoint.ascend.dumps.device_types import format_name, stored_type
from syncpoint.errors import FormatError
from syncpoint.files.read_errors import read_errors
from syncpoint.files.untrusted_files import open_regular
from syncpoint.run.model import Role, Tensor
from syncpoint.run.reader import Run

MAX_TENSORS = 4096
"""Maximum number of tensors of one op."""
MAX_DIMS = 64

MAX_HEADER_BYTES = 4 << 20
"""Far more than a header needs. Bounds the memory that a hostile file can take."""
_MAX_LISTED_HEADER_BYTES = 64 << 10
"""Unknown fields are listed for headers up to this size."""
_FIRST_READ_BYTES = 4096
"""Bytes of the first read: the whole header of most files."""

MAGIC = b"\x5a\x5a\x5a\x5a"
UNKNOWN = -1
"""The data type of a tensor whose number is not known."""
_TYPES = {0: 1, 1: 2, 2: 3, 3: 7, 4: 4, 6: 5, 7: 6, 8: 9, 9: 8, 10: 10, 11: 12, 12: 11} | {
    **{k: k for k in range(13, 28)},
    **{28: 0, 29: 28, 30: 29, 31: 30, 32: 31},
}
"""From the numbers that these devices have for data types to those of all others."""
_INPUTS, _OUTPUTS = 4, 5
_SHAPE, _ORIGINAL_SHAPE, _ORIGINAL_NAME = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Block:
    """A tensor as the header describes it."""

    role: Role
    index: int
    data_type: int
    format: int
    shape: tuple[int, ...]
    size: int
    """Bytes in the file."""
    offset: int
    """Position of its first byte in the file."""
    original_shape: tuple[int, ...] = ()
    sub_format: int = 0
    address: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    """Everything else about the tensor; JSON values."""


@dataclass(frozen=True, kw_only=True)
class DeviceFile:
    """The header of a dump file."""

    size: int
    """Bytes of the whole file."""
    op_name: str = ""
    blocks: tuple[Block, ...] = ()
    """Inputs before outputs, as they lie in the file."""
    attr: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """Everything else about the op; JSON values."""
    unused: int = 0
    """Bytes of the file behind the last block."""


def read_device_file(path: Path) -> DeviceFile:
    """Read the header of a dump file; any other file is a FormatError."""
    with read_errors(path.name, FormatError):
        handle = open_regular(path)
        try:
            size = os.fstat(handle).st_size
            header = _read_header(handle, size, path.name)
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
            f"{where} has {size} bytes, which is too short for a header",
            cure="copy it again, or dump it again",
        )
    first = os.pread(handle, _FIRST_READ_BYTES, 0)
    length = struct.unpack("<Q", first[:8])[0]
    if length > size - 8:
        raise FormatError(
            f"{where} is cut off: it has {size} bytes, but its header alone needs {length}",
            cure="copy it again, or dump it again",
        )
    if length > MAX_HEADER_BYTES:
        raise FormatError(
            f"the header of {where} has {length} bytes, over the limit of {MAX_HEADER_BYTES}",
            cure="copy it again, or dump it again",
        )
    header = first[8 : 8 + length]
    if len(header) < length:
        header += os.pread(handle, length - len(header), 8 + len(header))
    if len(header) < length:
        raise FormatError(
            f"the header of {where} ends after {len(header)} of {length} bytes",
            cure="copy it again, or dump it again",
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
            f"the header of {where} is damaged: it is not valid protobuf",
            cure="copy it again, or dump it again",
        ) from error
    count = len(data.input) + len(data.output)
    if count + len(data.buffer) + len(data.space) + len(data.attr) > MAX_TENSORS:
        raise FormatError(
            f"the header of {where} has more than {MAX_TENSORS} entries",
            cure="copy it again, or dump it again",
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


def tensor_facts(run: Run, tensor: Tensor) -> dict[str, Any]:
    """Return the facts of a dump about a tensor."""
    op = run.op(tensor.key.op)
    attributes = op.attributes if op is not None else {}
    # An op that runs for several tokens has facts for each execution.
    attributes = attributes.get("parts", {}).get(str(tensor.key.part), attributes)
    tensors = attributes.get(f"{tensor.key.role}s", ())
    return dict(tensors[tensor.key.index]) if tensor.key.index < len(tensors) else {}


def block_facts(block: Block) -> dict[str, Any]:
    """Return the header's description of a tensor, as an attribute of its op."""
    return {
        "format": format_name(block.format),
        "shape": list(block.shape),
        "original_shape": list(block.original_shape),
        "sub_format": block.sub_format,
        "address": block.address,
        "data_type": block.data_type,
        "stored_type": stored_type(block.data_type).name,
        "size": block.size,
    } | block.facts


def is_nano(header: bytes) -> bool:
    """Whether a header is of this form."""
    return header[:4] == MAGIC


def parse_nano(header: bytes, size: int, where: str) -> DeviceFile:
    """What the header says; damage is a FormatError. Unlike other dumps, these end with the last
    tensor."""
    reading = _NanoReader(header, where)
    reading.take("<4s")
    (version,) = reading.take("<I")
    blocks: list[Block] = []
    position = 8 + len(header)
    for tag, role in ((_INPUTS, Role.INPUT), (_OUTPUTS, Role.OUTPUT)):
        end = reading.open(tag)
        if end is None:
            continue
        (count,) = reading.take("<I")
        if count > MAX_TENSORS:
            raise FormatError(
                f"the header of {where} lists {count} tensors, over the limit of {MAX_TENSORS}",
                cure="copy it again, or dump it again",
            )
        for index in range(count):
            block = reading.tensor(role, index, position)
            blocks.append(block)
            position += block.size
        if reading.position != end:
            raise reading.damage(f"a list of {role}s that ends at {end}")
    if reading.position != len(header) or position != size:
        raise FormatError(
            f"{where} has {size} bytes, but its header describes {position}",
            cure="copy it again, or dump it again",
        )
    return DeviceFile(
        size=size,
        op_name="",
        blocks=tuple(blocks),
        attr={},
        facts={"version": version, "form": "nano"},
    )


class _NanoReader:
    """Takes a header apart from front to end."""

    def __init__(self, header: bytes, where: str) -> None:
        self._header = header
        self._where = where
        self.position = 0

    def damage(self, expected: str) -> FormatError:
        """The error for bytes that are not what they should be."""
        return FormatError(
            f"{self._where} is damaged: its header should have {expected} at byte {self.position}",
            cure="copy it again, or dump it again",
        )

    def take(self, form: str) -> tuple[Any, ...]:
        """The next values of this form."""
        try:
            values = struct.unpack_from(form, self._header, self.position)
        except struct.error as error:
            raise self.damage("more fields") from error
        self.position += struct.calcsize(form)
        return values

    def open(self, tag: int) -> int | None:
        """Where the value behind a tag ends; None, and nothing taken, where another tag comes."""
        if self.position + 8 > len(self._header):
            return None
        actual_tag, length = struct.unpack_from("<II", self._header, self.position)
        if actual_tag != tag:
            return None
        if self.position + 8 + length > len(self._header):
            raise self.damage(f"{length} bytes behind tag {tag}")
        self.position += 8
        return self.position + int(length)

    def bytes(self, tag: int) -> bytes | None:
        """The value behind a tag, if that tag comes next."""
        end = self.open(tag)
        if end is None:
            return None
        start, self.position = self.position, end
        return self._header[start:end]

    def dims(self, tag: int) -> tuple[int, ...] | None:
        """A shape, if its tag comes next."""
        value = self.bytes(tag)
        if value is None:
            return None
        if len(value) % 8 or len(value) > MAX_DIMS * 8:
            raise self.damage("a shape")
        return struct.unpack(f"<{len(value) // 8}Q", value)

    def tensor(self, role: Role, index: int, offset: int) -> Block:
        """One tensor, whose data lie at `offset` of the file."""
        kind, form, address_type = self.take("<iii")
        facts: dict[str, Any] = {"address_type": address_type}
        origin = self.take("<iii") if role is Role.OUTPUT else ()
        address, device_offset, size, length = self.take("<QQQI")
        start = self.position
        shape = original = None
        tags = 0
        if length:
            shape, original = self.dims(_SHAPE), self.dims(_ORIGINAL_SHAPE)
            name = self.bytes(_ORIGINAL_NAME) if origin else None
            tags = sum(value is not None for value in (shape, original, name))
            if origin:
                text = (name or b"").decode("utf-8", "backslashreplace").rstrip("\0")
                facts["origin"] = {
                    "name": text,
                    "output_index": origin[0],
                    "data_type": _TYPES.get(origin[1], UNKNOWN),
                    "format": origin[2],
                }
        if length not in (self.position - start, tags):
            raise self.damage(f"{length} bytes of shapes")
        if device_offset:
            facts["offset"] = device_offset
        if kind not in _TYPES:
            facts["nano_data_type"] = kind
        return Block(
            role=role,
            index=index,
            data_type=_TYPES.get(kind, UNKNOWN),
            format=form,
            shape=shape or (),
            size=size,
            offset=offset,
            original_shape=original or (),
            address=address,
            facts=facts,
        )
