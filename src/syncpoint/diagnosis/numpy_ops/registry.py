"""The ops we know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from syncpoint.diagnosis.numpy_ops import (
    elementwise,
    norms,
    pooling,
    products,
    reductions,
    resizing,
    shapes,
)
from syncpoint.diagnosis.numpy_ops.op_arguments import Array, Bound, Reader, Said, Unread
from syncpoint.run.model import Op

_READERS: dict[str, Reader] = {
    **elementwise.READERS,
    **products.READERS,
    **pooling.READERS,
    **norms.READERS,
    **reductions.READERS,
    **resizing.READERS,
    **shapes.READERS,
}
_WRONG = (Unread, ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError)
"""What comes of an op that is not of the form we read it in."""


def is_known(op: Op) -> bool:
    """Whether there is a reader for ops of its type."""
    return Said(op, ()).name.lower() in _READERS


def readings(op: Op, arguments: Sequence[Array | None]) -> Iterator[Bound]:
    """The ways in which an op may be meant; none where it is not known."""
    said = Said(op, arguments)
    reader = _READERS.get(said.name.lower())
    if reader is None:
        return
    try:
        yield from reader(said)
    except _WRONG:
        return


def results(bound: Bound, **changed: object) -> tuple[Array, ...] | None:
    """What it gives; None where it cannot be run so."""
    try:
        return bound.run(**changed)
    except (*_WRONG, MemoryError):
        return None


def proven(op: Op, arguments: Sequence[Array | None], output: Array) -> Bound | None:
    """The reading that gives this output in float64; None where none does."""
    for bound in readings(op, arguments):
        found = results(bound)
        if found and any(_same(one, output) for one in found[:1]):
            return bound
    return None


def _same(found: Array, output: Array) -> bool:
    if found.shape != output.shape or found.dtype == object:
        return False
    size = float(np.max(np.abs(output), initial=0, where=np.isfinite(output)))
    return bool(np.allclose(found, output, rtol=1e-9, atol=1e-11 * size, equal_nan=True))
