"""Collect the constants of a function, which the runtime shows once when the function is loaded;
their keys, since assets have no names for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import OpKey
from syncpoint.runtimes.coreai.arrays import RuntimeArray
from syncpoint.runtimes.coreai.kernel_to_op import KernelInput
from syncpoint.runtimes.protocol import Array

_MAX_ATTRIBUTE_INTEGERS = 16
"""Largest constant of integers that is an attribute of its op: axes, sizes, shapes."""
_PROGRAM_TYPES = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"si{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (4, 8, 16, 32, 64)},
    "bfloat16": "bf16",
}
"""NumPy's name of an element type -> its name in programs."""
Form = tuple[tuple[int, ...], Any]
"""Shape and element type."""


@dataclass(frozen=True)
class MemoryContent:
    """A value that is or was at an address in memory."""

    form: Form
    digest: int
    source: KernelInput


@dataclass
class AssetConstants:
    """The constants of a function, by the id of the kernel that allocates them."""

    values: dict[int, Array] = field(default_factory=dict)
    contents: dict[int, list[MemoryContent]] = field(default_factory=dict)
    """By address in memory."""

    def add(self, kernel: int, value: RuntimeArray) -> None:
        """Add a constant; its memory lives as long as the function."""
        self.values[kernel] = value.array
        dtype = value.array.dtype
        element = _PROGRAM_TYPES.get(dtype.name) or ("i1" if dtype.kind == "b" else "")
        source = KernelInput(constant=kernel, form=(value.array.shape, element))
        content = MemoryContent(value.form, value.digest, source)
        self.contents.setdefault(value.address, []).append(content)

    def attribute(self, kernel: int) -> Any:
        """Return a constant of few integers as JSON; None for a constant that is a parameter."""
        array = self.values[kernel]
        is_integer = from_numpy(array.dtype).kind in (Kind.INT, Kind.BOOL)
        return array.tolist() if is_integer and array.size <= _MAX_ATTRIBUTE_INTEGERS else None


def constant_key(kernel: int) -> OpKey:
    """Return the key of a constant: assets have no names for them."""
    return OpKey(f"constant_{kernel}")
