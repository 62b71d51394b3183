"""The report with the columns that msProbe 26.2 writes, and ours behind them."""

from __future__ import annotations

from math import isnan

from syncpoint.ascend.dumps.torchair_columns import METRICS_26, Columns26, Side26
from syncpoint.ascend.matching.torchair_planner import SHAPES
from syncpoint.ascend.mode.torchair.report_rows import Line
from syncpoint.metrics.verdict import ReasonCode
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Tensor

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
"""Types that are read as others there; all else is called as NumPy calls it."""


def cells(line: Line) -> list[str]:
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
        *_side(line.my_path, line.entry.target, columns.mine if columns else Side26(), device=True),
        *([""] * len(METRICS_26) if metrics is None else map(_number, metrics)),
        reason,
        str(line.verdict),
        line.remark,
    ]


def _reason(line: Line) -> str:
    """In the words of that tool where it has some."""
    return SHAPES if line.entry.reason is ReasonCode.SHAPE else line.entry.words or line.remark


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
