"""Find the NumPy function of a recorded op; evaluate it, also with varied arguments (None if
invalid or out of memory); choose the reading that fits the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from syncpoint.diagnosis.numpy_ops import (
    elementwise,
    norms_and_softmax,
    pooling,
    products_and_convolutions,
    reductions,
    resizing,
    shapes_and_indexing,
)
from syncpoint.diagnosis.numpy_ops.recorded_op import Array, Bound, Reader, RecordedOp, UnknownForm
from syncpoint.run.model import Op

_READERS: dict[str, Reader] = {
    **elementwise.READERS,
    **products_and_convolutions.READERS,
    **pooling.READERS,
    **norms_and_softmax.READERS,
    **reductions.READERS,
    **resizing.READERS,
    **shapes_and_indexing.READERS,
}
_WRONG = (UnknownForm, ValueError, TypeError, IndexError, KeyError, AttributeError, ArithmeticError)
"""Exceptions of an op whose form differs from the one that its reader expects."""


def is_known(op: Op) -> bool:
    """Whether there is a reader for ops of its type."""
    return RecordedOp(op, ()).name.lower() in _READERS


def readings(op: Op, arguments: Sequence[Array | None]) -> Iterator[Bound]:
    """Yield the possible readings of an op; none if it is unknown."""
    recorded = RecordedOp(op, arguments)
    reader = _READERS.get(recorded.name.lower())
    if reader is None:
        return
    try:
        yield from reader(recorded)
    except _WRONG:
        return


def results(bound: Bound, **changed: object) -> tuple[Array, ...] | None:
    """Compute the outputs; None if that fails."""
    try:
        return bound.run(**changed)
    except (*_WRONG, MemoryError):
        return None


def proven(op: Op, arguments: Sequence[Array | None], output: Array) -> Bound | None:
    """Return the reading that gives this output in float64, or None."""
    for bound in readings(op, arguments):
        outputs = results(bound)
        if outputs and _is_same(outputs[0], output):
            return bound
    return None


def _is_same(computed: Array, output: Array) -> bool:
    if computed.shape != output.shape or computed.dtype == object:
        return False
    size = float(np.max(np.abs(output), initial=0, where=np.isfinite(output)))
    return bool(np.allclose(computed, output, rtol=1e-9, atol=1e-11 * size, equal_nan=True))
