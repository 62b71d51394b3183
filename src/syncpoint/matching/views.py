"""Views: how a target tensor is turned so that it can be laid over its reference.

A view is a short chain of steps, written as people would write it:
`transpose(0,3,1,2)`, `reshape(4,-1)`, `slice(1,0,768)`, `squeeze()`. It never changes a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import InputError
from syncpoint.metrics.row_major import dense

_STEP = re.compile(r"\s*([a-z]+)\(\s*((?:-?\d{1,18}\s*(?:,\s*-?\d{1,18}\s*)*)?)\)\s*")


def _transpose(array: NDArray[Any], *axes: int) -> NDArray[Any]:
    return array.transpose(axes or None)


def _reshape(array: NDArray[Any], *shape: int) -> NDArray[Any]:
    # One number broadcast to a shape, as whoever asks for the shape alone gives it, stays one.
    if array.size > 1 and any(array.strides):
        array = dense(array)
    return array.reshape(shape)


def _slice(array: NDArray[Any], axis: int, start: int, stop: int) -> NDArray[Any]:
    index: list[slice] = [slice(None)] * array.ndim
    index[axis] = slice(start, stop)
    return array[tuple(index)]


def _squeeze(array: NDArray[Any]) -> NDArray[Any]:
    return array.reshape([n for n in array.shape if n != 1])


_STEPS: dict[str, Callable[..., NDArray[Any]]] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "squeeze": _squeeze,
    "flip": lambda array, *axes: np.flip(array, axes),
}


@dataclass(frozen=True)
class Seen:
    """What a view makes of a tensor, whatever its values."""

    shape: tuple[int, ...]
    whole: bool
    """No element is left out, so that sums and extrema stay what they are."""
    ordered: bool
    """The elements keep their order, so that the bytes do."""


@dataclass(frozen=True)
class View:
    """A chain of steps; the empty chain leaves a tensor as it is."""

    text: str = ""

    def __post_init__(self) -> None:
        self.steps()

    def steps(self) -> list[tuple[str, tuple[int, ...]]]:
        """The parsed steps; an InputError where the text is not a view."""
        steps, at = [], 0
        while at < len(self.text):
            found = _STEP.match(self.text, at)
            if found is None or found[1] not in _STEPS:
                raise InputError(
                    f"a view made of {', '.join(f'{s}(...)' for s in _STEPS)}",
                    repr(self.text),
                    "write for example transpose(0,3,1,2)",
                )
            numbers = tuple(int(n) for n in found[2].split(",") if n.strip())
            steps.append((found[1], numbers))
            at = found.end()
        return steps

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array seen through this view; ValueError where it does not fit the shape."""
        for name, numbers in self.steps():
            try:
                array = _STEPS[name](array, *numbers)
            except (TypeError, IndexError) as error:
                raise ValueError(f"{name}{numbers}: {error}") from error
        return array

    def seen(self, shape: tuple[int, ...]) -> Seen:
        """What becomes of a tensor of this shape; ValueError where it does not fit."""
        found = np.broadcast_to(np.empty(()), shape)  # takes no memory
        whole = ordered = True
        for name, numbers in self.steps():
            before = found
            found = View(f"{name}({','.join(map(str, numbers))})").apply(before)
            whole = whole and found.size == before.size
            if name == "transpose":
                axes = numbers or range(before.ndim)[::-1]
                long = [axis % before.ndim for axis in axes if before.shape[axis] != 1]
                ordered = ordered and long == sorted(long)
            elif name == "flip":
                ordered = ordered and all(before.shape[axis] == 1 for axis in numbers)
        return Seen(found.shape, whole, ordered)

    def undo(self, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
        """What an array of this shape must hold to be seen as `array` through this view; None
        where the view leaves some of it out. ValueError where it does not fit."""
        seen = np.broadcast_to(np.empty(()), shape)  # takes no memory
        before = []
        for name, numbers in self.steps():
            before.append((name, numbers, seen.shape))
            seen = View(f"{name}({','.join(map(str, numbers))})").apply(seen)
        if any(name == "slice" for name, _, _ in before):
            return None
        array = array.reshape(seen.shape)
        for name, numbers, was in reversed(before):
            if name == "transpose":
                array = array.transpose(np.argsort(numbers) if numbers else None)
            elif name == "flip":
                array = np.flip(array, numbers)
            array = array.reshape(was)
        return array

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text
