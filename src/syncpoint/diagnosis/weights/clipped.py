"""Explain a recorded weight clipped by quantization: many elements are the first or last integer,
and all others are correct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import read_real_values, read_stored_values
from syncpoint.run.model import Kept, Tensor
from syncpoint.run.reader import Run

Array = NDArray[Any]
_MIN_CHANNEL_ELEMENTS = 4
"""Minimum number of unclipped elements to compute the factor of a channel."""


@dataclass(frozen=True)
class ClippedWeight:
    """A weight of the reference, clipped to the range of the target's integers."""

    value: Array
    low: float
    high: float
    share: float
    greatest: float
    """Largest magnitude outside the range, in the target's scale: it includes a folded norm."""


def clip_weight(run: Run, tensor: Tensor, value: Array) -> ClippedWeight | None:
    """Clip a weight to the range of the target's integers; None if nothing is outside the range, or
    the integers are of another weight."""
    if tensor.kept is not Kept.VALUES or tensor.quantization is None or value.ndim < 2:
        return None
    stored, real = read_stored_values(run, tensor), read_real_values(run, tensor)
    if stored is None or real is None:
        return None
    integers = np.asarray(stored, np.float64)
    if value.ndim == 2 and real.ndim == 2 and _is_transposed(real, value):
        integers, real = integers.T, real.T
    if real.shape != value.shape or not value.size:
        return None
    is_end = (integers == integers.min()) | (integers == integers.max())
    channels = len(value)
    reference_rows, target_rows, is_inner = (
        v.reshape(channels, -1) for v in (value, real, ~is_end)
    )
    square = np.sum(np.square(reference_rows) * is_inner, 1)
    has_factor = (np.count_nonzero(is_inner, 1) >= _MIN_CHANNEL_ELEMENTS) & (square > 0)
    if not has_factor.any():
        return None
    factor = np.sum(reference_rows * target_rows * is_inner, 1) / np.where(has_factor, square, 1.0)
    factor = np.where(has_factor & (factor > 0), factor, np.median(factor[has_factor]))[:, None]
    expected_rows = reference_rows * factor
    step = np.max(np.abs(tensor.quantization.scale))
    low, high = float(target_rows.min()), float(target_rows.max())
    if len(tensor.quantization.scale) > 1:
        lows, highs = target_rows.min(1, keepdims=True), target_rows.max(1, keepdims=True)
    else:
        lows, highs = np.full((1, 1), low), np.full((1, 1), high)
    beyond = (expected_rows < lows - step / 2) | (expected_rows > highs + step / 2)
    if not beyond.any() or not factor.all():
        return None
    clipped_rows = np.clip(expected_rows, lows, highs) / factor
    return ClippedWeight(
        clipped_rows.reshape(value.shape).astype(value.dtype),
        low,
        high,
        float(np.mean(beyond)),
        float(np.abs(expected_rows[beyond]).max()),
    )


def _is_transposed(real: Array, value: Array) -> bool:
    """Whether the target's weight is transposed; for a square weight its values decide."""
    if real.T.shape != value.shape or real.shape != value.shape:
        return real.T.shape == value.shape
    straight, transposed = (float(np.sum(value * v)) for v in (real, real.T))
    return transposed > straight
