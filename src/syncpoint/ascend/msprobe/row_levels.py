"""Give each row of msProbe's table its level (pass, warning, error) and message, by msProbe's rules
on columns; the numbers of a column, percent as fraction.

The rules look for ops whose outputs are worse than their inputs. An op with a wrong weight, or one
that only inherits an error, passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from syncpoint.run.model import Role

if TYPE_CHECKING:
    from syncpoint.ascend.msprobe.table_rows import TableRow

_UNWATCHED = frozenset({"numpy", "to", "__setitem__"})
_UNWATCHED_STARTS = ("empty", "new_empty")
"""Functions that return uninitialised memory."""
_OUTPUTS_ONLY = frozenset(
    {"all_to_all_single", "batch_isend_irecv", "_all_gather_base", "_reduce_scatter_base"}
)
"""Functions that get the memory to write to as an input."""


class RowLevel(IntEnum):
    """How bad a row is."""

    PASS = 0
    WARNING = 1
    ERROR = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class _Message:
    """A message of the table, and its level."""

    level: RowLevel
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


_RATIO = _Message(
    RowLevel.ERROR, "The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6."
)
_COSINE = _Message(
    RowLevel.WARNING, "The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1"
)
_NORM = _Message(RowLevel.ERROR, "The NormRelativeErr of output is greater than 0.5.")
_TEN_TIMES = _Message(
    RowLevel.WARNING, "The norm relative error of output is 10 times that of input."
)
_NOT_FINITE = _Message(
    RowLevel.ERROR, "There is nan/inf/-inf in the maximum or minimum value of NPU."
)
_GRAD = _Message(RowLevel.ERROR, "The Required_Grad of NPU and Bench are inconsistent")
_SCALAR = _Message(RowLevel.ERROR, "The scalar parameters of NPU and Bench are inconsistent.")
_DTYPE = _Message(RowLevel.ERROR, "The dtype of NPU and Bench are inconsistent.")
_SHAPE = _Message(RowLevel.ERROR, "The shape of NPU and Bench are inconsistent.")
_DIGEST = _Message(RowLevel.ERROR, "The CRC-32 value of NPU differs from that of the bench.")
_NO_DIGEST = _Message(RowLevel.WARNING, "The parameter of NPU does not match the bench.")


def set_levels(rows: Sequence[TableRow], api: str, task: str) -> None:
    """Set the levels and messages of the rows of one op."""
    if api in _UNWATCHED or api.startswith(_UNWATCHED_STARTS):
        return
    input_rows = [] if api in _OUTPUTS_ONLY else [x for x in rows if x.role is not Role.OUTPUT]
    output_rows = [x for x in rows if x.role is Role.OUTPUT]
    if task == "md5":
        for row in (*input_rows, *output_rows):
            _check_digests(row)
        return
    _check_finite((*input_rows, *output_rows))
    if task == "tensor":
        _check_ratios(input_rows, output_rows)
    else:
        _check_norms(input_rows, output_rows)
    for row in (*input_rows, *output_rows):
        _check_facts(row)
    if task == "tensor":
        _check_cosines(input_rows, output_rows)
    else:
        _check_growth(input_rows, output_rows)


def _add_message(row: TableRow, message: _Message) -> None:
    row.level = max(row.level, message.level)
    row.messages.append(str(message))


def _check_digests(row: TableRow) -> None:
    npu_digest, bench_digest = row.cells["NPU MD5"], row.cells["BENCH MD5"]
    if npu_digest != bench_digest:
        _add_message(row, _NO_DIGEST if "N/A" in (npu_digest, bench_digest) else _DIGEST)


def _check_finite(rows: Sequence[TableRow]) -> None:
    for row in rows:
        ends = [[row.cells[f"{side} {end}"] for end in ("max", "min")] for side in ("NPU", "Bench")]
        if any(map(_is_odd, ends[0])) and not any(map(_is_odd, ends[1])):
            _add_message(row, _NOT_FINITE)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _check_facts(row: TableRow) -> None:
    cells = row.cells
    if not row.matched:
        return
    if cells["NPU Requires_grad"] != cells["Bench Requires_grad"]:
        _add_message(row, _GRAD)
    scalar = "class" in cells["NPU Dtype"] and "class" in cells["Bench Dtype"]
    if row.role is not Role.OUTPUT and scalar and cells["NPU max"] != cells["Bench max"]:
        _add_message(row, _SCALAR)
    if cells["NPU Dtype"] != cells["Bench Dtype"]:
        _add_message(row, _DTYPE)
    if cells["NPU Tensor Shape"] != cells["Bench Tensor Shape"]:
        _add_message(row, _SHAPE)


def _numbers(rows: Sequence[TableRow], column: str) -> list[float]:
    """Return the cells of a column that are numbers; percentages as fractions."""
    numbers = []
    for row in rows:
        cell = row.cells[column]
        if isinstance(cell, str):
            text = cell.removesuffix("%")
            try:
                cell = float(text) / (100 if text != cell else 1)
            except ValueError:
                continue
        if not isinstance(cell, bool) and isinstance(cell, int | float) and not math.isnan(cell):
            numbers.append(float(cell))
    return numbers


def _check_ratios(input_rows: Sequence[TableRow], output_rows: Sequence[TableRow]) -> None:
    column = "One Thousandth Err Ratio"
    before, after = _numbers(input_rows, column), _numbers(output_rows, column)
    if before and after and min(before) > 0.9 and min(after) < 0.1:
        _add_message(output_rows[0], _RATIO)


def _check_cosines(input_rows: Sequence[TableRow], output_rows: Sequence[TableRow]) -> None:
    before, after = _numbers(input_rows, "Cosine"), _numbers(output_rows, "Cosine")
    if before and after and min(before) > 0.9 and min(before) - min(after) > 0.1:
        _add_message(output_rows[0], _COSINE)


def _check_norms(input_rows: Sequence[TableRow], output_rows: Sequence[TableRow]) -> None:
    before = _numbers(input_rows, "NormRelativeErr")
    if before and max(before) < 0.1:
        for row in output_rows:
            if max(_numbers([row], "NormRelativeErr"), default=0.0) > 0.5:
                _add_message(row, _NORM)


def _check_growth(input_rows: Sequence[TableRow], output_rows: Sequence[TableRow]) -> None:
    before, after = (
        _numbers(input_rows, "NormRelativeErr"),
        _numbers(output_rows, "NormRelativeErr"),
    )
    if not before or not after:
        return
    input_error, output_error = max(before), max(after)
    if output_error > 0.1 if input_error == 0 else output_error / input_error > 10:
        _add_message(output_rows[0], _TEN_TIMES)
