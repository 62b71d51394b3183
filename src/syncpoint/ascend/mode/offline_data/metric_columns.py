"""The ten metric columns of the report on Ascend dumps, digit for digit as msProbe prints them;
cells for empty and boolean tensors; float16 overflow.

The cells are those of msProbe, also where they mislead: relative errors over golden zeros are 0,
and a tensor of one element has cosine 1. No verdict comes from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from syncpoint.metrics.numpy_float32 import bool_cosine, float32_metrics

METRICS = (
    "CosineSimilarity",
    "MaxAbsoluteError",
    "AccumulatedRelativeError",
    "RelativeEuclideanDistance",
    "KullbackLeiblerDivergence",
    "StandardDeviation",
    "MeanAbsoluteError",
    "RootMeanSquareError",
    "MaxRelativeError",
    "MeanRelativeError",
)
"""In the order of the report."""

NOT_COMPUTED = "NaN"
"""A cell without a value; `nan` is a computed value."""

_DECIMALS = 6
_EPSILON = float(np.finfo(np.float64).eps)
_GREATEST_FLOAT16_BITS = 0x7BFF
_INFINITE_FLOAT16_BITS = 0x7C00
_EMPTY_MAXIMUM_MESSAGE = "zero-size array to reduction operation maximum which has no identity"
_BOOLEAN_SUBTRACT_MESSAGE = (
    "numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the `^` "
    "operator, or the logical_xor function instead."
)


@dataclass(frozen=True)
class MetricCells:
    """The metric cells of one pair of tensors."""

    cells: dict[str, str] = field(default_factory=lambda: dict.fromkeys(METRICS, NOT_COMPUTED))
    """By the names of METRICS and in their order."""
    reasons: list[str] = field(default_factory=list)
    """Remarks on the cells for the last column, which joins them by commas."""


@dataclass(frozen=True)
class _Pair:
    target: np.ndarray
    golden: np.ndarray
    target_file: str
    golden_file: str
    is_scalar: bool
    """By its shape; the test of msProbe also accepts shapes without elements, such as (0, 2)."""


def columns(
    target: np.ndarray,
    golden: np.ndarray,
    target_file: str,
    golden_file: str,
    shape: Sequence[int],
) -> MetricCells:
    """The metric cells for two arrays in the same order with the same number of elements.

    Reasons name the files; `shape` is the shape in the report.
    """
    if target.size != golden.size:
        raise ValueError(f"sizes differ: {target.size} and {golden.size}")
    for side, file in ((target, target_file), (golden, golden_file)):
        if side.dtype.kind == "c":
            # msProbe fails at such a file.
            reason = f"complex values: no column is defined for {side.dtype} in {file}."
            return MetricCells(reasons=[reason])
    metric_cells = MetricCells()
    pair = _Pair(target, golden, target_file, golden_file, sum(shape) == len(shape))
    if target.dtype == golden.dtype == np.bool_:
        _add_boolean_cells(metric_cells, pair)
    elif target.size == 0:
        _add_empty_cells(metric_cells, pair)
    else:
        _add_number_cells(metric_cells, pair)
    return metric_cells


def overflow(target: np.ndarray) -> str:
    """Whether a float16 tensor reaches the end of its range: YES, NO, or NaN for other types."""
    if target.dtype.newbyteorder("=") != np.float16:
        return NOT_COMPUTED
    if target.size == 0:
        return "NO"
    # As integers, which is much faster: floats of one sign have the order of their bits.
    order = target.dtype.byteorder
    greatest = max(
        int(target.view(np.dtype(np.int16).newbyteorder(order)).max()),
        int(target.view(np.dtype(np.uint16).newbyteorder(order)).max()) - 0x8000,
    )
    # A NaN hides an infinity in the same tensor, as in msProbe.
    return "YES" if _GREATEST_FLOAT16_BITS <= greatest <= _INFINITE_FLOAT16_BITS else "NO"


def _text(value: float) -> str:
    return f"{value:.{_DECIMALS}f}"


def _moments(mean: float, std: float) -> str:
    rounded = [0.0 if abs(value) < 0.001 else value for value in (mean, std)]
    return f"({rounded[0]:.3f};{rounded[1]:.3f})"


def _add_cosine(
    metric_cells: MetricCells, pair: _Pair, x_norm: float, y_norm: float, cosine: float
) -> None:
    zero = "Cannot compare by Cosine Similarity. All the data is zero in "
    cell = NOT_COMPUTED
    if pair.is_scalar:
        cell = _text(1.0)
        metric_cells.reasons.append("This tensor is scalar.")
    elif x_norm <= _EPSILON and y_norm < _EPSILON:
        cell = "1.0"
    elif x_norm == 0:
        metric_cells.reasons.append(f"{zero}{pair.target_file}.")
    elif y_norm == 0:
        metric_cells.reasons.append(f"{zero}{pair.golden_file}.")
    else:
        cell = _text(min(cosine, 1.0))
    metric_cells.cells["CosineSimilarity"] = cell


def _add_number_cells(metric_cells: MetricCells, pair: _Pair) -> None:
    metrics = float32_metrics(pair.target, pair.golden, decimals=_DECIMALS)
    cells = metric_cells.cells
    _add_cosine(metric_cells, pair, metrics.x_norm, metrics.y_norm, metrics.cosine)
    cells["MaxAbsoluteError"] = _text(metrics.max_abs)
    cells["AccumulatedRelativeError"] = _text(metrics.acc_rel)
    cells["RelativeEuclideanDistance"] = _text(metrics.rel_euclid)
    cells["KullbackLeiblerDivergence"] = _text(metrics.kl)
    if metrics.kl == float("inf"):
        metric_cells.reasons.append(
            f"Cannot compare by KL Divergence. The data contains 0 in {pair.golden_file!r}."
        )
    cells["StandardDeviation"] = ",".join(
        (_moments(metrics.x_mean, metrics.x_std), _moments(metrics.y_mean, metrics.y_std))
    )
    cells["MeanAbsoluteError"] = _text(metrics.mae)
    cells["RootMeanSquareError"] = _text(metrics.rmse)
    cells["MaxRelativeError"] = _text(metrics.max_rel)
    cells["MeanRelativeError"] = _text(metrics.mean_rel)


def _add_empty_cells(metric_cells: MetricCells, pair: _Pair) -> None:
    _add_cosine(metric_cells, pair, 0.0, 0.0, 0.0)
    for name in ("AccumulatedRelativeError", "RelativeEuclideanDistance"):
        metric_cells.cells[name] = _text(0.0)
    metric_cells.cells["StandardDeviation"] = "(nan;nan),(nan;nan)"
    for name in ("MeanAbsoluteError", "RootMeanSquareError", "MeanRelativeError"):
        metric_cells.cells[name] = _text(float("nan"))
    for name in ("MaxAbsoluteError", "KullbackLeiblerDivergence", "MaxRelativeError"):
        metric_cells.reasons.append(_failure_text(name, _EMPTY_MAXIMUM_MESSAGE))


def _add_boolean_cells(metric_cells: MetricCells, pair: _Pair) -> None:
    """Only the cosine is defined for two boolean tensors."""
    trues = [int(np.count_nonzero(side)) for side in (pair.target, pair.golden)]
    cosine = bool_cosine(pair.target, pair.golden) if all(trues) else 0.0
    _add_cosine(metric_cells, pair, trues[0], trues[1], cosine)
    for name in METRICS[1:]:
        if name != "RelativeEuclideanDistance":
            metric_cells.reasons.append(f"Algorithm {name} does not support Boolean types.")
        elif trues[1]:
            metric_cells.reasons.append(_failure_text(name, _BOOLEAN_SUBTRACT_MESSAGE))
        else:
            metric_cells.cells[name] = _text(0.0)


def _failure_text(name: str, why: str) -> str:
    return f"Failed to execute 'compare' in '{name}'. {why}"
