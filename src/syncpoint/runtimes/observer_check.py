"""Whether looking changed what was looked at: arrays of a captured run against a plain one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from syncpoint.run.model import Observer
from syncpoint.runtimes.protocol import Array


def has_same_bits(left: Array, right: Array) -> bool:
    """Whether two arrays have the same type, shape and bytes."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    a, b = (np.ascontiguousarray(t).reshape(-1).view(np.uint8) for t in (left, right))
    return bool(np.array_equal(a, b))


def describe_difference(captured: Array, plain: Array) -> str:
    """How two arrays differ, in words; "" where they have the same bits."""
    if has_same_bits(captured, plain):
        return ""
    if captured.dtype != plain.dtype or captured.shape != plain.shape:
        return (
            f"{plain.dtype}{list(plain.shape)},"
            f" {captured.dtype}{list(captured.shape)} when captured"
        )
    a, b = captured.astype(np.complex128), plain.astype(np.complex128)
    differ = (a != b) & ~(np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        greatest = float(np.nanmax(np.abs(a - b))) if differ.any() else 0.0
    return f"{int(differ.sum())} of {a.size} elements differ, by at most {greatest:.3g}"


def check_outputs(outputs: Iterable[tuple[str, Array | None, Array]]) -> Observer:
    """Whether the plain model gives the same bits: name, captured and plain value of each output.

    None stands for an output that was not captured.
    """
    for name, captured, plain in outputs:
        if captured is None:
            return Observer(False, f"{name}: not among the captured values")
        detail = describe_difference(captured, plain)
        if detail:
            return Observer(False, f"{name}: {detail}")
    return Observer(True)
