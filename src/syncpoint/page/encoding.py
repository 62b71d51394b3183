"""Numbers and arrays as JSON can hold them."""

from __future__ import annotations

import base64
import math

import numpy as np
from numpy.typing import NDArray

from syncpoint.page.schema import Number


def json_number(value: float | None) -> Number:
    """A number as JSON can say it."""
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "nan"
    return "inf" if value > 0 else "-inf"


def pack_array(values: NDArray[np.float64] | NDArray[np.int64], kind: str) -> str:
    """An array as text."""
    with np.errstate(over="ignore"):
        return base64.b64encode(np.ascontiguousarray(values, kind).tobytes()).decode()
