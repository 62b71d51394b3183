"""Compute statistics of a tensor (minimum, maximum, mean, norm, counts) over its finite elements;
merge and scale them; RMS.

They are computed block by block in float64, so that memory use does not grow with the tensor, and
with scaled sums, so that elements near the limits of float64 do not overflow.
"""

from __future__ import annotations

import math
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.run.model import Statistics

_BLOCK_ELEMENTS = 1 << 16
"""Elements per block: half a megabyte of float64, which fits into the cache."""
_MAX_SQUARABLE = 1e150
"""Squares of greater numbers, or of their inverses, leave the range of float64."""


def compute_statistics(array: NDArray[Any]) -> Statistics:
    """Compute the statistics of `array`; complex numbers count by their modulus.

    `count` counts all elements. Without a finite element the numbers are NaN, never zero.
    """
    flat = array.reshape(-1)
    nan = inf = zero = finite = 0
    low, high = math.inf, -math.inf
    mean = spread = norm = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat.size, _BLOCK_ELEMENTS):
            block, nans, infs = _select_finite(flat[start : start + _BLOCK_ELEMENTS])
            nan += nans
            inf += infs
            if not block.size:
                continue
            zero += block.size - int(np.count_nonzero(block))
            low = min(low, float(block.min()))
            high = max(high, float(block.max()))
            block_mean, block_spread, block_norm = _moments(block)
            norm = math.hypot(norm, block_norm)
            # Chan's merge on square roots: the sum of squared deviations itself may overflow.
            total = finite + block.size
            shift = abs(block_mean - mean) * math.sqrt(finite * block.size) / math.sqrt(total)
            spread = math.hypot(spread, block_spread, shift if finite else 0.0)
            mean += (block_mean - mean) * (block.size / total)
            finite = total
    if not finite:
        low = high = mean = spread = norm = math.nan
    std = spread / math.sqrt(max(finite, 1))
    return Statistics(
        count=flat.size, min=low, max=high, mean=mean, std=std, l2=norm, nan=nan, inf=inf, zero=zero
    )


def rms(values: NDArray[Any]) -> float:
    """Root mean square; 0 for no values, inf if any value is not finite."""
    if not values.size:
        return 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        root = float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
    return root if math.isfinite(root) else math.inf


def finite_rms(values: NDArray[Any]) -> float:
    """Root mean square of the finite values."""
    return rms(values[np.isfinite(values)])


def _select_finite(block: NDArray[Any]) -> tuple[NDArray[np.float64], int, int]:
    """Return the finite elements as float64, and the numbers of NaN and infinite elements."""
    if block.dtype.kind == "c":
        nans = np.isnan(block.real) | np.isnan(block.imag)
        # hypot, not abs: the modulus of large float64 parts must not overflow in between.
        values = np.hypot(block.real.astype(np.float64), block.imag.astype(np.float64))
        values[nans] = math.nan
    else:
        values = block.astype(np.float64)
        nans = np.isnan(values)
    is_finite = np.isfinite(values)
    finite_count = int(np.count_nonzero(is_finite))
    if finite_count == values.size:
        return values, 0, 0
    nan = int(np.count_nonzero(nans))
    return values[is_finite], nan, values.size - finite_count - nan


def _moments(block: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean, root of the sum of squared deviations, and norm of one block."""
    peak = float(np.abs(block).max())
    scale = 1.0
    if peak > _MAX_SQUARABLE or 0.0 < peak < 1 / _MAX_SQUARABLE:
        scale = math.ldexp(1.0, math.frexp(peak)[1] - 1)  # a power of two: dividing is exact
        block = block / scale
    mean = float(block.mean())
    deviation = block - mean
    spread = math.sqrt(float(deviation @ deviation))
    norm = math.sqrt(float(block @ block))
    return mean * scale, spread * scale, norm * scale


def merge_statistics(a: Statistics, b: Statistics) -> Statistics:
    """Merge the statistics of two pieces of one tensor.

    Chan's merge on square roots: the sum of squared deviations itself may overflow.
    """
    counts = [s.count - s.nan - s.inf for s in (a, b)]
    nan, inf, zero = a.nan + b.nan, a.inf + b.inf, a.zero + b.zero
    first, second = counts
    count, finite = a.count + b.count, first + second
    if not first or not second:
        piece = a if first else b
        low, high, mean, std, l2 = piece.min, piece.max, piece.mean, piece.std, piece.l2
    else:
        share = second / finite
        shift = abs(b.mean / 2 - a.mean / 2) * 2 * math.sqrt(share) * math.sqrt(first / finite)
        std = math.hypot(
            a.std * math.sqrt(first / finite), b.std * math.sqrt(second / finite), shift
        )
        # Not by the difference of the means, which may overflow float64 although neither does.
        mean = a.mean * (first / finite) + b.mean * share
        l2 = math.hypot(a.l2, b.l2)
        low, high = min(a.min, b.min), max(a.max, b.max)
    return Statistics(
        count=count, min=low, max=high, mean=mean, std=std, l2=l2, nan=nan, inf=inf, zero=zero
    )


def scale_statistics(stored: Statistics, scale: float, zero_point: int) -> Statistics:
    """Compute the statistics of scale * (x - zero_point) from those of the stored integers x."""
    ends = sorted(scale * (x - zero_point) for x in (stored.min, stored.max))
    total = stored.count * stored.mean
    squares = stored.l2**2 - 2 * zero_point * total + stored.count * zero_point**2
    return replace(
        stored,
        min=ends[0],
        max=ends[1],
        mean=scale * (stored.mean - zero_point),
        std=abs(scale) * stored.std,
        l2=abs(scale) * sqrt(max(squares, 0.0)),
        zero=-1,
    )
