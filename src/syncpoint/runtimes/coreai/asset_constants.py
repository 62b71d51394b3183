"""The constants of a function: the runtime shows them once, when the function is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syncpoint.run.dtypes import Kind, from_numpy
from syncpoint.run.model import OpKey
from syncpoint.runtimes.coreai.arrays import Seen
from syncpoint.runtimes.coreai.kernel_to_op import Tie
from syncpoint.runtimes.protocol import Array

_FEW = 16
"""Integers that fit into the attributes of an op: axes, sizes, shapes."""


_ELEMENTS = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"si{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"ui{bits}" for bits in (4, 8, 16, 32, 64)},
    "bfloat16": "bf16",
}
"""Element types as programs write them."""


Form = tuple[tuple[int, ...], Any]


@dataclass(frozen=True)
class Held:
    """What lies or lay at a place in memory."""

    form: Form
    digest: int
    tie: Tie


@dataclass
class Constants:
    """The constants of a function: shown when it is loaded, once."""

    values: dict[int, Array] = field(default_factory=dict)
    held: dict[int, list[Held]] = field(default_factory=dict)

    def add(self, kernel: int, value: Seen) -> None:
        """Remember one; its memory lives as long as the function."""
        self.values[kernel] = value.array
        kind = value.array.dtype
        element = _ELEMENTS.get(kind.name) or ("i1" if kind.kind == "b" else "")
        tie = Tie(constant=kernel, form=(value.array.shape, element))
        made = Held(value.form, value.digest, tie)
        self.held.setdefault(value.address, []).append(made)

    def attribute(self, kernel: int) -> Any:
        """The few integers of a constant as JSON; None for what is a parameter."""
        array = self.values[kernel]
        plain = from_numpy(array.dtype).kind in (Kind.INT, Kind.BOOL)
        return array.tolist() if plain and array.size <= _FEW else None


def constant_key(kernel: int) -> OpKey:
    """What a constant is called: assets have no names for them."""
    return OpKey(f"constant_{kernel}")
