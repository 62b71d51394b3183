"""The colour of a row of msProbe's table, where it is written as a sheet.

Red and yellow are the tool's errors and warnings. Its `pass` only says that an op did not make
worse what it was given, so green is what also meets the rule that its manual has for numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from syncpoint.ascend.msprobe.row_levels import Level
from syncpoint.ascend.msprobe.table_rows import DIFFERENCES
from syncpoint.ascend.msprobe.tensor_metrics import NOT_APPLICABLE, UNSUPPORTED
from syncpoint.ascend.sheets import Colour

_COSINE = 0.99
_RELATIVE = 0.01
_ENDS = ("NPU max", "NPU min", "Bench max", "Bench min")


def colour(cells: Mapping[str, Any], task: str) -> Colour:
    """By the tool's result, and by the manual's rule for what it lets pass."""
    if cells["Result"] == str(Level.ERROR):
        return Colour.RED
    if cells["Result"] != str(Level.PASS):
        return Colour.YELLOW
    normal = {"tensor": _values, "statistics": _figures, "md5": _digests}[task]
    return Colour.GREEN if normal(cells) else Colour.YELLOW


def _digests(cells: Mapping[str, Any]) -> bool:
    return bool(cells["NPU MD5"] == cells["BENCH MD5"])


def _values(cells: Mapping[str, Any]) -> bool:
    if "class" in str(cells["NPU Dtype"]) or cells["NPU Dtype"] == NOT_APPLICABLE:
        return bool(cells["NPU max"] == cells["Bench max"])
    cosine, relative = cells["Cosine"], cells["MaxRelativeErr"]
    if not _is_number(relative) or _odd(cells):
        return False
    # One element has no direction.
    like = cosine == UNSUPPORTED or (_is_number(cosine) and cosine >= _COSINE)
    return like and relative < _RELATIVE


def _figures(cells: Mapping[str, Any]) -> bool:
    found = [_fraction(cells[name]) for name in DIFFERENCES[4:]]
    return not _odd(cells) and all(f is None or f < _RELATIVE for f in found)


def _fraction(cell: Any) -> float | None:
    """A relative error; None where the figure is not made of such tensors, infinite where it says
    that something differs and not by how much."""
    if cell == NOT_APPLICABLE:
        return None
    try:
        found = float(str(cell).removesuffix("%"))
    except ValueError:
        return math.inf
    return math.inf if math.isnan(found) else abs(found) / 100


def _odd(cells: Mapping[str, Any]) -> bool:
    """Infinities of unlike signs count as equal there."""
    return any(isinstance(cells[n], float) and not math.isfinite(cells[n]) for n in _ENDS)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell)
