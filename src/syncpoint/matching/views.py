"""The views themselves (`View`): transpose, reshape, slice, squeeze, flip; parse, apply, undo, and
their effect on a shape.

A view is a short chain of steps, written as text: `transpose(0,3,1,2)`, `reshape(4,-1)`,
`slice(1,0,768)`, `squeeze()`. It never changes a value.
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
    # One number broadcast to a shape, as `View.effect_on` uses it, needs no copy.
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
class ViewEffect:
    """What a view does to a tensor of a given shape."""

    shape: tuple[int, ...]
    keeps_all: bool
    """No element is removed, so sums and extrema do not change."""
    keeps_order: bool
    """The order of elements is kept, and so is the order of bytes."""


@dataclass(frozen=True)
class View:
    """A chain of steps; the empty chain does not change a tensor."""

    text: str = ""

    def __post_init__(self) -> None:
        self.steps()

    def steps(self) -> list[tuple[str, tuple[int, ...]]]:
        """Parse the steps; InputError if the text is not a view."""
        steps, position = [], 0
        while position < len(self.text):
            step = _STEP.match(self.text, position)
            if step is None or step[1] not in _STEPS:
                raise InputError(
                    f"{self.text!r} is not a valid view: a view is a chain of"
                    f" {', '.join(f'{name}(...)' for name in _STEPS)}",
                    cure="write it like transpose(0,3,1,2)",
                )
            numbers = tuple(int(n) for n in step[2].split(",") if n.strip())
            steps.append((step[1], numbers))
            position = step.end()
        return steps

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """Apply the view to an array; ValueError if it does not fit the shape."""
        for name, numbers in self.steps():
            try:
                array = _STEPS[name](array, *numbers)
            except (TypeError, IndexError) as error:
                raise ValueError(f"{name}{numbers}: {error}") from error
        return array

    def effect_on(self, shape: tuple[int, ...]) -> ViewEffect:
        """The effect of the view on a tensor of this shape; ValueError if it does not fit."""
        array = np.broadcast_to(np.empty(()), shape)  # takes no memory
        keeps_all = keeps_order = True
        for name, numbers in self.steps():
            before = array
            array = View(f"{name}({','.join(map(str, numbers))})").apply(before)
            keeps_all = keeps_all and array.size == before.size
            if name == "transpose":
                axes = numbers or range(before.ndim)[::-1]
                long = [axis % before.ndim for axis in axes if before.shape[axis] != 1]
                keeps_order = keeps_order and long == sorted(long)
            elif name == "flip":
                keeps_order = keeps_order and all(before.shape[axis] == 1 for axis in numbers)
        return ViewEffect(array.shape, keeps_all, keeps_order)

    def undo(self, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any] | None:
        """Invert the view: the array of this shape that the view converts to `array`; None if the
        view removes elements. ValueError if it does not fit."""
        viewed = np.broadcast_to(np.empty(()), shape)  # takes no memory
        applied = []
        for name, numbers in self.steps():
            applied.append((name, numbers, viewed.shape))
            viewed = View(f"{name}({','.join(map(str, numbers))})").apply(viewed)
        if any(name == "slice" for name, _, _ in applied):
            return None
        array = array.reshape(viewed.shape)
        for name, numbers, shape_before in reversed(applied):
            if name == "transpose":
                array = array.transpose(np.argsort(numbers) if numbers else None)
            elif name == "flip":
                array = np.flip(array, numbers)
            array = array.reshape(shape_before)
        return array

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text
