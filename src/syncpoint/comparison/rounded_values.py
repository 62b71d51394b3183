"""Values rounded to a coarser type: rounding inputs, and recognizing correctly rounded values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.metrics.limits import PRESETS, Limits, preset_of
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Edge, Kept, Role


def is_correctly_rounded(row: Row, limits: Limits) -> bool:
    """Whether every element is the reference value, rounded to the coarser of the two types.

    Such a value may differ much if it is subnormal: 1e-6 in float16 differs by 1.3 %, and no
    float16 is closer. If the user chose stricter limits than those of the type, they hold.
    """
    numbers = row.numbers or {}
    types = [DTYPES[end.dtype] for end in (row.target, row.reference)]
    if row.basis != Kept.VALUES or limits.exact or any(t.kind is not Kind.FLOAT for t in types):
        return False
    coarser_type = min(types, key=lambda t: t.mantissa)
    if PRESETS[preset_of(coarser_type.name)].psnr[0] < limits.psnr[0]:
        return False
    distance = numbers.get("max_ulp")
    return distance is not None and distance <= 0.5 and not numbers["mismatched"]


def round_inputs(inputs: Mapping[Edge, NDArray[Any]], dtype: str) -> dict[Edge, NDArray[Any]]:
    """The inputs after a cast to a type and back; parameters stay as they are."""
    numpy_dtype = DTYPES[dtype].numpy
    with np.errstate(over="ignore", invalid="ignore"):
        return {
            edge: value.astype(numpy_dtype).astype(value.dtype)
            if value.dtype.kind == "f" and edge.role is not Role.PARAMETER
            else value
            for edge, value in inputs.items()
        }
