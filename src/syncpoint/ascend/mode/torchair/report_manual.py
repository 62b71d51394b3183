"""The report with the columns that the manual of the tool documents, and ours behind them.

The columns of figures and of checksums are made of the values of a dump, for those who know these
columns. Where a dump has only the least and the greatest value of each tensor, the other figures
and the checksum cannot be known. No verdict is taken from any of these columns: those of values
call a tensor of 1e-9 against 0 infinitely wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf, isnan, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.mode.array_pieces import paired_pieces, pieces
from syncpoint.ascend.mode.torchair.options import Summary
from syncpoint.ascend.mode.torchair.report_rows import Line
from syncpoint.ascend.sheets import Colour
from syncpoint.metrics.verdict import FAILING_REASONS, ReasonCode, Verdict

METRICS_SEED = (
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "MaxRelativeErr",
    "One Thousandth Err Ratio",
    "Five Thousandth Err Ratio",
)
DIFFERENCES = (
    *("Max diff", "Min diff", "Mean diff", "L2norm diff"),
    *("MaxRelativeErr", "MinRelativeErr", "MeanRelativeErr", "NormRelativeErr"),
)


DIGESTS = ("NPU MD5", "BENCH MD5")


LIMIT = 0.01
"""Share of the golden side from which on a difference is significant."""
_METRICS = {
    Summary.VALUES: METRICS_SEED,
    Summary.STATISTICS: DIFFERENCES,
    Summary.MD5: DIGESTS,
}
_GRADIENTS = ("Requires_grad Consistent",)
UNKNOWN = "N/A"
NOT_FINITE = "{} includes NAN or inf."

_STRETCH = 1 << 15

Array = NDArray[Any]
Number = int | float


def header(summary: Summary) -> tuple[str, ...]:
    """The names of the columns."""
    return (
        *("API Name", "Stack Info", "Data Name"),
        *_METRICS[summary],
        *(_GRADIENTS if summary is Summary.VALUES else ()),
        *("Result", "Accuracy Reached or Not", "Err_message"),
        *("Token", "Verdict", "Remark"),
    )


def cells(line: Line, summary: Summary) -> list[str]:
    """A line in the order of the header."""
    columns = line.columns if isinstance(line.columns, ColumnsSeed | ColumnsSummary) else None
    metrics: Sequence[float | str | None] = (None,) * len(_METRICS[summary])
    if columns is not None:
        metrics = columns.metrics
    said = columns.reason if columns is not None else line.entry.words or line.remark
    passed = _passed(line)
    return [
        _name(line),
        UNKNOWN,  # a dump has no stacks
        f"[{line.my_path or UNKNOWN}, {line.golden_path or UNKNOWN}]",
        *map(_text, metrics),
        *((UNKNOWN,) if summary is Summary.VALUES else ()),  # nor does it know of gradients
        UNKNOWN if passed is None else "PASS" if passed else "FAIL",
        UNKNOWN if passed is None else "Yes" if passed else "No",
        said,
        str(max(line.entry.part.step, 0)),
        str(line.verdict),
        line.remark,
    ]


def colour(line: Line) -> Colour:
    """By the rule of the manual and by our verdict: green only where both are content."""
    if line.verdict.severity > 1 or line.reason in FAILING_REASONS:
        return Colour.RED
    if line.verdict is Verdict.CLOSE and _passed(line):
        return Colour.GREEN
    return Colour.YELLOW


def _passed(line: Line) -> bool | None:
    """The rule of the manual. What should be comparable and is not has failed."""
    if line.columns is not None:
        return line.columns.passed
    return False if line.reason in FAILING_REASONS else None


def _name(line: Line) -> str:
    entry = line.entry
    tensor = entry.target if entry.target is not None else entry.reference
    names = entry.target_names or entry.reference_names
    name = ",".join(names)
    if tensor is None or (entry.target is None and entry.reason is ReasonCode.UNREADABLE):
        return name
    return f"{name}.{tensor.key.role}.{tensor.key.index}"


def _text(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or UNKNOWN
    if isnan(value):
        return "NaN"
    return ("-inf" if value < 0 else "inf") if isinf(value) else f"{value:.12g}"


@dataclass(frozen=True)
class ColumnsSeed:
    """What the columns of the manual say of a pair."""

    metrics: tuple[float | None, ...]
    """In the order of METRICS_SEED; None where a metric cannot be calculated."""
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """By the rule of the manual; None where nothing was calculated. One element has no
        direction, so its relative error decides alone."""
        cosine, relative = self.metrics[0], self.metrics[3]
        if relative is None:
            return None
        return passes_manual_limits(cosine, relative)


def columns_seed(mine: Array, golden: Array) -> ColumnsSeed:
    """The columns for two arrays with the same number of elements in the same order, in float64.

    NaN on any side, and infinities that are taken from each other, make everything NaN; an error
    over a golden zero is infinitely large.
    """
    if not mine.size:
        return ColumnsSeed((None,) * len(METRICS_SEED), "no elements")
    wide = np.complex128 if "c" in (mine.dtype.kind, golden.dtype.kind) else np.float64
    integers = all(side.dtype.kind in "iub" for side in (mine, golden))
    squares_x = squares_y = dot = squares_d = greatest_d = greatest_r = 0.0
    below = [0, 0]
    bad = [False, False]
    with np.errstate(all="ignore"):
        for first, second in paired_pieces(mine, golden, _STRETCH):
            x, y = first.astype(wide), second.astype(wide)
            bad = [b or not bool(np.isfinite(s).all()) for b, s in zip(bad, (x, y), strict=True)]
            d = _exact(first, second) if integers else np.abs(x - y)
            size = np.abs(y)
            r = np.where(d == 0, 0.0, d / size)
            squares_x += float(np.sum(np.abs(x) ** 2))
            squares_y += float(np.sum(size**2))
            squares_d += float(np.sum(d**2))
            dot += float(np.sum(x * np.conj(y)).real)
            greatest_d = float(np.maximum(greatest_d, d.max()))
            greatest_r = float(np.maximum(greatest_r, r.max()))
            below[0] += int((r < 0.001).sum())
            below[1] += int((r < 0.005).sum())
    reason = " ".join(
        NOT_FINITE.format(name)
        for name, found in (("NPU data", bad[0]), ("Bench data", bad[1]))
        if found
    )
    ratios = (below[0] / mine.size, below[1] / mine.size)
    cosine = None
    if mine.size > 1:
        cosine = nan if any(bad) else _cosine(dot, squares_x, squares_y)
    return ColumnsSeed((cosine, sqrt(squares_d), greatest_d, greatest_r, *ratios), reason)


def _cosine(dot: float, squares_x: float, squares_y: float) -> float:
    if squares_x == 0 == squares_y:
        return 1.0
    if squares_x == 0 or squares_y == 0:
        return nan
    # Roots first: the product of two sums of squares may be too large or too small for a number.
    return max(-1.0, min(1.0, dot / sqrt(squares_x) / sqrt(squares_y)))


def _exact(first: Array, second: Array) -> NDArray[np.float64]:
    """The distance of integers, which float64 may take for none."""
    distance: NDArray[np.float64] = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return np.where((first != second) & (distance == 0), 1.0, distance)


def passes_manual_limits(cosine: float | None, relative: float) -> bool:
    """The rule of the manual: max relative error below 1 %, cosine at least 0.99."""
    return relative < 0.01 and (cosine is None or cosine >= 0.99)


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
