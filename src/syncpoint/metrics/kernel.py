"""Call the native kernel: convert pairs and operands (memory or file regions, scales, zero points),
check them, measure in parallel, compute statistics.

Returns their metrics."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf, nan, prod
from typing import Literal

import numpy as np

from syncpoint.errors import FormatError
from syncpoint.metrics import _kernel
from syncpoint.metrics.dtype_rules import Rules, rules_of
from syncpoint.metrics.measurement import Measurement, build_measurement
from syncpoint.metrics.pair import FileRegion, Operand, Pair
from syncpoint.run.dtypes import parse_dtype as dtype_of
from syncpoint.run.model import Quantization, Statistics

Tier = Literal["base", "relative", "default"]
"""Which metrics are measured; each tier includes the tiers before it. Other metrics are None."""

WINDOW = 64 << 20
"""Maximum bytes of file regions that all threads together map at once."""

ROBUST_ABOVE = 6 * 10 ** (-90 / 20)
"""Maximum mean relative error that is close under the finest preset; see `measure`."""

BULK_BELOW = 90.0
"""SQNR of the bulk in dB that is close under the finest preset; see `measure`."""


def measure(
    pairs: Sequence[Pair],
    threads: int = 0,
    *,
    tier: Tier = "default",
    robust: bool = False,
    bulk: bool = False,
    window: int = WINDOW,
) -> list[Measurement]:
    """Measure every pair, several at a time; 0 threads means one for each core.

    The bits of the results do not depend on threads, strides or `window`. Raises FormatError if a
    file is too short for its operand; `measure_each` continues with the other pairs.

    `mean_rel_robust` needs a second pass over the data, because its floor depends on the whole
    reference. Without `robust` it is None where it cannot change a verdict: where `mean_rel`, which
    it cannot exceed, is at most ROBUST_ABOVE and `rel_undefined` is 0. The metrics of the bulk need
    a second pass too. Without `bulk` they are None where its SQNR is known to be at least
    BULK_BELOW, and always where outliers do not dominate the sums.
    """
    measurements = []
    for measurement in measure_each(
        pairs, threads, tier=tier, robust=robust, bulk=bulk, window=window
    ):
        if isinstance(measurement, FormatError):
            raise measurement
        measurements.append(measurement)
    return measurements


def measure_each(
    pairs: Sequence[Pair],
    threads: int = 0,
    *,
    tier: Tier = "default",
    robust: bool = False,
    bulk: bool = False,
    window: int = WINDOW,
) -> list[Measurement | FormatError]:
    """As `measure`, with a FormatError for each pair whose file cannot be read."""
    native = [native_pair(pair, rules_of(pair)) for pair in pairs]
    below = inf if bulk else BULK_BELOW
    rows = _kernel.measure(native, tier, threads, window, robust, ROBUST_ABOVE, below)
    return [
        _unreadable_error(row) if isinstance(row, str) else build_measurement(row) for row in rows
    ]


def statistics(operand: Operand) -> Statistics:
    """The statistics of a tensor, over its finite elements.

    For complex elements they describe the modulus. Without a finite element all but the counts are
    NaN.
    """
    fields = _kernel.describe(native_operand(operand, -inf))
    if isinstance(fields, str):
        raise _unreadable_error(fields)
    count, mean, std, least, greatest, l2, nans, infs, zeros = fields
    return Statistics(
        count=count,
        min=nan if least is None else least,
        max=nan if greatest is None else greatest,
        mean=nan if mean is None else mean,
        std=nan if std is None else std,
        l2=nan if l2 is None else l2,
        nan=nans,
        inf=infs,
        zero=zeros,
    )


def _unreadable_error(why: str) -> FormatError:
    return FormatError(
        f"cannot read the tensor from its file: {why}", cure="record the run or copy the file again"
    )


def native_pair(pair: Pair, rules: Rules) -> _kernel.Pair:
    """A pair as the kernel reads it; the caller must keep the pair alive meanwhile."""
    target, reference = pair.target, pair.reference
    if target.logical_shape != reference.logical_shape:
        raise ValueError(
            f"shapes differ: target {target.logical_shape}, reference {reference.logical_shape}"
        )
    return _kernel.Pair(
        native_operand(target, rules.target_mask),
        native_operand(reference, rules.reference_mask),
        rules.rtol if pair.rtol is None else pair.rtol,
        rules.atol if pair.atol is None else pair.atol,
        rules.rtol,
        inf if rules.overflow_limit is None else rules.overflow_limit,
        rules.ulp_unit,
        rules.ulp_type.mantissa,
        rules.ulp_type.min_exponent,
        rules.step_of,
    )


def native_operand(side: Operand, mask_below: float) -> _kernel.Operand:
    """An operand as the kernel reads it; the caller must keep its data alive meanwhile."""
    data, quantization = side.data, side.quantization
    _check_data(side)
    location: np.ndarray | tuple[str, int, int]
    if isinstance(data, FileRegion):
        location, packed = (data.path, data.offset, data.nbytes), dtype_of(side.dtype).packed
    else:
        location, packed = data, side.shape is not None
    if quantization is None:
        return _kernel.Operand(
            location, side.dtype, side.shape, packed, mask_below, (), (), (), -1, 0
        )
    shape = side.logical_shape
    _check_quantization(quantization, shape)
    return _kernel.Operand(
        location,
        side.dtype,
        side.shape,
        packed,
        mask_below,
        quantization.scale,
        quantization.zero_point,
        quantization.table,
        -1 if quantization.axis is None else quantization.axis % len(shape),
        quantization.block,
    )


def _check_data(side: Operand) -> None:
    """Raise ValueError if the data is too small or has another type than the operand says."""
    data, dtype = side.data, dtype_of(side.dtype)
    if isinstance(data, FileRegion):
        count = prod(side.logical_shape)
        if data.offset < 0 or data.nbytes < dtype.nbytes(count):
            raise ValueError(
                f"{data.nbytes} bytes at offset {data.offset} are too few for {count} elements"
            )
        return
    if side.shape is not None:
        if not dtype.packed or data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError("only i4 and u4 in 1-D uint8 data can be packed")
        if data.size < dtype.nbytes(prod(side.shape)):
            raise ValueError(f"{data.size} bytes are too few for shape {side.shape}")
        return
    if not _can_hold(data.dtype, side.dtype):
        raise ValueError(f"data of NumPy type {data.dtype} cannot be read as {side.dtype}")


@lru_cache(maxsize=256)
def _can_hold(stored: np.dtype, name: str) -> bool:
    """Whether an array of this NumPy type can hold the element type `name`, in any byte order."""
    element_type = dtype_of(name).numpy
    is_raw = stored.kind == "u" or stored.type is np.void
    return stored.newbyteorder("=") == element_type or (
        is_raw and stored.itemsize == element_type.itemsize
    )


def _check_quantization(quantization: Quantization, shape: tuple[int, ...]) -> None:
    scales, zeros, axis = len(quantization.scale), len(quantization.zero_point), quantization.axis
    expected_scales = 1
    if axis is not None:
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"quantization axis {axis} is not one of shape {shape}")
        block = max(quantization.block, 1)
        expected_scales = (shape[axis] + block - 1) // block
    if scales not in (1, expected_scales) or zeros not in (1, scales):
        raise ValueError(
            f"{scales} scales and {zeros} zero points do not fit axis {axis} of shape {shape}"
        )
