"""Hands tensors to the native kernel by address, or by the file they are in, and takes back their
metrics."""

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
"""How much is measured; each includes the ones before it. What is not measured is None."""

WINDOW = 64 << 20
"""Bytes of file regions that are mapped at once, by all threads together."""

ROBUST_ABOVE = 6 * 10 ** (-90 / 20)
"""Mean relative errors up to this are close under the finest preset; see `measure`."""

BULK_BELOW = 90.0
"""Decibels of the bulk that are close under the finest preset; see `measure`."""


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

    The bits of the results depend on neither threads nor strides nor `window`. A file that does
    not hold what its operand says raises FormatError; `measure_each` goes on with the others.

    `mean_rel_robust` takes a second look at the data, because its floor needs the whole reference.
    Without `robust` it is None where it could change no verdict: where `mean_rel`, which it then
    cannot exceed, is at most ROBUST_ABOVE and `rel_undefined` is 0. So do the metrics of the bulk:
    without `bulk` they are None where its sqnr is known to be at least BULK_BELOW, and always where
    outliers do not dominate the sums.
    """
    found = []
    for result in measure_each(pairs, threads, tier=tier, robust=robust, bulk=bulk, window=window):
        if isinstance(result, FormatError):
            raise result
        found.append(result)
    return found


def measure_each(
    pairs: Sequence[Pair],
    threads: int = 0,
    *,
    tier: Tier = "default",
    robust: bool = False,
    bulk: bool = False,
    window: int = WINDOW,
) -> list[Measurement | FormatError]:
    """As `measure`, with the error in its place for each pair whose file cannot be read."""
    native = [native_pair(pair, rules_of(pair)) for pair in pairs]
    below = inf if bulk else BULK_BELOW
    rows = _kernel.measure(native, tier, threads, window, robust, ROBUST_ABOVE, below)
    return [
        _unreadable_error(row) if isinstance(row, str) else build_measurement(row) for row in rows
    ]


def statistics(operand: Operand) -> Statistics:
    """What is kept of a tensor in place of its values, over its finite elements.

    Of complex elements the modulus is described. Without a finite element everything but the
    counts is NaN.
    """
    found = _kernel.describe(native_operand(operand, -inf))
    if isinstance(found, str):
        raise _unreadable_error(found)
    count, mean, std, least, greatest, l2, nans, infs, zeros = found
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
    return FormatError("a file that holds the whole tensor", why, "record or copy it again")


def native_pair(pair: Pair, rules: Rules) -> _kernel.Pair:
    """A pair as the kernel reads it; whoever calls keeps the pair while the kernel works."""
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
    """A side as the kernel reads it; whoever calls keeps its data while the kernel works."""
    data, quantization = side.data, side.quantization
    _check_data(side)
    place: np.ndarray | tuple[str, int, int]
    if isinstance(data, FileRegion):
        place, packed = (data.path, data.offset, data.nbytes), dtype_of(side.dtype).packed
    else:
        place, packed = data, side.shape is not None
    if quantization is None:
        return _kernel.Operand(place, side.dtype, side.shape, packed, mask_below, (), (), (), -1, 0)
    shape = side.logical_shape
    _check_quantization(quantization, shape)
    return _kernel.Operand(
        place,
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
    """Refuse memory that does not hold what the operand says: the kernel would read beyond it."""
    data, dtype = side.data, dtype_of(side.dtype)
    if isinstance(data, FileRegion):
        count = prod(side.logical_shape)
        if data.offset < 0 or data.nbytes < dtype.nbytes(count):
            raise ValueError(f"{data.nbytes} bytes at {data.offset} do not hold {count} elements")
        return
    if side.shape is not None:
        if not dtype.packed or data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError("only i4 and u4 in 1-D uint8 data can be packed")
        if data.size < dtype.nbytes(prod(side.shape)):
            raise ValueError(f"{data.size} bytes are too few for shape {side.shape}")
        return
    if not _can_hold(data.dtype, side.dtype):
        raise ValueError(f"data of NumPy type {data.dtype} does not hold {side.dtype}")


@lru_cache(maxsize=256)
def _can_hold(stored: np.dtype, name: str) -> bool:
    """Whether an array of this NumPy type has elements of the type `name`, in any byte order."""
    wanted = dtype_of(name).numpy
    raw = stored.kind == "u" or stored.type is np.void
    return stored.newbyteorder("=") == wanted or (raw and stored.itemsize == wanted.itemsize)


def _check_quantization(quantization: Quantization, shape: tuple[int, ...]) -> None:
    scales, zeros, axis = len(quantization.scale), len(quantization.zero_point), quantization.axis
    wanted = 1
    if axis is not None:
        if not -len(shape) <= axis < len(shape):
            raise ValueError(f"quantization axis {axis} is not one of shape {shape}")
        block = max(quantization.block, 1)
        wanted = (shape[axis] + block - 1) // block
    if scales not in (1, wanted) or zeros not in (1, scales):
        raise ValueError(
            f"{scales} scales and {zeros} zero points do not fit axis {axis} of shape {shape}"
        )
