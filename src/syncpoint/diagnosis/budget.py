"""What a diagnosis may read and how long it may take, and the reads that keep to it.

Every cause reads values through this module. A tensor up to `MAX_ELEMENTS` is read whole. Of a
larger one a cause may look at a sample (large_tensor_samples.py); a finding that rests on a sample
says so and is never sure.
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
"""Elements of the largest tensor that is read whole: 128 MiB in float64."""
MAX_REGION_ELEMENTS = 1 << 26
"""Elements that the ops behind one sync point read and give, up to which they are computed again:
512 MiB in float64, of which an experiment holds a few copies."""
WINDOW_ELEMENTS = 1 << 22
"""Elements of a window, where a tensor is read in windows."""
EXTRA_SECONDS = 60.0
"""How long values may still be looked at when the time for experiments is over."""


class TimeUp(Exception):
    """The time for the diagnosis is over. Not a SyncpointError: only `diagnose` may catch it."""


@dataclass
class Budget:
    """The limits of one diagnosis, and what they kept it from reading."""

    end: float = float("inf")
    """On the clock of `monotonic`."""
    samples: dict[TensorKey, str] = field(default_factory=dict)
    """Target tensor -> which part of its sync point was looked at, in words."""
    too_large: dict[TensorKey, int] = field(default_factory=dict)
    """Tensor that was not read, or whose op was not computed again -> elements."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the reads of this module keep to these limits."""
        token = _ACTIVE.set(self)
        try:
            yield
        finally:
            _ACTIVE.reset(token)


_ACTIVE: ContextVar[Budget | None] = ContextVar("budget of the diagnosis", default=None)


def check_time() -> None:
    """Raise TimeUp when the diagnosis has run for too long."""
    budget = _ACTIVE.get()
    if budget is not None and monotonic() > budget.end:
        raise TimeUp


def note_too_large(key: TensorKey, elements: int) -> None:
    """Remember a tensor that is not read because of its size."""
    budget = _ACTIVE.get()
    if budget is not None:
        budget.too_large[key] = elements


def real_values(run: Run, tensor: Tensor | None) -> Values | None:
    """The numbers of a recorded tensor in float64; None where they were not kept, cannot be read,
    or are more than `MAX_ELEMENTS`."""
    if tensor is None or not _is_readable(tensor):
        return None
    try:
        return np.asarray(dequantize(operand_of(run, tensor)), np.float64)
    except (SyncpointError, ValueError, TypeError):
        return None


def stored_values(run: Run, tensor: Tensor | None) -> NDArray[Any] | None:
    """The same as they are stored: integers where the tensor is quantized."""
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


def windows(run: Run, tensor: Tensor) -> Iterator[Values]:
    """All elements of a tensor in row-major order, in float64, a window at a time. What is stored
    as integers stays integers."""
    for start in range(0, tensor.count, WINDOW_ELEMENTS):
        check_time()
        stop = min(start + WINDOW_ELEMENTS, tensor.count)
        yield np.asarray(run.window(tensor, start, stop), np.float64).reshape(-1)
