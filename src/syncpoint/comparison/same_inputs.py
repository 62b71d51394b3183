"""Mark model inputs that are the same on both sides, up to rounding: clip values to the range of
the other side's type, round to both types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, fit_view, operand_of, quantization_steps
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.matching.views import View
from syncpoint.metrics import Operand
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Role, Tensor


def mark_same_input(sides: Sides, row: Row) -> Row:
    """The row of a model input with `same_input`; other rows are unchanged.

    Inputs are the same if they are equal after rounding to the coarser of the two types.
    """
    if row.target.key.role is not Role.MODEL_INPUT or row.numbers is None:
        return row
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None or row.basis != Kept.VALUES:
        return row
    if row.numbers["equal"] == row.numbers["count"]:
        same = True
    else:
        try:
            same = _are_equal_when_rounded(sides, row, target, reference)
        except SyncpointError:
            return row
    return replace(row, numbers={**row.numbers, "same_input": same})


def _are_equal_when_rounded(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> bool:
    """Whether rounding the same numbers to both types explains every difference."""
    if (target.dtype, target.quantization) == (reference.dtype, reference.quantization):
        return False
    kinds = {DTYPES[target.dtype].kind, DTYPES[reference.dtype].kind}
    if Kind.COMPLEX in kinds or Kind.BOOL in kinds:
        return False
    try:
        target_operand, _ = fit_view(
            operand_of(sides.target, target), View(row.view), reference.shape
        )
    except ValueError:
        return False
    reference_operand = operand_of(sides.reference, reference)
    target_values, reference_values = dequantize(target_operand), dequantize(reference_operand)
    if target_values.shape != reference_values.shape:
        return False
    target_values, reference_values = (
        _clip_to_range(target_values, reference_operand),
        _clip_to_range(reference_values, target_operand),
    )
    max_difference = _max_rounding(target_operand, reference_values) + _max_rounding(
        reference_operand, reference_values
    )
    with np.errstate(invalid="ignore"):
        same = (np.abs(target_values - reference_values) <= max_difference) | (
            target_values == reference_values
        )
    same |= np.isnan(target_values) & np.isnan(reference_values)
    return bool(same.all())


def _clip_to_range(values: NDArray[Any], operand: Operand) -> NDArray[Any]:
    """The values clipped to the range of the other side's type."""
    dtype = DTYPES[operand.dtype]
    if operand.quantization is not None:
        ends = [
            replace(operand, data=np.full_like(operand.array, end))
            for end in _integer_range(operand)
        ]
        low, high = (dequantize(end) for end in ends)
        clipped: NDArray[Any] = np.clip(values, np.minimum(low, high), np.maximum(low, high))
        return clipped
    if dtype.kind is Kind.FLOAT:
        return np.where(np.abs(values) > dtype.max, np.copysign(np.inf, values), values)
    return values


def _integer_range(operand: Operand) -> tuple[int, int]:
    bits = DTYPES[operand.dtype].bits
    return (
        (0, 2**bits - 1) if operand.dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


def _max_rounding(operand: Operand, values: NDArray[Any]) -> NDArray[Any]:
    """The maximum change of each value by rounding to this operand's type."""
    dtype = DTYPES[operand.dtype]
    max_change: NDArray[Any] = np.zeros(values.shape)
    if operand.quantization is not None:
        max_change = 0.5001 * np.abs(quantization_steps(operand))
    elif dtype.kind is Kind.FLOAT:
        min_change = 2.0 ** (dtype.min_exponent - dtype.mantissa - 1)
        finite = np.where(np.isfinite(values), np.abs(values), 0.0)
        max_change = np.maximum(1.0001 * dtype.unit * finite, min_change)
    return max_change
