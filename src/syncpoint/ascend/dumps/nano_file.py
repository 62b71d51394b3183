"""The header of dump files of the smallest Ascend devices: nested tags, lengths and values.

    magic     4 bytes of 0x5A
    version   u32
    tag 4     inputs:  u32 count, then each tensor
    tag 5     outputs: u32 count, then each tensor

A tensor is i32 data type, format and kind of address (outputs: also i32 index, data type and format
of the original), u64 address, offset and size, u32 length of what follows, and then, each with its
tag and its length in bytes: 0 shape, 1 original shape, 2 original name. All little-endian.
"""

from __future__ import annotations

import struct
from typing import Any

from syncpoint.ascend.dumps.device_header import MAX_DIMS, MAX_TENSORS, Block, DeviceFile
from syncpoint.errors import FormatError
from syncpoint.run.model import Role

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
                f"the header of {where} has {count} tensors, and at most {MAX_TENSORS} are read",
                cure="dump it again",
            )
        for index in range(count):
            block = reading.tensor(role, index, position)
            blocks.append(block)
            position += block.size
        if reading.position != end:
            raise reading.damage(f"a list of {role}s that ends at {end}")
    if reading.position != len(header) or position != size:
        raise FormatError(
            f"{where} has {size} bytes, and its header describes {position}", cure="dump it again"
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
            f"{self._where} is damaged: byte {self.position} does not begin {expected}",
            cure="dump it again",
        )

    def take(self, form: str) -> tuple[Any, ...]:
        """The next values of this form."""
        try:
            values = struct.unpack_from(form, self._header, self.position)
        except struct.error as error:
            raise self.damage("a whole header") from error
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
