"""Limits of a diagnosis (time, elements), and the functions that read a tensor's recorded values
within them, whole or window by window.

Every cause reads values through this module. A tensor up to `MAX_ELEMENTS` is read completely. Of a
larger one a cause may read a sample (large_tensor_samples.py); a finding that rests on a sample
says so and has a lower confidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.errors import SyncpointError
from syncpoint.run.model import Kept, Tensor, TensorKey
from syncpoint.run.reader import Run

Values = NDArray[np.float64]

MAX_ELEMENTS = 1 << 24
"""Elements of the largest tensor to read completely: 128 MiB in float64."""
MAX_REGION_ELEMENTS = 1 << 26
"""Maximum elements of inputs and outputs of a region to compute again: 512 MiB in float64, of which
an experiment holds a few copies."""
WINDOW_ELEMENTS = 1 << 22
"""Elements of a window, for tensors that are read in windows."""
EXTRA_SECONDS = 60.0
"""Seconds for reading values after the time for experiments is over."""


class TimeUp(Exception):
    """The time for the diagnosis is over. Not a SyncpointError: only `diagnose` may catch it."""


@dataclass
class Budget:
    """The limits of one diagnosis, and what it did not read because of them."""

    end: float = float("inf")
    """End of the diagnosis, on the clock of `monotonic`."""
    samples: dict[TensorKey, str] = field(default_factory=dict)
    """Target tensor -> text about the sample that was read of its sync point."""
    too_large: dict[TensorKey, int] = field(default_factory=dict)
    """Tensor that was not read, or whose op was not computed again -> number of elements."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Apply these limits to the reads of this module."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)


_ACTIVE: ContextVar[Budget | None] = ContextVar("budget of the diagnosis", default=None)


def check_time() -> None:
    """Raise TimeUp if the diagnosis has run for too long."""
    budget = _ACTIVE.get()
    if budget is not None and monotonic() > budget.end:
        raise TimeUp


def note_too_large(key: TensorKey, elements: int) -> None:
    """Remember a tensor that is not read because of its size."""
    budget = _ACTIVE.get()
    if budget is not None:
        budget.too_large[key] = elements


def read_real_values(run: Run, tensor: Tensor | None) -> Values | None:
    """Read a recorded tensor in float64; None if its values were not kept, cannot be read, or are
    more than `MAX_ELEMENTS`."""
    if tensor is None or not _is_readable(tensor):
        return None
    try:
        return np.asarray(dequantize(operand_of(run, tensor)), np.float64)
    except (SyncpointError, ValueError, TypeError):
        return None


def read_stored_values(run: Run, tensor: Tensor | None) -> NDArray[Any] | None:
    """Read a recorded tensor as it is stored: integers if it is quantized."""
    if tensor is None or not _is_readable(tensor):
        return None
    try:
        return run.values(tensor)
    except SyncpointError:
        return None


def _is_readable(tensor: Tensor) -> bool:
    check_time()
    if tensor.kept is not Kept.VALUES:
        return False
    if tensor.count > MAX_ELEMENTS:
        note_too_large(tensor.key, tensor.count)
        return False
    return True


def read_windows(run: Run, tensor: Tensor) -> Iterator[Values]:
    """Yield all elements of a tensor in row-major order, in float64, one window at a time.
    Quantized tensors are not dequantized."""
    for start in range(0, tensor.count, WINDOW_ELEMENTS):
        check_time()
        stop = min(start + WINDOW_ELEMENTS, tensor.count)
        yield np.asarray(run.window(tensor, start, stop), np.float64).reshape(-1)
