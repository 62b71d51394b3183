"""Measure the target against true values in float64, with mask positions, NaN and inf copied from
the recorded tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize
from syncpoint.comparison.tensor_precision import PrecisionBetween
from syncpoint.metrics import Measurement, Operand, Pair, measure
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy
from syncpoint.run.model import Edge, Tensor
from syncpoint.runtimes.protocol import Region


def measure_against(operand: Operand, truth: NDArray[Any], reference_dtype: str) -> Measurement:
    """Measure the target against true values in float64. Mask positions are recognized by the type
    of the reference: its lowest value is an ordinary number in float64."""
    mask_limit = mask_below(reference_dtype)
    reference = Operand(truth, dtype_name(truth), mask_below=mask_limit)
    return measure([Pair(operand, reference)], bulk=True)[0]


def mask_below(dtype: str) -> float | None:
    """The value at or below which a number of this type is a mask position; None without mask."""
    kind = DTYPES[dtype]
    return -kind.max / 2 if kind.kind is Kind.FLOAT and kind.bits >= 16 else None


def _mask_limit_of(operand: Operand) -> float:
    recorded_limit = operand.mask_below
    return recorded_limit if recorded_limit is not None else mask_below(operand.dtype) or -inf


def dtype_name(array: NDArray[Any]) -> str:
    """The name of the element type of an array."""
    return from_numpy(array.dtype).name


def copy_non_finite_marks(truth: NDArray[Any], target: Operand, recorded: Operand) -> NDArray[Any]:
    """Copy NaN, inf and mask positions to the truth where both the target and the recorded
    reference have them. Float64 stays finite where the reference overflows, and a mask of float16,
    -65504 plus a score, is an ordinary number in float64."""
    if truth.dtype.kind != "f":
        return truth
    recorded_values = dequantize(recorded)
    masked = recorded_values <= _mask_limit_of(recorded)
    marked = ~np.isfinite(recorded_values) | masked
    target_values = dequantize(target)
    marked &= ~np.isfinite(target_values) | (target_values <= _mask_limit_of(target))
    return np.where(marked, np.where(masked, -inf, recorded_values), truth)


@dataclass(frozen=True)
class ExactOutputs:
    """The float64 outputs of one region on the target's values, with region and inputs."""

    region: Region
    inputs: Mapping[Edge, NDArray[Any]]
    outputs: dict[int, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class OutputOperands:
    """One output of a target op and its true value."""

    target: Tensor
    reference: Tensor
    operand: Operand
    """The target's values through the view."""
    truth: NDArray[Any]
    """The output of the reference's op in float64 on the target's values."""
    index: int
    precision: str
    """The precision of the op itself."""
    hidden: PrecisionBetween
    """The precisions of ops before this one that only the target has."""
