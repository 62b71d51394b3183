"""Compute the numbers of msProbe's table in its arithmetic: metrics of two tensors, or absolute and
percent differences of statistics.

All are in the arithmetic of msProbe, so that its users see the digits they know. Infinities of both
signs count as equal, and the machine epsilon is added to avoid a division by zero. No verdict
rests on these numbers.
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
_WINDOW_ELEMENTS = 1 << 20
_EPS = float(np.finfo(np.float64).eps)
_THOUSANDTHS = (0.001, 0.005)
_MISPLACED = "The position of inf or nan in NPU and bench Tensor do not match."

Array = NDArray[Any]


@dataclass(frozen=True)
class TensorMetrics:
    """The cells of the six columns, and a message."""

    cells: tuple[Any, ...]
    """Cosine, EucDist, MaxAbsErr, MaxRelativeErr, and the two ratios."""
    message: str = ""


def measure_tensors(
    target: Run, target_tensor: Tensor, reference: Run, bench_tensor: Tensor
) -> TensorMetrics:
    """Compute the six metrics of a target tensor and its bench."""
    if target_tensor.shape != bench_tensor.shape:
        return TensorMetrics(("shape unmatched",) * 6)
    if not target_tensor.count:
        return TensorMetrics((UNSUPPORTED,) * 6, "This is empty data, can not compare.")
    sums = _Sums()
    try:
        for start in range(0, target_tensor.count, _WINDOW_ELEMENTS):
            stop = min(start + _WINDOW_ELEMENTS, target_tensor.count)
            n, b = (
                target.window(target_tensor, start, stop),
                reference.window(bench_tensor, start, stop),
            )
            if not sums.add(n, b):
                return TensorMetrics((NOT_APPLICABLE,) * 6, _MISPLACED)
    except SyncpointError as error:
        return TensorMetrics((UNSUPPORTED,) * 6, describe_error(error))
    return TensorMetrics(sums.cells(scalar=not target_tensor.shape, count=target_tensor.count))


class _Sums:
    """Sums and extrema of two tensors, computed window by window."""

    def __init__(self) -> None:
        self._dot = self._mine = self._theirs = self._apart = 0.0
        self._absolute = self._relative = 0.0
        self._within = [0, 0]

    def add(self, n: Array, b: Array) -> bool:
        """Add a window; return whether both have NaN and infinities at the same positions."""
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
        difference = np.abs(x - y)
        self._apart += float(np.vdot(difference, difference))
        self._absolute = max(self._absolute, float(difference.max()))
        zero = b == 0
        with np.errstate(all="ignore"):
            divisor = np.where(zero, b + eps, b)
            relative = np.abs((np.where(zero, n + eps, n) - divisor) / divisor)
        self._relative = max(self._relative, float(relative.max()))
        for index, limit in enumerate(_THOUSANDTHS):
            self._within[index] += int(np.count_nonzero(relative < limit))
        return True

    def cells(self, scalar: bool, count: int) -> tuple[Any, ...]:
        """Return the six cells."""
        extrema = (round(self._absolute, 12), round(self._relative, 12))
        if scalar:
            return (UNSUPPORTED, UNSUPPORTED, *extrema, UNSUPPORTED, UNSUPPORTED)
        ratios = (within / count for within in self._within)
        cosine = self._cosine() if count > 1 else UNSUPPORTED
        return (cosine, sqrt(self._apart), *extrema, *ratios)

    def _cosine(self) -> Any:
        target_tensor, bench_tensor = sqrt(self._mine), sqrt(self._theirs)
        if target_tensor <= _EPS and bench_tensor <= _EPS:
            return 1.0
        if target_tensor <= _EPS or bench_tensor <= _EPS:
            return "Nan"
        cosine = self._dot / (target_tensor * bench_tensor)
        return round(cosine, 6) if cosine > 0.9999 else round(cosine, 12)


def _common(n: Array, b: Array) -> tuple[Array, Array, Any]:
    """Convert both to the type of their difference; return its machine epsilon too."""
    n, b = (_plain(x) for x in (n, b))
    kind = np.result_type(n, b)
    if kind.kind not in "fc":
        kind = np.dtype(np.float64)
    return n.astype(kind, copy=False), b.astype(kind, copy=False), kind.type(np.finfo(kind).eps)


def _plain(values: Array) -> Array:
    """Convert types that NumPy lacks to float32."""
    return values.astype(np.float32) if values.dtype.kind == "V" else values


def figure_difference(n: Any, b: Any) -> tuple[Any, Any]:
    """Return the difference of two figures, and the difference in percent of the second."""
    if str(n) == str(b):
        return (n, n) if n == NOT_APPLICABLE else (0, 0)
    if NOT_APPLICABLE in (n, b):
        return NOT_APPLICABLE, NOT_APPLICABLE
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (n, b)):
        return "Diff", "Diff"
    if math.isnan(n) or math.isnan(b):
        return "Nan", "Nan"
    if math.isinf(n) or math.isinf(b):
        text = "inf" if math.isinf(n) else "-inf"
        return text, text
    difference = n - b
    return difference, f"{abs(difference / b * 100)}%" if b else "inf"
