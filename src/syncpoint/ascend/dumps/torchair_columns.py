"""The columns of the two reports on TorchAir dumps, in the arithmetic of those who defined them.

Tensors are looked at a stretch at a time. No verdict is taken from here: the columns of 26.2 have
errors of 0 where the golden side is 0, and those of the manual call a tensor of 1e-9 against 0
infinitely wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

METRICS_26 = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
)
METRICS_SEED = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandth Err Ratio",
)
NOT_FINITE = "{} includes NAN or inf."

_STRETCH = 1 << 15
_EPSILON_32 = float(np.finfo(np.float32).eps)
_EPSILON = float(np.finfo(np.float64).eps)

Array = NDArray[Any]


@dataclass(frozen=True)
class Side26:
    """What 26.2 says of one side, over its elements in float32; NaN where there are none."""

    max: float = nan
    min: float = nan
    mean: float = nan
    finite: bool = True


@dataclass(frozen=True)
class Columns26:
    """What 26.2 says of a pair."""

    golden: Side26
    mine: Side26
    metrics: tuple[float, ...] | None
    """In the order of METRICS_26; None where it computes none."""
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """By the rule of the manual, which 26.2 itself does not apply; None without metrics, unless
        the values are to blame for that."""
        if self.metrics is None:
            return False if self.reason else None
        return _passed(self.metrics[0], self.metrics[1])


def columns_26(mine: Array, golden: Array) -> Columns26:
    """The columns for two arrays with the same number of elements in the same order."""
    if mine.dtype.kind == "c" or golden.dtype.kind == "c":
        return Columns26(Side26(), Side26(), None, "complex values: no column is defined for them.")
    if not mine.size:
        return Columns26(Side26(), Side26(), None)
    sides = (_side(mine), _side(golden))
    reasons = [
        NOT_FINITE.format(name)
        for name, side in (("golden_data", sides[1]), ("my_data", sides[0]))
        if not side.finite
    ]
    if reasons:
        return Columns26(sides[1], sides[0], None, " ".join(reasons))
    with np.errstate(all="ignore"):
        return Columns26(sides[1], sides[0], _metrics_26(mine, golden, sides))


def _side(array: Array) -> Side26:
    greatest, least, total, finite = -inf, inf, 0.0, True
    with np.errstate(all="ignore"):
        for piece in pieces(array, _STRETCH):
            x = piece.astype(np.float32)
            greatest = float(np.maximum(greatest, x.max()))
            least = float(np.minimum(least, x.min()))
            total += float(x.sum(dtype=np.float64))
            finite = finite and bool(np.isfinite(x).all())
    return Side26(greatest, least, float(np.float32(total / array.size)), finite)


def _metrics_26(mine: Array, golden: Array, sides: tuple[Side26, Side26]) -> tuple[float, ...]:
    squares_x = squares_y = dot = squares_d = 0.0
    greatest_r = greatest_d = total_r = total_d = 0.0
    scaled_x = scaled_y = weighted = 0.0
    for x, y in _both(mine, golden, np.float32):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        squares_x += _dot(wide_x, wide_x)
        squares_y += _dot(wide_y, wide_y)
        dot += _dot(wide_x, wide_y)
        wide_d = wide_x - wide_y
        squares_d += _dot(wide_d, wide_d)
        # Errors count only where the golden side is not zero; that is how they are defined there.
        seen = np.abs(y) > _EPSILON_32
        r = np.abs(np.where(seen, x / y - np.float32(1), np.float32(0)))
        d = np.where(seen, np.abs(x - y), np.float32(0))
        greatest_r = max(greatest_r, float(r.max()))
        greatest_d = max(greatest_d, float(d.max()))
        total_r += float(r.sum(dtype=np.float64))
        total_d += float(d.sum(dtype=np.float64))
        scaled_x += float(np.exp(wide_x - sides[0].max).sum())
        p = np.exp(wide_y - sides[1].max)
        scaled_y += float(p.sum())
        weighted -= _dot(p, wide_d)
    norms = sqrt(squares_x), sqrt(squares_y)
    if not any(norms):
        cosine = 1.0
    else:
        cosine = round(dot / (norms[0] * norms[1]), 10) if all(norms) else 0.0
    # Of softmax(golden) from softmax(mine), over all elements: the sum of p (log p - log q) is that
    # of p (y - x), and the distance of the two logarithms of the sums.
    logs = (np.log(scaled_x) + sides[0].max, np.log(scaled_y) + sides[1].max)
    divergence = weighted / scaled_y + logs[0] - logs[1]
    return (
        cosine,
        greatest_r,
        float(np.float32(total_r / mine.size)),
        greatest_d,
        float(np.float32(total_d / mine.size)),
        max(float(np.float32(divergence)), 0.0),
        float(np.float32(sqrt(squares_d / squares_y))) if norms[1] > _EPSILON else 0.0,
    )


@dataclass(frozen=True)
class ColumnsSeed:
    """What the columns of the manual say of a pair."""

    metrics: tuple[float | None, ...]
    """In the order of METRICS_SEED; None where a metric cannot be calculated."""
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """By the rule of the manual; None where nothing was calculated. One element has no
        direction, so its relative error decides alone."""
        cosine, relative = self.metrics[0], self.metrics[3]
        if relative is None:
            return None
        return _passed(cosine, relative)


def _passed(cosine: float | None, relative: float) -> bool:
    return relative < 0.01 and (cosine is None or cosine >= 0.99)


def columns_seed(mine: Array, golden: Array) -> ColumnsSeed:
    """The columns for two arrays with the same number of elements in the same order, in float64.

    NaN on any side, and infinities that are taken from each other, make everything NaN; an error
    over a golden zero is infinitely large.
    """
    if not mine.size:
        return ColumnsSeed((None,) * len(METRICS_SEED), "no elements")
    wide = np.complex128 if "c" in (mine.dtype.kind, golden.dtype.kind) else np.float64
    integers = all(side.dtype.kind in "iub" for side in (mine, golden))
    squares_x = squares_y = dot = squares_d = greatest_d = greatest_r = 0.0
    below = [0, 0]
    bad = [False, False]
    with np.errstate(all="ignore"):
        for first, second in _both(mine, golden, None):
            x, y = first.astype(wide), second.astype(wide)
            bad = [b or not bool(np.isfinite(s).all()) for b, s in zip(bad, (x, y), strict=True)]
            d = _exact(first, second) if integers else np.abs(x - y)
            size = np.abs(y)
            r = np.where(d == 0, 0.0, d / size)
            squares_x += float(np.sum(np.abs(x) ** 2))
            squares_y += float(np.sum(size**2))
            squares_d += float(np.sum(d**2))
            dot += float(np.sum(x * np.conj(y)).real)
            greatest_d = float(np.maximum(greatest_d, d.max()))
            greatest_r = float(np.maximum(greatest_r, r.max()))
            below[0] += int((r < 0.001).sum())
            below[1] += int((r < 0.005).sum())
    reason = " ".join(
        NOT_FINITE.format(name)
        for name, found in (("NPU data", bad[0]), ("Bench data", bad[1]))
        if found
    )
    ratios = (below[0] / mine.size, below[1] / mine.size)
    cosine = None
    if mine.size > 1:
        cosine = nan if any(bad) else _cosine(dot, squares_x, squares_y)
    return ColumnsSeed((cosine, sqrt(squares_d), greatest_d, greatest_r, *ratios), reason)


def _cosine(dot: float, squares_x: float, squares_y: float) -> float:
    if squares_x == 0 == squares_y:
        return 1.0
    if squares_x == 0 or squares_y == 0:
        return nan
    # Roots first: the product of two sums of squares may be too large or too small for a number.
    return max(-1.0, min(1.0, dot / sqrt(squares_x) / sqrt(squares_y)))


def _exact(first: Array, second: Array) -> NDArray[np.float64]:
    """The distance of integers, which float64 may take for none."""
    distance: NDArray[np.float64] = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return np.where((first != second) & (distance == 0), 1.0, distance)


def _dot(x: Array, y: Array) -> float:
    """Without the threads of BLAS: several pairs are looked at at the same time already."""
    return float(np.einsum("i,i->", x, y))


def pieces(array: Array, length: int) -> Iterator[Array]:
    """The elements of an array in order, `length` of them at a time."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, length):
        yield flat[start : start + length]


def _both(mine: Array, golden: Array, dtype: Any) -> Iterator[tuple[Array, Array]]:
    for x, y in zip(pieces(mine, _STRETCH), pieces(golden, _STRETCH), strict=True):
        yield (x, y) if dtype is None else (x.astype(dtype), y.astype(dtype))
