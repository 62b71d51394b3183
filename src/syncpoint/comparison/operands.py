"""Turn a recorded tensor into the operand that is measured: values, dtype, scales; views,
dequantization, quantization steps; why shapes do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import FormatError
from syncpoint.matching.views import View
from syncpoint.metrics import Operand
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dims import format_shape
from syncpoint.run.model import Tensor
from syncpoint.run.reader import Run

WIDENED_MASK = -65504.0 * (1 - 2**-8)
"""Limit of a float16 mask that was cast to a wider type: its minimum plus a score."""


def operand_of(run: Run, tensor: Tensor, *, verify: bool = True) -> Operand:
    """A recorded tensor as the kernel reads it; without `verify` the caller verifies it."""
    if tensor.quantization is not None:
        misfit = tensor.quantization.describe_misfit(tensor.shape)
        if misfit:
            raise FormatError(
                f"the quantization of {tensor.key} does not fit its shape, because {misfit}",
                cure="record the run again",
            )
    values = run.values(tensor) if verify else run.unverified_values(tensor)
    return Operand(values, tensor.dtype, tensor.quantization)


def logical_shape(operand: Operand) -> tuple[int, ...]:
    """The shape of the numbers of an operand, unpacked."""
    return operand.shape if operand.shape is not None else operand.array.shape


def fit_view(operand: Operand, view: View, shape: tuple[int, ...]) -> tuple[Operand, View]:
    """The target through its view, and the view.

    Without a view, axes of length 1 are added or removed to fit `shape`, since they do not change
    the order of the elements. Raises ValueError if the view does not fit the target.
    """
    data = operand.array
    if view:
        operand = _plain_for_view(operand)
        return replace(operand, data=view.apply(operand.array)), view
    if data.shape != shape and drop_unit_axes(data.shape) == drop_unit_axes(shape):
        operand = _plain_for_view(operand)
        view = View(f"reshape({','.join(map(str, shape))})")
        return replace(operand, data=operand.array.reshape(shape)), view
    return operand, view


def _plain_for_view(operand: Operand) -> Operand:
    """The operand in a form whose array a view may rearrange. One scale for all elements stays: the
    error that its step allows is that of the tensor, however its elements are arranged."""
    quantization = operand.quantization
    has_one_scale = quantization is not None and quantization.axis is None
    return operand if has_one_scale else undo_quantization(operand)


def undo_quantization(operand: Operand) -> Operand:
    """The operand as float64 without quantization, for code that needs plain numbers."""
    if operand.quantization is None:
        return operand
    return Operand(dequantize(operand), "f64")


def dequantize(operand: Operand) -> NDArray[Any]:
    """The real numbers of an operand in float64."""
    stored = operand.array
    quantization = operand.quantization
    if quantization is None:
        return stored.astype(np.float64)
    scale = np.asarray(quantization.scale, np.float64)
    zero = np.asarray(quantization.zero_point, np.float64)
    if quantization.axis is not None:
        scale, zero = (
            _align_with_axis(x, quantization.axis, quantization.block, stored)
            for x in (scale, zero)
        )
    if quantization.table:
        table = np.asarray([*quantization.table, np.nan], np.float64)
        index = stored.astype(np.int64) - zero.astype(np.int64)
        is_outside = (index < 0) | (index >= len(quantization.table))
        return table[np.where(is_outside, len(quantization.table), index)] * scale
    return (stored.astype(np.float64) - zero) * scale


def quantization_steps(operand: Operand) -> NDArray[Any]:
    """The quantization step at every element."""
    quantization = operand.quantization
    if quantization is None:
        return np.zeros(operand.array.shape)
    ones = replace(operand, data=np.ones(operand.array.shape), dtype="f64")
    plain = replace(quantization, zero_point=(0,), table=())
    return dequantize(replace(ones, quantization=plain))


def _align_with_axis(
    values: NDArray[Any], axis: int, block: int, stored: NDArray[Any]
) -> NDArray[Any]:
    if values.size == 1:
        return values
    if block:
        values = np.repeat(values, block)[: stored.shape[axis]]
    shape = [1] * stored.ndim
    shape[axis] = -1
    return values.reshape(shape)


def shapes_reason(target: tuple[int, ...], reference: tuple[int, ...]) -> Reason:
    """The reason that two shapes differ."""
    return Reason(ReasonCode.SHAPE, f"{format_shape(target)} against {format_shape(reference)}")


def view_reason(view: str, shape: tuple[int, ...]) -> Reason:
    """The reason that a view does not fit a shape."""
    return Reason(ReasonCode.SHAPE, f"the view {view} does not fit {format_shape(shape)}")


def drop_unit_axes(shape: tuple[int, ...]) -> list[int]:
    """The shape without axes of length 1, which do not affect the order of the elements."""
    return [n for n in shape if n != 1]
