"""How far a target differs from itself when it is run again, and what that explains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import stored_values, windows
from syncpoint.diagnosis.case import Case
from syncpoint.errors import SyncpointError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import rms

_GROSS = 64.0
"""Roundings that no order of additions makes."""
_FAIR = 0.05
_FEW = 4.0
"""A difference of so many times the self-noise is still explained by it."""


def find_first(case: Case, noise: dict[TensorKey, float]) -> TensorKey:
    """The first tensor that is not the same twice, of ops where there are any."""
    order = {t.key: index for index, t in enumerate(case.target.tensors if case.target else ())}
    return min(noise, key=lambda key: (key.role is not Role.OUTPUT, order.get(key, 0)))


def find_off(case: Case) -> list[Row]:
    """The guilty rows and the outputs that are off: noise that an op makes must account for all
    that came of it."""
    judged = [*case.guilty, *case.result.outputs]
    return [row for row in judged if row.verdict not in (Verdict.CLOSE, Verdict.NONE)]


def explains_all(case: Case, noise: dict[TensorKey, float]) -> bool:
    """Whether all that is off is off by no more than a few times its noise."""
    off = find_off(case)
    return bool(off) and all(is_within(row, noise) for row in off)


def explains_gross(case: Case, again: Run, noise: dict[TensorKey, float]) -> bool:
    """Whether the guilty ops that are off by more than noise are off where they vary."""
    beyond = [row for row in case.guilty if not is_within(row, noise)]
    return bool(beyond) and all(_varies(case, again, row) for row in beyond)


def _varies(case: Case, again: Run, row: Row) -> bool:
    """Whether what is off here is what is not the same twice: most of it differs from itself by a
    fair part of what it is off, or all that is off does and all that does not is right. Memory that
    nothing was written to may hold much the same each time."""
    experiment = case.experiment(row)
    ours = case.values("target", row)
    wanted = experiment.truth if experiment is not None else case.values("reference", row)
    twin = again.tensor(row.target.key)
    other = _stored(again, twin)
    if ours is None or wanted is None or other is None:
        return False
    if other.size != ours.size or wanted.shape != ours.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(ours - wanted)
        noise = np.abs(ours - other.reshape(ours.shape))
    finite = np.isfinite(error) & np.isfinite(noise)
    off = finite & (error > _GROSS * DTYPES[row.target.dtype].unit * rms(wanted[finite]))
    if not off.any():
        return False
    still = finite & (noise == 0)
    confined = still.any() and not (off & still).any()
    return bool(confined) or float(np.mean(noise[off] >= _FAIR * error[off])) >= 0.5


def self_noise(one: Run, other: Run) -> dict[TensorKey, float]:
    """Tensors that differ between two runs, with the root mean square of the difference."""
    found: dict[TensorKey, float] = {}
    for tensor in one.tensors:
        twin = other.tensor(tensor.key)
        computed = tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)
        if twin is None or not computed or tensor.kept is not Kept.VALUES:
            continue
        if twin.shape != tensor.shape or _same(tensor, twin):
            continue
        try:
            gap = _apart(one, tensor, other, twin)
        except (SyncpointError, TypeError, ValueError):
            continue
        if gap > 0:
            found[tensor.key] = gap
    return found


def _stored(run: Run, tensor: Tensor | None) -> NDArray[np.float64] | None:
    values = stored_values(run, tensor)
    try:
        return None if values is None else np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None


def _apart(one: Run, tensor: Tensor, other: Run, twin: Tensor) -> float:
    """Root mean square of what two tensors differ by, where both are finite."""
    square = 0.0
    for left, right in zip(windows(one, tensor), windows(other, twin), strict=True):
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(left) & np.isfinite(right)
            square += len(left) * rms(np.where(finite, left - right, 0.0)) ** 2
    return float(np.sqrt(square / max(tensor.count, 1)))


def _same(one: Tensor, other: Tensor) -> bool:
    return bool(one.digest) and one.digest_kind == other.digest_kind and one.digest == other.digest


def error_of(row: Row) -> float:
    """How far the target is off here: by its own op where that is known, else in all."""
    if row.introduced is not None and row.guilty:
        return row.introduced.rmse
    found = (row.numbers or {}).get("rmse")
    return float(found) if found is not None else float("inf")


def is_within(row: Row, noise: dict[TensorKey, float]) -> bool:
    """Whether a row is off by no more than a few times its noise."""
    return row.target.key in noise and error_of(row) <= _FEW * noise[row.target.key]
