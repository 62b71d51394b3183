"""Encode numbers (NaN, infinities) and arrays (base64) for JSON messages of the page."""

from __future__ import annotations

import base64
import math

import numpy as np
from numpy.typing import NDArray

from syncpoint.page.schema import Number


def json_number(value: float | None) -> Number:
    """Return a number as JSON can hold it: NaN and infinities become strings."""
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def pack_array(values: NDArray[np.float64] | NDArray[np.int64], dtype: str) -> str:
    """Return an array as base64 text, converted to `dtype`."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()
