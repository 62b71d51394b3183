"""The numbers that tools computing in float32 with NumPy report, to the bit.

Both sides are cast to float32 and all arithmetic is NumPy's on such arrays, so that whoever lays
another tool's report beside ours finds the same digits. Relative errors over zeros are 0 here and
integers lose their last digits: no verdict rests on these numbers; `measure` has the true ones.

The native kernel finds the sums without making float32 arrays (`native/compat.hpp`); what is left
is done here with NumPy's own scalars, whose powers and quotients have roundings of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, isnan, log2

import numpy as np

from syncpoint.metrics import _kernel
from syncpoint.metrics.kernel import native_operand
from syncpoint.metrics.pair import operand

_EPSILON = float(np.finfo(np.float64).eps)
_MAX_LOG_ELEMENTS = 1 << 15
"""Elements whose logarithms NumPy is asked for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32Metrics:
    """What is found of x, the target, and y, the reference. Each is a float32 or float64 in a
    Python float."""

    x_norm: float
    y_norm: float
    cosine: float
    """Not bounded by 1; NaN where a norm is 0."""
    max_abs: float
    acc_rel: float
    rel_euclid: float
    kl: float
    """Of the sides brought to [0, 1] and to a sum of 1; see `float32_metrics`."""
    x_mean: float
    x_std: float
    y_mean: float
    y_std: float
    mae: float
    rmse: float
    max_rel: float
    mean_rel: float


def float32_metrics(
    target: np.ndarray, reference: np.ndarray, *, decimals: int | None = None
) -> Float32Metrics:
    """The metrics of two arrays with the same number of elements, at least one, in row-major order.

    Any strides, any real type. With `decimals`, `kl` may have other last bits, but prints the same
    to so many decimals: NumPy's logarithm, which is wrong by up to 4 units in the last place in a
    way of its own, is then only asked for where it matters.
    """
    sides = (operand(target), operand(reference))
    with np.errstate(all="ignore"):
        return _KernelPasses(
            native_operand(sides[0], -inf), native_operand(sides[1], -inf), target.size
        ).metrics(decimals)


def bool_cosine(target: np.ndarray, reference: np.ndarray) -> float:
    """The cosine of two boolean arrays, neither of them without a True, in NumPy's float64."""
    norms = [np.sqrt(np.float64(np.count_nonzero(side))) for side in (target, reference)]
    term = (1.0 / norms[0]) * (1.0 / norms[1])
    sides = [native_operand(operand(side), -inf) for side in (target, reference)]
    return _kernel.compat_both(sides[0], sides[1], float(term))


class _KernelPasses:
    """The looks at one pair, each with what the ones before it found."""

    def __init__(self, x: _kernel.Operand, y: _kernel.Operand, count: int) -> None:
        self._x, self._y, self._count = x, y, count
        self._first = _kernel.compat_first(x, y)

    def metrics(self, decimals: int | None) -> Float32Metrics:
        """All of them; the caller silences NumPy's warnings."""
        first, count = self._first, self._count
        norms = [np.sqrt(np.float32(s)) for s in (first.x_squares, first.y_squares)]
        means = [total / count for total in (first.x_total, first.y_total)]
        ranges = [
            _range(first.x_min, first.x_max, first.x_squares),
            _range(first.y_min, first.y_max, first.y_squares),
        ]
        scales = [
            (float(norm), *span, mean)
            for norm, span, mean in zip(norms, ranges, means, strict=True)
        ]
        second = _kernel.compat_second(self._x, self._y, scales[0], scales[1])
        deviations = [second.x_deviations, second.y_deviations]
        stds = [float(np.sqrt(np.float64(total) / count)) for total in deviations]
        return Float32Metrics(
            x_norm=float(norms[0]),
            y_norm=float(norms[1]),
            cosine=second.cosine,
            max_abs=_propagate_nan(first.greatest_error, first.errors),
            acc_rel=first.ratios,
            rel_euclid=_rel_euclid(first),
            kl=self._kl((*ranges[0], second.x_shares), (*ranges[1], second.y_shares), decimals),
            x_mean=means[0],
            x_std=stds[0],
            y_mean=means[1],
            y_std=stds[1],
            mae=float(_mean(first.errors, count)),
            rmse=float(np.sqrt(_mean(first.error_squares, count))),
            max_rel=_propagate_nan(first.greatest_ratio, first.ratios),
            mean_rel=float(_mean(first.ratios, count)),
        )

    def _kl(
        self,
        x: tuple[float, float, float],
        y: tuple[float, float, float],
        decimals: int | None,
    ) -> float:
        if isnan(x[2]) or isnan(y[2]):
            return float("nan")
        found = None if decimals is None else self._quick_kl(x, y, decimals)
        if found is None:
            found = float(self._numpy_kl(x, y, 0, self._count))
        return 0.0 if abs(found) < _EPSILON else found

    def _quick_kl(
        self, x: tuple[float, float, float], y: tuple[float, float, float], decimals: int
    ) -> float | None:
        """With our own logarithm; None where NumPy's might print something else."""
        if not (isfinite(x[2]) and isfinite(y[2])):
            return None
        if self._first.errors == 0:
            return 0.0  # both sides are equal, and so are their shares
        found, magnitude = _kernel.compat_divergence(self._x, self._y, x, y)
        if magnitude == 0:
            return 0.0
        # In units of 2^-24 of the sum of magnitudes: 8 for NumPy's logarithm and 3 for ours, 1 for
        # each product, and for each sum the greatest number of additions that a term goes through:
        # 16 in a lane, 3 between lanes, 7 after them, and one for each level of the tree.
        additions = 26 + max(0.0, log2(self._count / 64))
        error = (8 + 3 + 2 + 2 * additions) * 1.01 * 2.0**-24 * magnitude
        if not abs(found) - error > _EPSILON:
            return None
        low, high = (f"{found + side:.{decimals}f}" for side in (-error, error))
        return found if low == high else None

    def _numpy_kl(
        self,
        x: tuple[float, float, float],
        y: tuple[float, float, float],
        begin: int,
        count: int,
    ) -> np.float32:
        """Along NumPy's tree, the logarithms from NumPy."""
        if count > _MAX_LOG_ELEMENTS:
            half = count // 2 - count // 2 % 8
            left = self._numpy_kl(x, y, begin, half)
            return np.float32(left + self._numpy_kl(x, y, begin + half, count - half))
        p, quotient = np.empty((2, count), np.float32)
        _kernel.compat_quotients(self._x, self._y, x, y, begin, p, quotient)
        np.log(quotient, out=quotient)
        return np.float32(np.multiply(p, quotient, out=quotient).sum())


def _range(least: float, greatest: float, squares: float) -> tuple[float, float]:
    """What is taken off each element, and what it is then divided by, to lie in [0, 1]; a side
    whose elements are all alike is left as it is."""
    if isnan(squares):
        return float("nan"), 1.0
    span = np.float32(greatest) - np.float32(least)
    return (0.0, 1.0) if span == 0 else (least, float(span))


def _propagate_nan(found: float, total: float) -> float:
    """NaN is the greatest of all for NumPy; a sum of magnitudes is NaN where one of them is."""
    return total if isnan(total) else found


def _mean(total: float, count: int) -> np.float32:
    """NumPy divides by a 64-bit integer, so in float64, and rounds once more."""
    return np.float32(np.float64(total) / count)


def _rel_euclid(first: _kernel.CompatFirst) -> float:
    # Powers of scalars, not roots: they may differ in the last bit.
    squares = np.float32(first.y_squares)
    if squares**0.5 <= _EPSILON:
        return 0.0
    return float((np.float32(first.error_squares) / squares) ** 0.5)
