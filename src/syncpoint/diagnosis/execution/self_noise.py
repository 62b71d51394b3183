"""Measure how far a target differs from a second run of itself (tensors that vary, RMS), and
whether that noise explains the error of all rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.budget import read_stored_values, read_windows
from syncpoint.diagnosis.case import Case
from syncpoint.errors import SyncpointError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Kept, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import rms

_MIN_ERROR_ROUNDINGS = 64.0
"""Roundings that no order of additions causes."""
_MIN_NOISE_SHARE = 0.05
"""Share of the error that the noise of an element must have to explain it."""
_NOISE_FACTOR = 4.0
"""An error up to this many times the noise is explained by it."""


def find_first(case: Case, noise: dict[TensorKey, float]) -> TensorKey:
    """Return the first tensor that varies, of an op if there is one."""
    order = {t.key: index for index, t in enumerate(case.target.tensors if case.target else ())}
    return min(noise, key=lambda key: (key.role is not Role.OUTPUT, order.get(key, 0)))


def find_off(case: Case) -> list[Row]:
    """Return the guilty rows and the outputs that are off: noise must account for all of them."""
    judged = [*case.guilty, *case.result.outputs]
    return [row for row in judged if row.verdict not in (Verdict.CLOSE, Verdict.NONE)]


def explains_all(case: Case, noise: dict[TensorKey, float]) -> bool:
    """Whether every row that is off is off by no more than a few times its noise."""
    off = find_off(case)
    return bool(off) and all(is_within(row, noise) for row in off)


def explains_gross(case: Case, rerun: Run, noise: dict[TensorKey, float]) -> bool:
    """Whether the guilty ops that are off by more than noise are off in elements that vary."""
    beyond = [row for row in case.guilty if not is_within(row, noise)]
    return bool(beyond) and all(_varies(case, rerun, row) for row in beyond)


def _varies(case: Case, rerun: Run, row: Row) -> bool:
    """Whether the elements that are off are those that vary: most of them vary by a good part of
    their error, or every wrong element varies and every constant one is right.

    Uninitialized memory may hold much the same in each run.
    """
    experiment = case.experiment(row)
    target = case.values("target", row)
    expected = experiment.truth if experiment is not None else case.values("reference", row)
    other = _read_stored(rerun, rerun.tensor(row.target.key))
    if target is None or expected is None or other is None:
        return False
    if other.size != target.size or expected.shape != target.shape:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(target - expected)
        noise = np.abs(target - other.reshape(target.shape))
    finite = np.isfinite(error) & np.isfinite(noise)
    off = finite & (
        error > _MIN_ERROR_ROUNDINGS * DTYPES[row.target.dtype].unit * rms(expected[finite])
    )
    if not off.any():
        return False
    constant = finite & (noise == 0)
    confined = constant.any() and not (off & constant).any()
    return bool(confined) or float(np.mean(noise[off] >= _MIN_NOISE_SHARE * error[off])) >= 0.5


def measure_self_noise(one: Run, other: Run) -> dict[TensorKey, float]:
    """Return the tensors that differ between two runs, with the RMS of the difference."""
    noise: dict[TensorKey, float] = {}
    for tensor in one.tensors:
        twin = other.tensor(tensor.key)
        computed = tensor.key.role in (Role.OUTPUT, Role.MODEL_OUTPUT)
        if twin is None or not computed or tensor.kept is not Kept.VALUES:
            continue
        if twin.shape != tensor.shape or _has_same_digest(tensor, twin):
            continue
        try:
            gap = _measure_gap(one, tensor, other, twin)
        except (SyncpointError, TypeError, ValueError):
            continue
        if gap > 0:
            noise[tensor.key] = gap
    return noise


def _read_stored(run: Run, tensor: Tensor | None) -> NDArray[np.float64] | None:
    values = read_stored_values(run, tensor)
    try:
        return None if values is None else np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None


def _measure_gap(one: Run, tensor: Tensor, other: Run, twin: Tensor) -> float:
    """Return the RMS of the difference of two tensors, over elements that are finite in both."""
    square = 0.0
    for window, twin_window in zip(
        read_windows(one, tensor), read_windows(other, twin), strict=True
    ):
        with np.errstate(invalid="ignore", over="ignore"):
            finite = np.isfinite(window) & np.isfinite(twin_window)
            square += len(window) * rms(np.where(finite, window - twin_window, 0.0)) ** 2
    return float(np.sqrt(square / max(tensor.count, 1)))


def _has_same_digest(one: Tensor, other: Tensor) -> bool:
    return bool(one.digest) and one.digest_kind == other.digest_kind and one.digest == other.digest


def error_of(row: Row) -> float:
    """Return the error of a row: the introduced one if it is known, else the total one."""
    if row.introduced is not None and row.guilty:
        return row.introduced.rmse
    rmse = (row.numbers or {}).get("rmse")
    return float(rmse) if rmse is not None else float("inf")


def is_within(row: Row, noise: dict[TensorKey, float]) -> bool:
    """Whether a row is off by no more than a few times its noise."""
    return row.target.key in noise and error_of(row) <= _NOISE_FACTOR * noise[row.target.key]
