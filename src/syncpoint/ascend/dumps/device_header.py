"""The header of a dump file, for both of its forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncpoint.run.model import Role

MAX_TENSORS = 4096
"""Maximum number of tensors of one op."""
MAX_DIMS = 64


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
