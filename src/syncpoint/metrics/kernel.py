"""Hands tensors to the native kernel by address and reads its sums back."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, prod

import numpy as np

from syncpoint.metrics import _kernel
from syncpoint.metrics.measurement import Measurement, describe_side, measured
from syncpoint.metrics.pair import Operand, Pair, Rules, rules_of
from syncpoint.run.dtypes import dtype as dtype_of
from syncpoint.run.model import Quantization, Statistics

_PLAIN = Quantization(scale=(), zero_point=())
"""How the kernel is told that an operand is not quantized."""


def measure(pairs: Sequence[Pair], threads: int = 0) -> list[Measurement]:
    """Measure every pair, several at a time; 0 threads means one for each core.

    The bits of the results depend on neither threads nor strides.
    """
    rules = [rules_of(pair) for pair in pairs]
    native = [native_pair(pair, rule) for pair, rule in zip(pairs, rules, strict=True)]
    results = _kernel.measure(native, threads)
    return [measured(result, rule) for result, rule in zip(results, rules, strict=True)]


def statistics(operand: Operand) -> Statistics:
    """What is kept of a tensor in place of its values, over its finite elements.

    Of complex elements the modulus is described. Without a finite element everything but the
    counts is NaN.
    """
    found = _kernel.describe(_native_operand(operand, -inf))
    side = describe_side(found.side, found.finite)
    return Statistics(
        count=found.count,
        min=nan if side.min is None else side.min,
        max=nan if side.max is None else side.max,
        mean=nan if side.mean is None else side.mean,
        std=nan if side.std is None else side.std,
        l2=nan if side.l2 is None else side.l2,
        nan=found.side.nan,
        inf=found.side.inf,
        zero=found.side.zero,
    )


def native_pair(pair: Pair, rules: Rules) -> _kernel.Pair:
    """A pair as the kernel reads it; whoever calls keeps the pair while the kernel works."""
    target, reference = pair.target, pair.reference
    if target.logical_shape != reference.logical_shape:
        raise ValueError(
            f"shapes differ: target {target.logical_shape}, reference {reference.logical_shape}"
        )
    return _kernel.Pair(
        _native_operand(target, rules.target_mask),
        _native_operand(reference, rules.reference_mask),
        rtol=rules.rtol if pair.rtol is None else pair.rtol,
        atol=rules.atol if pair.atol is None else pair.atol,
        mask_rtol=rules.rtol,
        overflow_limit=inf if rules.overflow_limit is None else rules.overflow_limit,
        ulp_unit=rules.ulp_unit,
        mantissa=rules.ulp_type.mantissa,
        min_exponent=rules.ulp_type.min_exponent,
        step_of=rules.step_of,
    )


def _native_operand(side: Operand, mask_below: float) -> _kernel.Operand:
    data = side.data
    _check_data(side)
    quantization = side.quantization
    if quantization is None:
        quantization = _PLAIN
    else:
        _check_quantization(quantization, side.logical_shape)
    return _kernel.Operand(
        address=data.__array_interface__["data"][0],
        dtype=side.dtype,
        shape=side.logical_shape,
        strides=data.strides,
        swapped=not data.dtype.isnative,
        packed=side.shape is not None,
        mask_below=mask_below,
        scale=quantization.scale,
        zero_point=quantization.zero_point,
        table=quantization.table,
        axis=-1 if quantization.axis is None else quantization.axis % len(side.logical_shape),
        block=quantization.block,
    )


def _check_data(side: Operand) -> None:
    """Refuse memory that does not hold what the operand says: the kernel would read beyond it."""
    data, dtype = side.data, dtype_of(side.dtype)
    if side.shape is not None:
        if not dtype.packed or data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError("only i4 and u4 in 1-D uint8 data can be packed")
        if data.size < dtype.nbytes(prod(side.shape)):
            raise ValueError(f"{data.size} bytes are too few for shape {side.shape}")
        return
    unnamed = data.dtype.kind == "u" or data.dtype.type is np.void
    raw = unnamed and data.dtype.itemsize == dtype.numpy.itemsize
    if not raw and data.dtype.newbyteorder("=") != dtype.numpy:
        raise ValueError(f"data of NumPy type {data.dtype} does not hold {side.dtype}")


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
