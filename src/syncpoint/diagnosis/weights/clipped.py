"""Weights that were cut off when they were made integers: many of them are the last integer that is
used, whatever the type could hold, and all others are what they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import read_real_values, read_stored_values
from syncpoint.run.model import Kept, Tensor
from syncpoint.run.reader import Run

Array = NDArray[Any]
_LEAST = 4
"""Elements of a channel that tell its factor."""


@dataclass(frozen=True)
class Cut:
    """A weight of the reference as it is with the target's ends."""

    value: Array
    low: float
    high: float
    share: float
    greatest: float
    """As the target has it: a norm that was folded in is part of it."""


def cut_weight(run: Run, tensor: Tensor, value: Array) -> Cut | None:
    """What the target's integers leave of a weight; None where they cut nothing off, or are not
    of this weight."""
    if tensor.kept is not Kept.VALUES or tensor.quantization is None or value.ndim < 2:
        return None
    stored, real = read_stored_values(run, tensor), read_real_values(run, tensor)
    if stored is None or real is None:
        return None
    whole = np.asarray(stored, np.float64)
    if value.ndim == 2 and real.ndim == 2 and _turned(real, value):
        whole, real = whole.T, real.T
    if real.shape != value.shape or not value.size:
        return None
    last = (whole == whole.min()) | (whole == whole.max())
    channels = len(value)
    flat, mine, free = (v.reshape(channels, -1) for v in (value, real, ~last))
    square = np.sum(np.square(flat) * free, 1)
    known = (np.count_nonzero(free, 1) >= _LEAST) & (square > 0)
    if not known.any():
        return None
    factor = np.sum(flat * mine * free, 1) / np.where(known, square, 1.0)
    factor = np.where(known & (factor > 0), factor, np.median(factor[known]))[:, None]
    wanted = flat * factor
    step = np.max(np.abs(tensor.quantization.scale))
    low, high = float(mine.min()), float(mine.max())
    if len(tensor.quantization.scale) > 1:
        lows, highs = mine.min(1, keepdims=True), mine.max(1, keepdims=True)
    else:
        lows, highs = np.full((1, 1), low), np.full((1, 1), high)
    beyond = (wanted < lows - step / 2) | (wanted > highs + step / 2)
    if not beyond.any() or not factor.all():
        return None
    made = np.clip(wanted, lows, highs) / factor
    return Cut(
        made.reshape(value.shape).astype(value.dtype),
        low,
        high,
        float(np.mean(beyond)),
        float(np.abs(wanted[beyond]).max()),
    )


def _turned(real: Array, value: Array) -> bool:
    """Whether a weight lies the other way round; of a square one its values tell."""
    if real.T.shape != value.shape or real.shape != value.shape:
        return real.T.shape == value.shape
    straight, turned = (float(np.sum(value * v)) for v in (real, real.T))
    return turned > straight
