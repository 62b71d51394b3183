"""Whether both sides were given the same model inputs, whatever types they keep them in."""

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
    """The row of a model input with whether both sides were given the same; others as they are.

    Inputs are the same if they are equal once the finer side is rounded to the coarser.
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
    """Whether the two are no further apart than rounding one number to both types explains."""
    if (target.dtype, target.quantization) == (reference.dtype, reference.quantization):
        return False
    kinds = {DTYPES[target.dtype].kind, DTYPES[reference.dtype].kind}
    if Kind.COMPLEX in kinds or Kind.BOOL in kinds:
        return False
    try:
        t, _ = fit_view(operand_of(sides.target, target), View(row.view), reference.shape)
    except ValueError:
        return False
    r = operand_of(sides.reference, reference)
    mine, theirs = dequantize(t), dequantize(r)
    if mine.shape != theirs.shape:
        return False
    mine, theirs = _clip_to_range(mine, r), _clip_to_range(theirs, t)
    allowed = _max_rounding(t, theirs) + _max_rounding(r, theirs)
    with np.errstate(invalid="ignore"):
        same = (np.abs(mine - theirs) <= allowed) | (mine == theirs)
    same |= np.isnan(mine) & np.isnan(theirs)
    return bool(same.all())


def _clip_to_range(values: NDArray[Any], by: Operand) -> NDArray[Any]:
    """What is left of the values in the range of the other side's type."""
    dtype = DTYPES[by.dtype]
    if by.quantization is not None:
        ends = [replace(by, data=np.full_like(by.array, end)) for end in _integer_range(by)]
        low, high = (dequantize(end) for end in ends)
        inside: NDArray[Any] = np.clip(values, np.minimum(low, high), np.maximum(low, high))
        return inside
    if dtype.kind is Kind.FLOAT:
        return np.where(np.abs(values) > dtype.max, np.copysign(np.inf, values), values)
    return values


def _integer_range(operand: Operand) -> tuple[int, int]:
    bits = DTYPES[operand.dtype].bits
    return (
        (0, 2**bits - 1) if operand.dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


def _max_rounding(operand: Operand, values: NDArray[Any]) -> NDArray[Any]:
    """The most by which rounding to this operand's type moves a value."""
    dtype = DTYPES[operand.dtype]
    moved: NDArray[Any] = np.zeros(values.shape)
    if operand.quantization is not None:
        moved = 0.5001 * np.abs(quantization_steps(operand))
    elif dtype.kind is Kind.FLOAT:
        least = 2.0 ** (dtype.min_exponent - dtype.mantissa - 1)
        finite = np.where(np.isfinite(values), np.abs(values), 0.0)
        moved = np.maximum(1.0001 * dtype.unit * finite, least)
    return moved
