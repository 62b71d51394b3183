"""Columns that msProbe 26.2 writes for `torchair`: cells of each side (path, type, shape, max, min,
mean), metrics in its arithmetic, its reasons.

The columns are computed with the arithmetic of that tool, a piece of each tensor at a time. No
verdict comes from them: their errors are 0 where the golden value is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.matching.torchair.planner import SHAPE_MISMATCH
from syncpoint.ascend.mode.array_pieces import iterate_pair_pieces, iterate_pieces
from syncpoint.ascend.mode.torchair.report_manual import NOT_FINITE, passes_manual_limits
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor

if TYPE_CHECKING:
    from syncpoint.ascend.mode.torchair.report import TorchairLine

METRICS_26 = (
    "cosine_similarity",
    "max_relative_error",
    "mean_relative_error",
    "max_absolute_error",
    "mean_absolute_error",
    "kl_divergence",
    "relative_euclidean_distance",
)

_SIDE = ("data_path", "op_type", "dtype", "shape", "max_value", "min_value", "mean_value")
HEADER = (
    *("token_id", "data_id"),
    *(f"golden_{name}" for name in _SIDE),
    *(f"my_{name}" for name in _SIDE),
    *METRICS_26,
    *("cmp_fail_reason", "Verdict", "Remark"),
)
_TORCH = {"bf16": "float32", "u16": "int32", "u32": "int64", "f8_e5m2": "float64"}

_TORCH |= {"f8_e4m3fn": "float64", "i4": "int8", "u4": "int8", "c64": "complex64"}

"""Dtypes that msProbe reads as others; all others have their NumPy names."""

_PIECE_ELEMENTS = 1 << 15
_EPSILON_32 = float(np.finfo(np.float32).eps)

_EPSILON = float(np.finfo(np.float64).eps)

Array = NDArray[Any]


@dataclass(frozen=True)
class Side26:
    """The columns of one side, computed in float32; NaN for a tensor without elements."""

    max: float = nan
    min: float = nan
    mean: float = nan
    finite: bool = True


@dataclass(frozen=True)
class Columns26:
    """The columns of msProbe 26.2 for a pair."""

    golden: Side26
    target: Side26
    metrics: tuple[float, ...] | None
    """In the order of METRICS_26; None if msProbe computes none."""
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """The result of the rule of the manual, which 26.2 does not apply itself. Without metrics
        it is False if the values are the reason, otherwise None."""
        if self.metrics is None:
            return False if self.reason else None
        return passes_manual_limits(self.metrics[0], self.metrics[1])


def columns_26(target: Array, golden: Array) -> Columns26:
    """The columns for two arrays with the same number of elements in the same order."""
    if target.dtype.kind == "c" or golden.dtype.kind == "c":
        return Columns26(Side26(), Side26(), None, "complex values: no column is defined for them.")
    if not target.size:
        return Columns26(Side26(), Side26(), None)
    sides = (_side_figures(target), _side_figures(golden))
    reasons = [
        NOT_FINITE.format(name)
        for name, side in (("golden_data", sides[1]), ("my_data", sides[0]))
        if not side.finite
    ]
    if reasons:
        return Columns26(sides[1], sides[0], None, " ".join(reasons))
    with np.errstate(all="ignore"):
        return Columns26(sides[1], sides[0], _metrics_26(target, golden, sides))


def _side_figures(array: Array) -> Side26:
    greatest, least, total, finite = -inf, inf, 0.0, True
    with np.errstate(all="ignore"):
        for piece in iterate_pieces(array, _PIECE_ELEMENTS):
            x = piece.astype(np.float32)
            greatest = float(np.maximum(greatest, x.max()))
            least = float(np.minimum(least, x.min()))
            total += float(x.sum(dtype=np.float64))
            finite = finite and bool(np.isfinite(x).all())
    return Side26(greatest, least, float(np.float32(total / array.size)), finite)


def _metrics_26(target: Array, golden: Array, sides: tuple[Side26, Side26]) -> tuple[float, ...]:
    squares_x = squares_y = dot = squares_d = 0.0
    greatest_r = greatest_d = total_r = total_d = 0.0
    scaled_x = scaled_y = weighted = 0.0
    for x, y in iterate_pair_pieces(target, golden, _PIECE_ELEMENTS, np.float32):
        wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
        squares_x += _dot(wide_x, wide_x)
        squares_y += _dot(wide_y, wide_y)
        dot += _dot(wide_x, wide_y)
        wide_d = wide_x - wide_y
        squares_d += _dot(wide_d, wide_d)
        # msProbe counts errors only where the golden value is not zero.
        is_counted = np.abs(y) > _EPSILON_32
        r = np.abs(np.where(is_counted, x / y - np.float32(1), np.float32(0)))
        d = np.where(is_counted, np.abs(x - y), np.float32(0))
        greatest_r = max(greatest_r, float(r.max()))
        greatest_d = max(greatest_d, float(d.max()))
        total_r += float(r.sum(dtype=np.float64))
        total_d += float(d.sum(dtype=np.float64))
        scaled_x += float(np.exp(wide_x - sides[0].max).sum())
        p = np.exp(wide_y - sides[1].max)
        scaled_y += float(p.sum())
        weighted -= _dot(p, wide_d)
    norms = sqrt(squares_x), sqrt(squares_y)
    if not any(norms):
        cosine = 1.0
    else:
        cosine = round(dot / (norms[0] * norms[1]), 10) if all(norms) else 0.0
    # KL divergence of softmax(golden) from softmax(target) over all elements: the sum of
    # p (log p - log q) is that of p (y - x), plus the difference of the logarithms of the sums.
    logs = (np.log(scaled_x) + sides[0].max, np.log(scaled_y) + sides[1].max)
    divergence = weighted / scaled_y + logs[0] - logs[1]
    return (
        cosine,
        greatest_r,
        float(np.float32(total_r / target.size)),
        greatest_d,
        float(np.float32(total_d / target.size)),
        max(float(np.float32(divergence)), 0.0),
        float(np.float32(sqrt(squares_d / squares_y))) if norms[1] > _EPSILON else 0.0,
    )


def _dot(x: Array, y: Array) -> float:
    """The dot product without the threads of BLAS: several pairs are computed in parallel."""
    return float(np.einsum("i,i->", x, y))


def cells(line: TorchairLine) -> list[str]:
    """A line in the order of the header."""
    columns = line.columns if isinstance(line.columns, Columns26) else None
    step = line.entry.part.step
    reason = columns.reason if columns is not None else _reason(line)
    metrics = columns.metrics if columns is not None else None
    return [
        str(max(step, 0)),
        str(line.number),
        *_side(
            line.golden_path,
            line.entry.reference,
            columns.golden if columns else Side26(),
            device=False,
        ),
        *_side(
            line.my_path, line.entry.target, columns.target if columns else Side26(), device=True
        ),
        *([""] * len(METRICS_26) if metrics is None else map(_number, metrics)),
        reason,
        str(line.verdict),
        line.remark,
    ]


def _reason(line: TorchairLine) -> str:
    """The reason as msProbe says it, if it has one."""
    return (
        SHAPE_MISMATCH
        if line.entry.reason is ReasonCode.SHAPE
        else line.entry.report_text or line.remark
    )


def _side(path: str, tensor: Tensor | None, side: Side26, device: bool) -> list[str]:
    dtype = shape = ""
    if tensor is not None:
        dtype = f"torch.{_type(tensor, device)}"
        shape = f"[{', '.join(map(str, tensor.shape))}]"
    return [path, "", dtype, shape, *map(_number, (side.max, side.min, side.mean))]


def _type(tensor: Tensor, device: bool) -> str:
    if device and tensor.count == 0:
        return "float64"
    return _TORCH.get(tensor.dtype) or str(DTYPES[tensor.dtype].numpy)


def _number(value: float) -> str:
    return "" if isnan(value) else repr(value)
