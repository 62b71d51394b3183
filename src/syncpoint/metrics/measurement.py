"""Data class of the metrics of one pair (`Measurement`), in the order in which the kernel returns
them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The metrics of one sync point; None means n/a. The catalogue explains them."""

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
    rel_count: int | None
    rel_undefined: int | None
    mean_rel_robust: float | None
    within_1e3: float | None
    within_5e3: float | None
    allclose: float | None
    max_ulp: float | None
    lsb: float | None
    outliers: int | None
    outliers_from: float | None
    bulk_sqnr: float | None
    bulk_rmse: float | None
    bulk_max_abs: float | None
    error_histogram: tuple[tuple[int, int], ...]

    def as_dict(self) -> dict[str, object]:
        """Metric ids and their values, in the order of the catalogue."""
        return {name: getattr(self, name) for name in _NAMES}


_NAMES = tuple(field.name for field in fields(Measurement))
_SETTERS = tuple(getattr(Measurement, name).__set__ for name in _NAMES)


def build_measurement(row: tuple[Any, ...]) -> Measurement:
    """A measurement from the numbers of the kernel.

    The slots are set directly, because the constructor of a frozen class takes twice as long, which
    matters for many small pairs.
    """
    measurement = object.__new__(Measurement)
    for put, value in zip(_SETTERS, row, strict=True):
        put(measurement, value)
    return measurement
