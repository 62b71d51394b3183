"""The observer check of all runtimes, on arrays: whether recording changed outputs; how two arrays
differ (dtype, shape, count, largest gap) in words."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncpoint.run.model import Observer
from syncpoint.runtimes.protocol import Array


def has_same_bits(first: Array, second: Array) -> bool:
    """Whether two arrays have the same type, shape and bytes."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    a, b = (np.ascontiguousarray(t).reshape(-1).view(np.uint8) for t in (first, second))
    return bool(np.array_equal(a, b))


def describe_difference(captured: Array, plain: Array) -> str:
    """Describe how two arrays differ; "" where they have the same bits."""
    if has_same_bits(captured, plain):
        return ""
    if captured.dtype != plain.dtype or captured.shape != plain.shape:
        return (
            f"{plain.dtype}{list(plain.shape)},"
            f" {captured.dtype}{list(captured.shape)} when captured"
        )
    a, b = captured.astype(np.complex128), plain.astype(np.complex128)
    is_different = (a != b) & ~(np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        max_difference = float(np.nanmax(np.abs(a - b))) if is_different.any() else 0.0
    return (
        f"{int(is_different.sum())} of {a.size} elements differ,"
        f" max absolute difference {max_difference:.3g}"
    )


def check_outputs(outputs: Iterable[tuple[str, Array | None, Array]]) -> Observer:
    """Check that the plain model gives the same bits.

    `outputs` are the name, captured value and plain value of each output; a captured value of None
    means that the output was not captured.
    """
    for name, captured, plain in outputs:
        if captured is None:
            return Observer(False, f"{name}: not among the captured values")
        detail = describe_difference(captured, plain)
        if detail:
            return Observer(False, f"{name}: {detail}")
    return Observer(True)
