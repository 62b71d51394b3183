"""The metrics of one pair, made from the kernel's sums.

The kernel hands over sums as value * 2**exponent where squares would leave the range of a float;
every ratio and logarithm here is formed before that power is applied, so it stays right even where
the sum itself cannot be written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import copysign, inf, ldexp, log10, sqrt
from typing import NamedTuple

from syncpoint.metrics import _kernel
from syncpoint.metrics.pair import Rules


@dataclass(frozen=True, slots=True)
class Measurement:
    """The metrics of one sync point; None means n/a. Their meaning is told by the catalogue."""

    count: int
    compared: int
    masked: int
    mismatched: int
    equal: int
    exact: float | None

    psnr: float | None
    sqnr: float | None
    mae: float | None
    mse: float | None
    rmse: float | None
    max_abs: float | None
    max_abs_index: int | None
    rel_l2: float | None
    euclid: float | None
    cosine: float | None
    norm_ratio: float | None
    peak: float | None

    target_mean: float | None
    target_std: float | None
    target_min: float | None
    target_max: float | None
    target_l2: float | None
    target_nan: int
    target_inf: int
    target_overflow: int | None
    target_zero: int
    reference_mean: float | None
    reference_std: float | None
    reference_min: float | None
    reference_max: float | None
    reference_l2: float | None
    reference_nan: int
    reference_inf: int
    reference_overflow: int | None
    reference_zero: int

    max_rel: float | None
    mean_rel: float | None
    acc_rel: float | None
    rel_count: int
    rel_undefined: int
    mean_rel_robust: float | None
    within_1e3: float | None
    within_5e3: float | None
    allclose: float | None
    max_ulp: float | None
    lsb: float | None
    error_histogram: tuple[tuple[int, int], ...]

    def as_dict(self) -> dict[str, object]:
        """Metric ids and their values, in the order of the catalogue."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(Measurement))


class SideMetrics(NamedTuple):
    """Mean, deviation, extrema and norm of one side; None when it has no element to describe."""

    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    l2: float | None


def describe_side(side: _kernel.SideResult, count: int) -> SideMetrics:
    """Describe `count` elements; the deviation is that of the whole population (n, not n - 1)."""
    if count == 0:
        return SideMetrics(None, None, None, None, None)
    mean = _number(side.sum.value / count, side.sum.exponent)
    spread = side.sum_squared_deviations
    return SideMetrics(
        # Rounding must not carry the mean of equal numbers beyond them.
        mean=min(max(mean, side.min), side.max) + 0.0,
        std=_root(max(spread.value, 0.0) / count, spread.exponent),
        min=side.min + 0.0,
        max=side.max + 0.0,
        l2=_root(side.sum_squares.value, side.sum_squares.exponent),
    )


def measured(result: _kernel.Result, rules: Rules) -> Measurement:
    """The metrics that follow from the kernel's sums and counts of a pair."""
    n = result.compared
    some = n > 0
    t_side, r_side = result.target, result.reference
    target, reference = describe_side(t_side, n), describe_side(r_side, n)
    squares, t_squares, r_squares = result.sum_squares, t_side.sum_squares, r_side.sum_squares
    t_norm, r_norm = sqrt(t_squares.value), sqrt(r_squares.value)
    peak, total_abs, max_abs = result.peak, result.sum_abs, result.max_abs
    counts_overflow = rules.overflow_limit is not None
    relative, quotients, robust = (
        result.relative_count,
        result.sum_relative,
        result.sum_relative_robust,
    )
    steps = result.sum_squared_steps
    judged = n + result.mismatched
    rated = relative + result.mismatched
    return Measurement(
        count=result.count,
        compared=n,
        masked=result.masked,
        mismatched=result.mismatched,
        equal=result.equal,
        exact=result.equal / result.count if result.count else None,
        psnr=_decibels(_square(peak), squares, n) if some else None,
        sqnr=_decibels((r_squares.value, r_squares.exponent), squares, 1) if some else None,
        mae=_number(total_abs.value / n, total_abs.exponent) if some else None,
        mse=_number(squares.value / n, squares.exponent) if some else None,
        rmse=_root(squares.value / n, squares.exponent) if some else None,
        max_abs=_number(max_abs.value, max_abs.exponent) if some else None,
        max_abs_index=result.max_abs_index if some else None,
        rel_l2=(
            _number(sqrt(squares.value) / r_norm, (squares.exponent - r_squares.exponent) // 2)
            if r_norm
            else None
        ),
        euclid=_root(squares.value, squares.exponent) if some else None,
        cosine=(
            min(max(result.dot.value / t_norm / r_norm, -1.0), 1.0)
            if n > 1 and t_norm and r_norm
            else None
        ),
        norm_ratio=(
            _number(
                t_norm / r_norm,
                (t_squares.exponent - r_squares.exponent) // 2,
            )
            if r_norm
            else None
        ),
        peak=_number(peak.value, peak.exponent) if some else None,
        target_mean=target.mean,
        target_std=target.std,
        target_min=target.min,
        target_max=target.max,
        target_l2=target.l2,
        target_nan=t_side.nan,
        target_inf=t_side.inf,
        target_overflow=t_side.overflow if counts_overflow else None,
        target_zero=t_side.zero,
        reference_mean=reference.mean,
        reference_std=reference.std,
        reference_min=reference.min,
        reference_max=reference.max,
        reference_l2=reference.l2,
        reference_nan=r_side.nan,
        reference_inf=r_side.inf,
        reference_overflow=r_side.overflow if counts_overflow else None,
        reference_zero=r_side.zero,
        max_rel=result.max_relative if relative else None,
        mean_rel=_number(quotients.value / relative, quotients.exponent) if relative else None,
        acc_rel=_number(quotients.value, quotients.exponent) if relative else None,
        rel_count=relative,
        rel_undefined=result.relative_undefined,
        mean_rel_robust=(_number(robust.value / n, robust.exponent) if r_norm else None),
        within_1e3=result.within_1e3 / rated if relative else None,
        within_5e3=result.within_5e3 / rated if relative else None,
        allclose=result.close / judged if judged else None,
        max_ulp=result.max_ulp if some and rules.ulp_unit != "none" else None,
        lsb=(_root(steps.value / n, steps.exponent) if some and rules.step_of != "none" else None),
        error_histogram=tuple(result.error_histogram),
    )


def _number(value: float, exponent: int) -> float:
    """value * 2**exponent, infinite where no float is great enough."""
    try:
        return ldexp(value, exponent)
    except OverflowError:
        return copysign(inf, value)


def _root(square: float, exponent: int) -> float:
    """The root of square * 2**exponent, whose exponent is even."""
    return _number(sqrt(square), exponent // 2)


def _square(number: _kernel.Scaled) -> tuple[float, int]:
    """A magnitude's square, near 1 so that it can be written."""
    return number.value * number.value, 2 * number.exponent


def _decibels(signal: tuple[float, int], squared_error: _kernel.Scaled, count: int) -> float:
    """10 log10 of signal / (squared_error / count); no signal is -inf, no error +inf."""
    if squared_error.value == 0:
        return inf
    if signal[0] == 0:
        return -inf
    ratio = log10(signal[0]) - log10(squared_error.value / count)
    return 10 * (ratio + (signal[1] - squared_error.exponent) * log10(2))
