"""Arrays in pieces of bounded length, so that no large temporary copies are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def pieces(array: Array, length: int) -> Iterator[Array]:
    """The elements of an array in order, `length` of them at a time."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, length):
        yield flat[start : start + length]


def paired_pieces(
    first: Array, second: Array, length: int, dtype: Any = None
) -> Iterator[tuple[Array, Array]]:
    """The elements of two arrays of one size in order, as `dtype` where that is given."""
    for x, y in zip(pieces(first, length), pieces(second, length), strict=True):
        yield (x, y) if dtype is None else (x.astype(dtype), y.astype(dtype))
