"""Root mean squares of errors, of all elements and of the bulk, as introduced error needs them.

Both stand side by side because a few massive activations hide the other one: what rounding costs
an element of 10,000 is more than everything that can go wrong with the elements of size 1 around
it. `metrics/limits.py` judges total error by the bulk for the same reason.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import steps_of
from syncpoint.comparison.rows import Row
from syncpoint.metrics import Measurement, Operand, Pair, measure
from syncpoint.metrics.limits import PRESETS
from syncpoint.run.dtypes import DTYPES, Kind, from_numpy

Noise = NDArray[np.float64]
"""Root mean square of all elements, then of those that are no outliers of the true values. The two
are the same where there are no outliers."""

BESIDE_OUTLIERS = "introduced ÷ expected is of the elements beside the outliers"
"""The note of a row whose bulk is worse than the whole."""


def no_noise() -> Noise:
    """Nothing is off."""
    return np.zeros(2)


def same_noise(rms: float) -> Noise:
    """Noise that outliers and bulk have alike."""
    return np.array([rms, rms])


def noise_of(found: Measurement) -> Noise:
    """The error of a measurement that was made with `bulk`."""
    rms = found.rmse or 0.0
    return np.array([rms, rms if found.bulk_rmse is None else found.bulk_rmse])


def distance(values: NDArray[Any] | None, truth: NDArray[Any]) -> Noise:
    """How far values are from the truth; none where they are of another shape."""
    if values is None or values.shape != truth.shape or not truth.size:
        return no_noise()
    mine, theirs = (Operand(array, from_numpy(array.dtype).name) for array in (values, truth))
    return noise_of(measure([Pair(mine, theirs)], bulk=True)[0])


def rounding(operand: Operand, truth: NDArray[Any]) -> Noise:
    """What rounding the exact result to the target's type costs."""
    if operand.quantization is not None and truth.dtype.kind == "f":
        return same_noise(_quantizing(operand, truth))
    dtype = DTYPES[operand.dtype]
    if dtype.kind not in (Kind.FLOAT, Kind.COMPLEX) or truth.dtype.kind not in "fc":
        return no_noise()
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = truth.astype(dtype.numpy)
    return distance(rounded, truth)


def _quantizing(operand: Operand, truth: NDArray[Any]) -> float:
    """Half a step spread evenly: the mean square of rounding to a grid is step²/12."""
    if operand.quantization is None or operand.quantization.table or not truth.size:
        return 0.0
    return float(np.sqrt(np.mean(np.square(steps_of(operand))) / 12))


def ratio_of(found: Measurement, expected: Noise) -> float:
    """Introduced over expected error, of all elements or of the bulk, whichever is worse."""
    if found.mismatched:
        return inf
    return max(_ratio(*pair) for pair in zip(noise_of(found), expected, strict=True))


def with_bulk_note(row: Row, found: Measurement, expected: Noise | None) -> Row:
    """The row, with a note where it is guilty by its bulk alone."""
    made = row.introduced
    if made is None or expected is None or found.mismatched or found.bulk_rmse is None:
        return row
    whole, bulk = (_ratio(*pair) for pair in zip(noise_of(found), expected, strict=True))
    if bulk <= max(whole, PRESETS[made.preset].introduced[0]):
        return row
    return replace(row, notes=(*row.notes, BESIDE_OUTLIERS))


def _ratio(introduced: float, expected: float) -> float:
    if not introduced:
        return 0.0
    return float(introduced / expected) if expected > 0 else inf
