"""How msProbe's table calls each row: pass, warning or error.

Its rules look for the op that makes things worse: an output that is off while what the op was given
is not. An op that is wrong because its own weight is, or that is only damaged, passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from syncpoint.run.model import Role

if TYPE_CHECKING:
    from syncpoint.ascend.msprobe.table_rows import Line

_UNWATCHED = frozenset({"numpy", "to", "__setitem__"})
_UNWATCHED_STARTS = ("empty", "new_empty")
"""Functions whose results mean nothing yet."""
_OUTPUTS_ONLY = frozenset(
    {"all_to_all_single", "batch_isend_irecv", "_all_gather_base", "_reduce_scatter_base"}
)
"""Functions that are given memory to write to."""


class Level(IntEnum):
    """How bad a row is."""

    PASS = 0
    WARNING = 1
    ERROR = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class _Message:
    """What the table says of a row, and how bad that is."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


_RATIO = _Message(
    Level.ERROR, "The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6."
)
_COSINE = _Message(
    Level.WARNING, "The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1"
)
_NORM = _Message(Level.ERROR, "The NormRelativeErr of output is greater than 0.5.")
_TEN_TIMES = _Message(Level.WARNING, "The norm relative error of output is 10 times that of input.")
_NOT_FINITE = _Message(Level.ERROR, "There is nan/inf/-inf in the maximum or minimum value of NPU.")
_GRAD = _Message(Level.ERROR, "The Required_Grad of NPU and Bench are inconsistent")
_SCALAR = _Message(Level.ERROR, "The scalar parameters of NPU and Bench are inconsistent.")
_DTYPE = _Message(Level.ERROR, "The dtype of NPU and Bench are inconsistent.")
_SHAPE = _Message(Level.ERROR, "The shape of NPU and Bench are inconsistent.")
_DIGEST = _Message(Level.ERROR, "The CRC-32 value of NPU differs from that of the bench.")
_NO_DIGEST = _Message(Level.WARNING, "The parameter of NPU does not match the bench.")


def judge(lines: Sequence[Line], api: str, task: str) -> None:
    """Give the rows of one op their levels and messages."""
    if api in _UNWATCHED or api.startswith(_UNWATCHED_STARTS):
        return
    given = [] if api in _OUTPUTS_ONLY else [x for x in lines if x.role is not Role.OUTPUT]
    made = [x for x in lines if x.role is Role.OUTPUT]
    if task == "md5":
        for line in (*given, *made):
            _digests(line)
        return
    _finite((*given, *made))
    if task == "tensor":
        _ratios(given, made)
    else:
        _norms(given, made)
    for line in (*given, *made):
        _facts(line)
    if task == "tensor":
        _cosines(given, made)
    else:
        _ten_times(given, made)


def _say(line: Line, message: _Message) -> None:
    line.level = max(line.level, message.level)
    line.messages.append(str(message))


def _digests(line: Line) -> None:
    mine, theirs = line.cells["NPU MD5"], line.cells["BENCH MD5"]
    if mine != theirs:
        _say(line, _NO_DIGEST if "N/A" in (mine, theirs) else _DIGEST)


def _finite(lines: Sequence[Line]) -> None:
    for line in lines:
        ends = [
            [line.cells[f"{side} {end}"] for end in ("max", "min")] for side in ("NPU", "Bench")
        ]
        if any(map(_is_odd, ends[0])) and not any(map(_is_odd, ends[1])):
            _say(line, _NOT_FINITE)


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _facts(line: Line) -> None:
    cells = line.cells
    if not line.matched:
        return
    if cells["NPU Requires_grad"] != cells["Bench Requires_grad"]:
        _say(line, _GRAD)
    scalar = "class" in cells["NPU Dtype"] and "class" in cells["Bench Dtype"]
    if line.role is not Role.OUTPUT and scalar and cells["NPU max"] != cells["Bench max"]:
        _say(line, _SCALAR)
    if cells["NPU Dtype"] != cells["Bench Dtype"]:
        _say(line, _DTYPE)
    if cells["NPU Tensor Shape"] != cells["Bench Tensor Shape"]:
        _say(line, _SHAPE)


def _numbers(lines: Sequence[Line], column: str) -> list[float]:
    """The cells of a column that are numbers; per cent as fractions."""
    found = []
    for line in lines:
        cell = line.cells[column]
        if isinstance(cell, str):
            text = cell.removesuffix("%")
            try:
                cell = float(text) / (100 if text != cell else 1)
            except ValueError:
                continue
        if not isinstance(cell, bool) and isinstance(cell, int | float) and not math.isnan(cell):
            found.append(float(cell))
    return found


def _ratios(given: Sequence[Line], made: Sequence[Line]) -> None:
    column = "One Thousandth Err Ratio"
    before, after = _numbers(given, column), _numbers(made, column)
    if before and after and min(before) > 0.9 and min(after) < 0.1:
        _say(made[0], _RATIO)


def _cosines(given: Sequence[Line], made: Sequence[Line]) -> None:
    before, after = _numbers(given, "Cosine"), _numbers(made, "Cosine")
    if before and after and min(before) > 0.9 and min(before) - min(after) > 0.1:
        _say(made[0], _COSINE)


def _norms(given: Sequence[Line], made: Sequence[Line]) -> None:
    before = _numbers(given, "NormRelativeErr")
    if before and max(before) < 0.1:
        for line in made:
            if max(_numbers([line], "NormRelativeErr"), default=0.0) > 0.5:
                _say(line, _NORM)


def _ten_times(given: Sequence[Line], made: Sequence[Line]) -> None:
    before, after = _numbers(given, "NormRelativeErr"), _numbers(made, "NormRelativeErr")
    if not before or not after:
        return
    least, greatest = max(before), max(after)
    if greatest > 0.1 if least == 0 else greatest / least > 10:
        _say(made[0], _TEN_TIMES)
