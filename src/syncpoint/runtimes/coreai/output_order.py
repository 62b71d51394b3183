"""Sorts the outputs of a kernel into the order of its results, which callbacks do not keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncpoint.runtimes.coreai.arrays import RuntimeArray, wrap_array
from syncpoint.runtimes.coreai.kernel_names import short_type
from syncpoint.runtimes.protocol import Array


def order_outputs(
    name: str, outputs: list[RuntimeArray], inputs: Sequence[RuntimeArray]
) -> list[RuntimeArray] | None:
    """Sort the outputs of a kernel into the order of its results; None where that is unknown."""
    if len(outputs) < 2:
        return outputs
    if short_type(name) != "split":
        return None
    return _order_split_outputs(outputs, inputs)


def _order_split_outputs(
    outputs: Sequence[RuntimeArray], inputs: Sequence[RuntimeArray]
) -> list[RuntimeArray] | None:
    """Sort the outputs of a split: the input is split again, and its pieces are compared."""
    total_size = sum(output.array.size for output in outputs)
    integers = [v.array for v in inputs if v.array.dtype.kind in "iu"]
    wholes = [v.array for v in inputs if v.array.size == total_size]
    axes = [int(array) for array in integers if array.ndim == 0]
    sizes = [array for array in integers if array.shape == (len(outputs),)]
    for array, axis, size in ((w, a, s) for w in wholes for a in axes for s in sizes):
        if not array.ndim or not -array.ndim <= axis < array.ndim:
            continue
        if int(size.sum()) != array.shape[axis]:
            continue
        pieces = np.split(array, np.cumsum(size.astype(np.int64))[:-1], axis)
        ordered = _order_by_pieces(pieces, outputs)
        if ordered is not None:
            return ordered
    return None


def _order_by_pieces(
    pieces: Sequence[Array], outputs: Sequence[RuntimeArray]
) -> list[RuntimeArray] | None:
    """Sort the outputs into the order of equal pieces; None where an output equals no piece."""
    unplaced = sorted(outputs, key=lambda value: value.address)
    ordered = []
    for piece in pieces:
        wrapped = wrap_array(piece)
        equal = [v for v in unplaced if v.form == wrapped.form and v.digest == wrapped.digest]
        if equal:
            ordered.append(equal[0])
            unplaced.remove(equal[0])
    return None if unplaced else ordered
