"""Iterate over one or two arrays in flat pieces of limited length and in a common dtype, to avoid
large temporary copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


def iterate_pieces(array: Array, length: int) -> Iterator[Array]:
    """The elements of an array in order, `length` of them at a time."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, length):
        yield flat[start : start + length]


def iterate_pair_pieces(
    first: Array, second: Array, length: int, dtype: Any = None
) -> Iterator[tuple[Array, Array]]:
    """The elements of two arrays of one size in order, as `dtype` where that is given."""
    for x, y in zip(iterate_pieces(first, length), iterate_pieces(second, length), strict=True):
        yield (x, y) if dtype is None else (x.astype(dtype), y.astype(dtype))
