"""The columns that the manual has for figures and for checksums in place of the values.

They are made of the values of a dump, for those who know these columns; a verdict is never taken
from them. Where a dump has only the least and the greatest value of each tensor, the other figures
and the checksum cannot be known.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.dumps.torchair_columns import pieces

DIFFERENCES = (
    *("Max diff", "Min diff", "Mean diff", "L2norm diff"),
    *("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
)
DIGESTS = ("NPU MD5", "BENCH MD5")
LIMIT = 0.01
"""Share of the golden side from which on a difference is significant."""

_STRETCH = 1 << 15

Array = NDArray[Any]
Number = int | float


@dataclass(frozen=True)
class ColumnsSummary:
    """What the columns say of a pair."""

    metrics: tuple[float | str | None, ...]
    """In the order of DIFFERENCES or DIGESTS; None where one cannot be calculated."""
    passed: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Figures:
    """Greatest, least and mean value and norm of one side; None where that is not known."""

    max: Number
    min: Number
    mean: float | None
    norm: float | None
    rms: float
    """Of all that is known of it: what its values are measured by."""

    def all(self) -> tuple[Number | None, ...]:
        """In the order of the columns."""
        return (self.max, self.min, self.mean, self.norm)


def columns_statistics(mine: Array, golden: Array, ends: bool = False) -> ColumnsSummary:
    """Differences of the figures of two arrays; `ends`: both hold a least and a greatest value."""
    if not mine.size or not golden.size:
        return ColumnsSummary((None,) * len(DIFFERENCES), None, "no elements")
    x, y = _figures(mine, ends), _figures(golden, ends)
    found = [_difference(a, b) for a, b in zip(x.all(), y.all(), strict=True)]
    # A mean near zero is no measure of itself, so the size of the values counts beside it.
    scales = [max(abs(b), y.rms) if b is not None else 0.0 for b in y.all()[:3]]
    scales.append(abs(y.norm) if y.norm is not None else 0.0)
    passed = all(
        d is None or d == 0 or abs(d) < LIMIT * scale
        for (d, _), scale in zip(found, scales, strict=True)
    )
    odd = [
        f"{side} includes NAN or inf."
        for side, figures in (("NPU data", x), ("Bench data", y))
        if not all(isfinite(f) for f in figures.all() if f is not None)
    ]
    metrics = (*(d for d, _ in found), *(r for _, r in found))
    return ColumnsSummary(metrics, passed and not odd, " ".join(odd))


def _difference(a: Number | None, b: Number | None) -> tuple[float | None, float | None]:
    """The difference, and its share of the second."""
    if a is None or b is None:
        return None, None
    d = float(a - b)
    if d == 0:
        return 0.0, 0.0
    return d, abs(d / float(b)) if b else inf


def _figures(array: Array, ends: bool) -> Figures:
    kind = array.dtype.kind
    greatest: list[Any] = []
    least: list[Any] = []
    total = squares = 0.0
    with np.errstate(all="ignore"):
        for piece in pieces(array, _STRETCH):
            values = np.abs(piece) if kind == "c" else piece
            wide = values.astype(np.float64)
            exact = values if kind in "iu" else wide
            greatest.append(exact.max())
            least.append(exact.min())
            total += float(wide.sum())
            squares += float(np.sum(wide * wide))
        as_number = int if kind in "iu" else float
        high = as_number(np.max(np.array(greatest)))
        low = as_number(np.min(np.array(least)))
    norm = sqrt(squares)
    rms = norm / sqrt(array.size)
    if ends:
        return Figures(high, low, None, None, rms)
    return Figures(high, low, total / array.size, norm, rms)


def columns_digest(mine: Array, golden: Array, ends: bool = False) -> ColumnsSummary:
    """The checksums of two arrays, over the bytes of their elements in the same order."""
    if not mine.size or not golden.size:
        return ColumnsSummary((None, None), None, "no elements")
    if ends:
        words = "only the least and the greatest value are known: no checksum"
        return ColumnsSummary((None, None), None, words)
    found = (_crc32(mine), _crc32(golden))
    unlike = ""
    if mine.dtype != golden.dtype:
        unlike = f"{mine.dtype} against {golden.dtype}: their bytes say nothing of their values."
    return ColumnsSummary(found, found[0] == found[1], unlike)


def _crc32(array: Array) -> str:
    found = 0
    for piece in pieces(array, _STRETCH):
        found = zlib.crc32(piece.tobytes(), found)
    return f"{found:08x}"
