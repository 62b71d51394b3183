"""The numbers that msProbe gives of two tensors: six of their values, else differences of figures.

All are in its own arithmetic. Its users know these digits, so they are kept as they are, odd
places included: infinities of both signs count as equal, and a division by zero is moved out of
the way by the least number that makes a difference to 1. No verdict is drawn from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import SyncpointError, describe_error
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run

UNSUPPORTED = "unsupported"
NOT_APPLICABLE = "N/A"
_WINDOW = 1 << 20
_EPS = float(np.finfo(np.float64).eps)
_THOUSANDTHS = (0.001, 0.005)
_MISPLACED = "The position of inf or nan in NPU and bench Tensor do not match."

Array = NDArray[Any]


@dataclass(frozen=True)
class Figures:
    """What stands in the six columns, and what is to be said of it."""

    cells: tuple[Any, ...]
    """Cosine, EucDist, MaxAbsErr, MaxRelativeErr, and the two ratios."""
    message: str = ""


def measure(target: Run, mine: Tensor, reference: Run, theirs: Tensor) -> Figures:
    """The six numbers of a target tensor and its bench."""
    if mine.shape != theirs.shape:
        return Figures(("shape unmatched",) * 6)
    if not mine.count:
        return Figures((UNSUPPORTED,) * 6, "This is empty data, can not compare.")
    sums = _Sums()
    try:
        for start in range(0, mine.count, _WINDOW):
            stop = min(start + _WINDOW, mine.count)
            n, b = target.window(mine, start, stop), reference.window(theirs, start, stop)
            if not sums.add(n, b):
                return Figures((NOT_APPLICABLE,) * 6, _MISPLACED)
    except SyncpointError as error:
        return Figures((UNSUPPORTED,) * 6, describe_error(error))
    return Figures(sums.cells(scalar=not mine.shape, count=mine.count))


class _Sums:
    """The sums and extrema of two tensors, a window at a time."""

    def __init__(self) -> None:
        self._dot = self._mine = self._theirs = self._apart = 0.0
        self._absolute = self._relative = 0.0
        self._within = [0, 0]

    def add(self, n: Array, b: Array) -> bool:
        """Take in a window; whether both have their NaN and infinities at the same places."""
        n, b, eps = _common(n, b)
        if n.dtype.kind in "fc":
            odd = np.isnan(n), np.isinf(n)
            if not (odd[0] == np.isnan(b)).all() or not (odd[1] == np.isinf(b)).all():
                return False
            n, b = (np.where(odd[0] | odd[1], 0, x).astype(x.dtype) for x in (n, b))
        kind = np.complex128 if n.dtype.kind == "c" else np.float64
        x, y = n.astype(kind), b.astype(kind)
        self._dot += float(np.vdot(x, y).real)
        self._mine += float(np.vdot(x, x).real)
        self._theirs += float(np.vdot(y, y).real)
        apart = np.abs(x - y)
        self._apart += float(np.vdot(apart, apart))
        self._absolute = max(self._absolute, float(apart.max()))
        zero = b == 0
        with np.errstate(all="ignore"):
            divisor = np.where(zero, b + eps, b)
            relative = np.abs((np.where(zero, n + eps, n) - divisor) / divisor)
        self._relative = max(self._relative, float(relative.max()))
        for at, limit in enumerate(_THOUSANDTHS):
            self._within[at] += int(np.count_nonzero(relative < limit))
        return True

    def cells(self, scalar: bool, count: int) -> tuple[Any, ...]:
        """The six columns."""
        extrema = (round(self._absolute, 12), round(self._relative, 12))
        if scalar:
            return (UNSUPPORTED, UNSUPPORTED, *extrema, UNSUPPORTED, UNSUPPORTED)
        ratios = (within / count for within in self._within)
        cosine = self._cosine() if count > 1 else UNSUPPORTED
        return (cosine, sqrt(self._apart), *extrema, *ratios)

    def _cosine(self) -> Any:
        mine, theirs = sqrt(self._mine), sqrt(self._theirs)
        if mine <= _EPS and theirs <= _EPS:
            return 1.0
        if mine <= _EPS or theirs <= _EPS:
            return "Nan"
        cosine = self._dot / (mine * theirs)
        return round(cosine, 6) if cosine > 0.9999 else round(cosine, 12)


def _common(n: Array, b: Array) -> tuple[Array, Array, Any]:
    """Both in the type that the differences are made in, and the least number of that type that
    makes a difference to 1."""
    n, b = (_plain(x) for x in (n, b))
    kind = np.result_type(n, b)
    if kind.kind not in "fc":
        kind = np.dtype(np.float64)
    return n.astype(kind, copy=False), b.astype(kind, copy=False), kind.type(np.finfo(kind).eps)


def _plain(values: Array) -> Array:
    """Types that NumPy does not have of its own are read as float32."""
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def figure_difference(n: Any, b: Any) -> tuple[Any, Any]:
    """The difference of two figures, and that in per cent of the second."""
    if str(n) == str(b):
        return (n, n) if n == NOT_APPLICABLE else (0, 0)
    if NOT_APPLICABLE in (n, b):
        return NOT_APPLICABLE, NOT_APPLICABLE
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (n, b)):
        return "Diff", "Diff"
    if math.isnan(n) or math.isnan(b):
        return "Nan", "Nan"
    if math.isinf(n) or math.isinf(b):
        said = "inf" if math.isinf(n) else "-inf"
        return said, said
    apart = n - b
    return apart, f"{abs(apart / b * 100)}%" if b else "inf"
