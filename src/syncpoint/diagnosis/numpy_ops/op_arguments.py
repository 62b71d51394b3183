"""An op as it was recorded -> a function and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.run.model import Op

Array = NDArray[Any]


class Unread(Exception):
    """The op is not one we know, or not in this form."""


@dataclass(frozen=True)
class Bound:
    """A function with its arguments: the op, and with other settings its variants."""

    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    """What it works on: arrays, numbers, or None for what is left out."""
    settings: Mapping[str, Any]

    def run(self, **changed: Any) -> tuple[Array, ...]:
        """What it gives, with other settings where some are named."""
        with np.errstate(all="ignore"):
            found = self.function(*self.arrays, **{**self.settings, **changed})
        return tuple(found) if isinstance(found, tuple | list) else (np.asarray(found),)

    def on(self, *arrays: Any) -> Bound:
        """The same on other arrays; those that are not given stay."""
        return replace(self, arrays=(*arrays, *self.arrays[len(arrays) :]))


@dataclass(frozen=True)
class Said:
    """What was recorded of an op, with its arguments."""

    op: Op
    arguments: Sequence[Array | None]

    @property
    def torch(self) -> bool:
        """Whether the op is one of torch's."""
        return self.op.type.startswith("aten.")

    @property
    def name(self) -> str:
        """Its bare name: `conv2d` of torch, `Conv` of ONNX."""
        if self.torch:
            return self.op.type.split(".")[1]
        return self.op.type.rpartition("::")[2].rpartition(".")[2]

    @property
    def overload(self) -> str:
        """What torch calls this form of the op."""
        return self.op.type.split(".")[2] if self.op.type.count(".") > 1 else ""

    def get(self, *names: str, default: Any = None) -> Any:
        """An attribute under the first of its names that is there."""
        for name in names:
            if self.op.attributes.get(name) is not None:
                return self.op.attributes[name]
        return default

    def all(self) -> list[Array]:
        """The tensors, of which none may be missing."""
        return [self.need(at) for at in range(len(self.arguments))]

    def need(self, at: int) -> Array:
        """A tensor that must be there."""
        found = self.arguments[at] if at < len(self.arguments) else None
        if found is None:
            raise Unread(f"{self.op.key} reads a value that is not known")
        return found

    def take(self, *names: str) -> list[Any]:
        """The arguments of these names in order: a number among the attributes, else the next
        tensor, else None."""
        tensors = iter(self.all())
        attributes = {n: _number(v) for n, v in self.op.attributes.items() if n in names}
        return [
            attributes[name]
            if isinstance(attributes.get(name), int | float)
            else next(tensors, None)
            for name in names
        ]


def _number(said: Any) -> Any:
    """Attributes are JSON, where a number that is not finite is a word."""
    return float(said) if said in ("inf", "-inf", "nan") else said


Reader = Callable[[Said], Iterable[Bound]]
"""The ways to read an op; more than one where what was left out is not recorded."""


def named(names: str, reader: Reader) -> dict[str, Reader]:
    """A reader under all its names, which are in lower case."""
    return dict.fromkeys(names.split(), reader)


def pairs(value: Any, count: int, default: int) -> list[int]:
    """A number an axis: torch says one for all, ONNX nothing for the usual."""
    if value is None or value == []:
        return [default] * count
    if isinstance(value, int | float):
        return [int(value)] * count
    found = [int(v) for v in value]
    return found * count if len(found) == 1 else found


def axes(value: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; all where none is named."""
    if value is None or (isinstance(value, list | tuple) and not len(value)):
        return tuple(range(rank))
    if isinstance(value, int | float):
        value = [value]
    return tuple(int(v) % rank if rank else 0 for v in np.ravel(np.asarray(value)))
