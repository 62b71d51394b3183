"""A recorded op with its arguments and attributes (read, default, number per axis), the function
that computes it, and registration by op name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.run.model import Op

Array = NDArray[Any]


class UnknownForm(Exception):
    """The op is unknown, or its form is not supported."""


@dataclass(frozen=True)
class Bound:
    """A function with its arguments: the op, and with other settings its variants."""

    function: Callable[..., Any]
    arrays: tuple[Any, ...]
    """Positional arguments: arrays, numbers, or None for one that is left out."""
    settings: Mapping[str, Any]

    def run(self, **changed: Any) -> tuple[Array, ...]:
        """Compute the outputs; `changed` replaces settings."""
        with np.errstate(all="ignore"):
            outputs = self.function(*self.arrays, **{**self.settings, **changed})
        return tuple(outputs) if isinstance(outputs, tuple | list) else (np.asarray(outputs),)

    def on(self, *arrays: Any) -> Bound:
        """Replace the first arrays; the others stay."""
        return replace(self, arrays=(*arrays, *self.arrays[len(arrays) :]))


@dataclass(frozen=True)
class RecordedOp:
    """An op with the tensors that it read."""

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
        """Name of the overload of a torch op."""
        return self.op.type.split(".")[2] if self.op.type.count(".") > 1 else ""

    def get(self, *names: str, default: Any = None) -> Any:
        """Return the first of these attributes that the op has."""
        for name in names:
            if self.op.attributes.get(name) is not None:
                return self.op.attributes[name]
        return default

    def all(self) -> list[Array]:
        """Return all tensors; none may be missing."""
        return [self.need(position) for position in range(len(self.arguments))]

    def need(self, position: int) -> Array:
        """Return one tensor, which must be known."""
        tensor = self.arguments[position] if position < len(self.arguments) else None
        if tensor is None:
            raise UnknownForm(f"{self.op.key} reads a tensor that was not recorded")
        return tensor

    def take(self, *names: str) -> list[Any]:
        """Return the arguments of these names in order.

        Each is a number among the attributes, else the next tensor, else None.
        """
        tensors = iter(self.all())
        attributes = {n: _number(v) for n, v in self.op.attributes.items() if n in names}
        return [
            attributes[name]
            if isinstance(attributes.get(name), int | float)
            else next(tensors, None)
            for name in names
        ]


def _number(value: Any) -> Any:
    """Convert a non-finite number, which JSON holds as a text."""
    return float(value) if value in ("inf", "-inf", "nan") else value


Reader = Callable[[RecordedOp], Iterable[Bound]]
"""Lists the ways to read an op: several where the recording does not say which argument is
left out."""


def named(names: str, reader: Reader) -> dict[str, Reader]:
    """Register a reader under several names, which are in lower case."""
    return dict.fromkeys(names.split(), reader)


def pairs(value: Any, count: int, default: int) -> list[int]:
    """Expand a setting to one number for each axis.

    Torch gives one number for all axes, and ONNX none for the default.
    """
    if value is None or value == []:
        return [default] * count
    if isinstance(value, int | float):
        return [int(value)] * count
    numbers = [int(v) for v in value]
    return numbers * count if len(numbers) == 1 else numbers


def axes(value: Any, rank: int) -> tuple[int, ...]:
    """Return axes counted from the front; all axes if none is named."""
    if value is None or (isinstance(value, list | tuple) and not len(value)):
        return tuple(range(rank))
    if isinstance(value, int | float):
        value = [value]
    return tuple(int(v) % rank if rank else 0 for v in np.ravel(np.asarray(value)))
