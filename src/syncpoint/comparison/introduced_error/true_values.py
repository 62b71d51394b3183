"""The target's values against float64 values that stand for the reference."""

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
    """The target against float64 values that stand for the reference. Mask positions are told
    by the reference's own type: its lowest value is nothing special in float64."""
    mask = mask_below(reference_dtype)
    reference = Operand(truth, dtype_name(truth), mask_below=mask)
    return measure([Pair(operand, reference)], bulk=True)[0]


def mask_below(dtype: str) -> float | None:
    """At or below this, a value of this type is a mask position."""
    kind = DTYPES[dtype]
    return -kind.max / 2 if kind.kind is Kind.FLOAT and kind.bits >= 16 else None


def _border(operand: Operand) -> float:
    known = operand.mask_below
    return known if known is not None else mask_below(operand.dtype) or -inf


def dtype_name(array: NDArray[Any]) -> str:
    """The name of the element type of an array."""
    return from_numpy(array.dtype).name


def with_marks_of(truth: NDArray[Any], target: Operand, recorded: Operand) -> NDArray[Any]:
    """The truth with NaN, inf and mask where the target and the recorded reference both have
    one: float64 stays finite where the reference's own precision does not, and a mask of
    float16, -65504 plus a score, is an ordinary number for it."""
    if truth.dtype.kind != "f":
        return truth
    wide = dequantize(recorded)
    masked = wide <= _border(recorded)
    marked = ~np.isfinite(wide) | masked
    seen = dequantize(target)
    marked &= ~np.isfinite(seen) | (seen <= _border(target))
    return np.where(marked, np.where(masked, -inf, wide), truth)


@dataclass(frozen=True)
class Exact:
    """The float64 outputs of one region on the target's values, with what made them."""

    region: Region
    inputs: Mapping[Edge, NDArray[Any]]
    outputs: dict[int, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class OutputOperands:
    """One output of an op of the target beside its true value."""

    target: Tensor
    reference: Tensor
    operand: Operand
    """The target's values, seen through the view."""
    truth: NDArray[Any]
    """What the reference's op gives in float64 on the target's values."""
    index: int
    local: str
    """The precision of the op itself."""
    hidden: PrecisionBetween
    """The precisions of ops that only the target has on the way to this one."""
