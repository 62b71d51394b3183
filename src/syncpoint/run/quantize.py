"""Quantize real numbers to stored integers by scale and zero point (per tensor or axis), clipped to
the type's range."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Quantization


def quantize_values(
    values: NDArray[Any], quantization: Quantization, dtype: np.dtype[Any], name: str
) -> NDArray[Any]:
    """Round to the nearest stored integers of this type, halves to even, clipped to its range.
    `name` is the tensor's, for the message."""
    if quantization.table:
        raise Unsupported(
            f"{name} is quantized with a look-up table, which is not supported here; only a scale"
            " and a zero point are"
        )
    scale, zero = (
        _broadcast_along_axis(np.asarray(x, np.float64), quantization, values.shape)
        for x in (quantization.scale, quantization.zero_point)
    )
    kind = from_numpy(np.dtype(dtype))
    low = 0 if kind.name.startswith("u") else -(2 ** (kind.bits - 1))
    high = low + 2**kind.bits - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        integers = np.rint(values.astype(np.float64) / scale) + zero
    integers = np.clip(np.where(np.isnan(integers), zero, integers), low, high)
    return np.asarray(integers.astype(dtype))


def _broadcast_along_axis(
    numbers: NDArray[Any], quantization: Quantization, shape: tuple[int, ...]
) -> NDArray[Any]:
    if quantization.axis is None or numbers.size == 1:
        return numbers
    if quantization.block:
        numbers = np.repeat(numbers, quantization.block)[: shape[quantization.axis]]
    broadcast_shape = [1] * len(shape)
    broadcast_shape[quantization.axis] = -1
    return numbers.reshape(broadcast_shape)
