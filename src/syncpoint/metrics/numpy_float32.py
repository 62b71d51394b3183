"""Cosine, relative error, KL divergence and other metrics in float32 as NumPy computes them, bit
for bit, to match reports of other tools.

Both sides are cast to float32, and all arithmetic equals NumPy's on such arrays, so that our digits
are those of the other tool. Relative errors over zeros are 0, and integers lose their last digits.
So no verdict depends on these numbers; `measure` has the exact ones.

The native kernel computes the sums without float32 arrays (`native/compat.hpp`). The rest is
computed here with NumPy scalars, whose powers and quotients round in their own way.
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
"""Maximum number of elements whose logarithms NumPy computes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32Metrics:
    """The metrics of x, the target, and y, the reference: float32 or float64 as Python floats."""

    x_norm: float
    y_norm: float
    cosine: float
    """May exceed 1; NaN if a norm is 0."""
    max_abs: float
    acc_rel: float
    rel_euclid: float
    kl: float
    """KL divergence of the sides scaled to [0, 1] and to a sum of 1."""
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

    Any strides, any real type. With `decimals`, the last bits of `kl` may differ, but it prints the
    same to that many decimals: NumPy's logarithm, which has errors of up to 4 ULP of its own, is
    then called only where it matters.
    """
    sides = (operand(target), operand(reference))
    with np.errstate(all="ignore"):
        return _KernelPasses(
            native_operand(sides[0], -inf), native_operand(sides[1], -inf), target.size
        ).metrics(decimals)


def bool_cosine(target: np.ndarray, reference: np.ndarray) -> float:
    """The cosine of two boolean arrays, each with at least one True, in NumPy's float64."""
    norms = [np.sqrt(np.float64(np.count_nonzero(side))) for side in (target, reference)]
    term = (1.0 / norms[0]) * (1.0 / norms[1])
    sides = [native_operand(operand(side), -inf) for side in (target, reference)]
    return _kernel.compat_both(sides[0], sides[1], float(term))


class _KernelPasses:
    """The passes of the kernel over one pair; each uses the sums of the pass before."""

    def __init__(self, x: _kernel.Operand, y: _kernel.Operand, count: int) -> None:
        self._x, self._y, self._count = x, y, count
        self._first = _kernel.compat_first(x, y)

    def metrics(self, decimals: int | None) -> Float32Metrics:
        """All metrics; the caller suppresses NumPy's warnings."""
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
        divergence = None if decimals is None else self._quick_kl(x, y, decimals)
        if divergence is None:
            divergence = float(self._numpy_kl(x, y, 0, self._count))
        return 0.0 if abs(divergence) < _EPSILON else divergence

    def _quick_kl(
        self, x: tuple[float, float, float], y: tuple[float, float, float], decimals: int
    ) -> float | None:
        """The KL divergence with our own logarithm; None if NumPy's may print another number."""
        if not (isfinite(x[2]) and isfinite(y[2])):
            return None
        if self._first.errors == 0:
            return 0.0  # both sides are equal
        divergence, magnitude = _kernel.compat_divergence(self._x, self._y, x, y)
        if magnitude == 0:
            return 0.0
        # Error bound in units of 2^-24 of the sum of magnitudes: 8 for NumPy's logarithm, 3 for
        # ours, 1 for each product, and for each sum the maximum number of additions of a term: 16
        # in a lane, 3 between lanes, 7 after them, and 1 for each level of the tree.
        additions = 26 + max(0.0, log2(self._count / 64))
        error = (8 + 3 + 2 + 2 * additions) * 1.01 * 2.0**-24 * magnitude
        if not abs(divergence) - error > _EPSILON:
            return None
        low, high = (f"{divergence + offset:.{decimals}f}" for offset in (-error, error))
        return divergence if low == high else None

    def _numpy_kl(
        self,
        x: tuple[float, float, float],
        y: tuple[float, float, float],
        begin: int,
        count: int,
    ) -> np.float32:
        """The KL divergence with NumPy's logarithms and order of summation."""
        if count > _MAX_LOG_ELEMENTS:
            half = count // 2 - count // 2 % 8
            first_half = self._numpy_kl(x, y, begin, half)
            return np.float32(first_half + self._numpy_kl(x, y, begin + half, count - half))
        p, quotient = np.empty((2, count), np.float32)
        _kernel.compat_quotients(self._x, self._y, x, y, begin, p, quotient)
        np.log(quotient, out=quotient)
        return np.float32(np.multiply(p, quotient, out=quotient).sum())


def _range(minimum: float, maximum: float, squares: float) -> tuple[float, float]:
    """Offset and divisor that scale the elements to [0, 1]; (0, 1) if all elements are equal."""
    if isnan(squares):
        return float("nan"), 1.0
    span = np.float32(maximum) - np.float32(minimum)
    return (0.0, 1.0) if span == 0 else (minimum, float(span))


def _propagate_nan(maximum: float, total: float) -> float:
    """The maximum as NumPy computes it: NaN if any element is NaN, which the sum shows."""
    return total if isnan(total) else maximum


def _mean(total: float, count: int) -> np.float32:
    """The mean as NumPy computes it: division in float64, then rounding to float32."""
    return np.float32(np.float64(total) / count)


def _rel_euclid(first: _kernel.CompatFirst) -> float:
    # Powers of scalars, not square roots, which may differ in the last bit.
    squares = np.float32(first.y_squares)
    if squares**0.5 <= _EPSILON:
        return 0.0
    return float((np.float32(first.error_squares) / squares) ** 0.5)
