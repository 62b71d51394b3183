"""The outputs of a kernel in the order of its results, which callbacks do not keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncpoint.runtimes.coreai.arrays import Seen, of_array
from syncpoint.runtimes.coreai.kernel_names import short
from syncpoint.runtimes.protocol import Array


def order_outputs(name: str, made: list[Seen], read: Sequence[Seen]) -> list[Seen] | None:
    """The outputs of a kernel in the order of its results, which callbacks do not keep; None
    where nothing tells them apart."""
    if len(made) < 2:
        return made
    if short(name) != "split":
        return None
    return _pieces(made, read)


def _pieces(made: Sequence[Seen], read: Sequence[Seen]) -> list[Seen] | None:
    """The outputs of a split, found again in what was split: the bytes of each piece tell."""
    whole = [v.array for v in read if v.array.size == sum(m.array.size for m in made)]
    axes = [int(v.array) for v in read if v.array.ndim == 0 and v.array.dtype.kind in "iu"]
    sizes = [v.array for v in read if v.array.shape == (len(made),) and v.array.dtype.kind in "iu"]
    for array, axis, size in ((w, a, s) for w in whole for a in axes for s in sizes):
        if not array.ndim or not -array.ndim <= axis < array.ndim:
            continue
        if int(size.sum()) != array.shape[axis]:
            continue
        split = np.split(array, np.cumsum(size.astype(np.int64))[:-1], axis)
        ordered = _in_order_of(split, made)
        if ordered is not None:
            return ordered
    return None


def _in_order_of(pieces: Sequence[Array], made: Sequence[Seen]) -> list[Seen] | None:
    """The values in the order of the pieces that they hold; None where one holds none of them."""
    left = sorted(made, key=lambda value: value.address)
    ordered = []
    for piece in pieces:
        wanted = of_array(piece)
        same = [v for v in left if v.form == wanted.form and v.digest == wanted.digest]
        if same:
            ordered.append(same[0])
            left.remove(same[0])
    return None if left else ordered
