"""Real numbers -> the stored integers that stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import Unsupported
from syncpoint.run.dtypes import from_numpy
from syncpoint.run.model import Quantization


def quantize_values(
    values: NDArray[Any], meaning: Quantization, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The nearest integers of this type, halves to even; what is out of range goes to its end."""
    if meaning.table:
        raise Unsupported("evenly spaced numbers to round to", "a look-up table")
    scale, zero = (
        _along(np.asarray(x, np.float64), meaning, values.shape)
        for x in (meaning.scale, meaning.zero_point)
    )
    kind = from_numpy(np.dtype(dtype))
    low = 0 if kind.name.startswith("u") else -(2 ** (kind.bits - 1))
    high = low + 2**kind.bits - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.rint(values.astype(np.float64) / scale) + zero
    found = np.clip(np.where(np.isnan(found), zero, found), low, high)
    return np.asarray(found.astype(dtype))


def _along(numbers: NDArray[Any], meaning: Quantization, shape: tuple[int, ...]) -> NDArray[Any]:
    if meaning.axis is None or numbers.size == 1:
        return numbers
    if meaning.block:
        numbers = np.repeat(numbers, meaning.block)[: shape[meaning.axis]]
    form = [1] * len(shape)
    form[meaning.axis] = -1
    return numbers.reshape(form)
