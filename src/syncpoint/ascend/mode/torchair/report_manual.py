"""Columns of msProbe's manual for `torchair`: header and cells (name, stack, metrics, statistics or
CRC32 as text, pass or fail, message); colour of a row.

The columns of statistics and of checksums are computed from the values of a dump. If a dump has
only the least and the greatest value of each tensor, the other columns are not known. No verdict
comes from these columns: by those of values, a tensor of 1e-9 against 0 is infinitely wrong.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf, isnan, nan, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.ascend.mode.array_pieces import iterate_pair_pieces, iterate_pieces
from syncpoint.ascend.mode.torchair.options import Summary
from syncpoint.ascend.sheets import Colour
from syncpoint.metrics.verdict import FAILING_REASONS, ReasonCode, Verdict

if TYPE_CHECKING:
    from syncpoint.ascend.mode.torchair.report import TorchairLine

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

MAX_RELATIVE_DIFFERENCE = 0.01
"""A difference is significant from this share of the golden value on."""
_METRICS = {
    Summary.VALUES: METRICS_SEED,
    Summary.STATISTICS: DIFFERENCES,
    Summary.MD5: DIGESTS,
}
_GRADIENTS = ("Requires_grad Consistent",)
UNKNOWN = "N/A"
NOT_FINITE = "{} includes NAN or inf."

_PIECE_ELEMENTS = 1 << 15

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


def cells(line: TorchairLine, summary: Summary) -> list[str]:
    """A line in the order of the header."""
    columns = line.columns if isinstance(line.columns, ColumnsSeed | ColumnsSummary) else None
    metrics: Sequence[float | str | None] = (None,) * len(_METRICS[summary])
    if columns is not None:
        metrics = columns.metrics
    message = columns.reason if columns is not None else line.entry.report_text or line.remark
    passed = _has_passed(line)
    return [
        _name(line),
        UNKNOWN,  # a dump has no stacks
        f"[{line.my_path or UNKNOWN}, {line.golden_path or UNKNOWN}]",
        *map(_text, metrics),
        *((UNKNOWN,) if summary is Summary.VALUES else ()),  # nor information on gradients
        UNKNOWN if passed is None else "PASS" if passed else "FAIL",
        UNKNOWN if passed is None else "Yes" if passed else "No",
        message,
        str(max(line.entry.part.step, 0)),
        str(line.verdict),
        line.remark,
    ]


def colour(line: TorchairLine) -> Colour:
    """The colour by the rule of the manual and by our verdict: green only if both pass."""
    if line.verdict.severity > 1 or line.reason in FAILING_REASONS:
        return Colour.RED
    if line.verdict is Verdict.CLOSE and _has_passed(line):
        return Colour.GREEN
    return Colour.YELLOW


def _has_passed(line: TorchairLine) -> bool | None:
    """The result of the rule of the manual. A pair that should be comparable and is not fails."""
    if line.columns is not None:
        return line.columns.passed
    return False if line.reason in FAILING_REASONS else None


def _name(line: TorchairLine) -> str:
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
    """The columns of the manual for a pair."""

    metrics: tuple[float | None, ...]
    """In the order of METRICS_SEED; None for a metric that cannot be computed."""
    reason: str = ""

    @property
    def passed(self) -> bool | None:
        """The result of the rule of the manual; None if nothing was computed. A single element has
        no cosine, so its relative error decides alone."""
        cosine, relative = self.metrics[0], self.metrics[3]
        if relative is None:
            return None
        return passes_manual_limits(cosine, relative)


def columns_seed(target: Array, golden: Array) -> ColumnsSeed:
    """The columns for two arrays with the same number of elements in the same order, in float64.

    NaN on a side, or a difference of infinities, makes every column NaN. An error over a golden
    zero is infinite.
    """
    if not target.size:
        return ColumnsSeed((None,) * len(METRICS_SEED), "no elements")
    wide = np.complex128 if "c" in (target.dtype.kind, golden.dtype.kind) else np.float64
    integers = all(side.dtype.kind in "iub" for side in (target, golden))
    squares_x = squares_y = dot = squares_d = greatest_d = greatest_r = 0.0
    below = [0, 0]
    bad = [False, False]
    with np.errstate(all="ignore"):
        for first, second in iterate_pair_pieces(target, golden, _PIECE_ELEMENTS):
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
        for name, is_bad in (("NPU data", bad[0]), ("Bench data", bad[1]))
        if is_bad
    )
    ratios = (below[0] / target.size, below[1] / target.size)
    cosine = None
    if target.size > 1:
        cosine = nan if any(bad) else _cosine(dot, squares_x, squares_y)
    return ColumnsSeed((cosine, sqrt(squares_d), greatest_d, greatest_r, *ratios), reason)


def _cosine(dot: float, squares_x: float, squares_y: float) -> float:
    if squares_x == 0 == squares_y:
        return 1.0
    if squares_x == 0 or squares_y == 0:
        return nan
    # Roots first: the product of two sums of squares may overflow or underflow.
    return max(-1.0, min(1.0, dot / sqrt(squares_x) / sqrt(squares_y)))


def _exact(first: Array, second: Array) -> NDArray[np.float64]:
    """The distance of integers; not 0 for different integers that are equal in float64."""
    distance: NDArray[np.float64] = np.abs(first.astype(np.float64) - second.astype(np.float64))
    return np.where((first != second) & (distance == 0), 1.0, distance)


def passes_manual_limits(cosine: float | None, relative: float) -> bool:
    """The rule of the manual: max relative error below 1 %, cosine at least 0.99."""
    return relative < 0.01 and (cosine is None or cosine >= 0.99)


@dataclass(frozen=True)
class ColumnsSummary:
    """The columns of statistics or checksums for a pair."""

    metrics: tuple[float | str | None, ...]
    """In the order of DIFFERENCES or DIGESTS; None for one that cannot be computed."""
    passed: bool | None
    reason: str = ""


@dataclass(frozen=True)
class SideFigures:
    """Max, min, mean and norm of one side; None if not known."""

    max: Number
    min: Number
    mean: float | None
    norm: float | None
    rms: float
    """Root mean square of the known values: their scale."""

    def all(self) -> tuple[Number | None, ...]:
        """The figures in the order of the columns."""
        return (self.max, self.min, self.mean, self.norm)


def columns_statistics(target: Array, golden: Array, ends: bool = False) -> ColumnsSummary:
    """Differences of the figures of two arrays; with `ends`, both hold only min and max."""
    if not target.size or not golden.size:
        return ColumnsSummary((None,) * len(DIFFERENCES), None, "no elements")
    x, y = _figures(target, ends), _figures(golden, ends)
    differences = [_difference(a, b) for a, b in zip(x.all(), y.all(), strict=True)]
    # A mean near zero is no scale for itself, so the scale of the values counts too.
    scales = [max(abs(b), y.rms) if b is not None else 0.0 for b in y.all()[:3]]
    scales.append(abs(y.norm) if y.norm is not None else 0.0)
    passed = all(
        d is None or d == 0 or abs(d) < MAX_RELATIVE_DIFFERENCE * scale
        for (d, _), scale in zip(differences, scales, strict=True)
    )
    non_finite = [
        f"{side} includes NAN or inf."
        for side, figures in (("NPU data", x), ("Bench data", y))
        if not all(isfinite(f) for f in figures.all() if f is not None)
    ]
    metrics = (*(d for d, _ in differences), *(r for _, r in differences))
    return ColumnsSummary(metrics, passed and not non_finite, " ".join(non_finite))


def _difference(a: Number | None, b: Number | None) -> tuple[float | None, float | None]:
    """The difference, and its ratio to the second value."""
    if a is None or b is None:
        return None, None
    d = float(a - b)
    if d == 0:
        return 0.0, 0.0
    return d, abs(d / float(b)) if b else inf


def _figures(array: Array, ends: bool) -> SideFigures:
    kind = array.dtype.kind
    greatest: list[Any] = []
    least: list[Any] = []
    total = squares = 0.0
    with np.errstate(all="ignore"):
        for piece in iterate_pieces(array, _PIECE_ELEMENTS):
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
        return SideFigures(high, low, None, None, rms)
    return SideFigures(high, low, total / array.size, norm, rms)


def columns_digest(target: Array, golden: Array, ends: bool = False) -> ColumnsSummary:
    """The checksums of two arrays over the bytes of their elements, in the same order."""
    if not target.size or not golden.size:
        return ColumnsSummary((None, None), None, "no elements")
    if ends:
        reason = "only the least and the greatest value are known: no checksum"
        return ColumnsSummary((None, None), None, reason)
    checksums = (_crc32(target), _crc32(golden))
    reason = ""
    if target.dtype != golden.dtype:
        reason = f"{target.dtype} against {golden.dtype}: their bytes say nothing of their values."
    return ColumnsSummary(checksums, checksums[0] == checksums[1], reason)


def _crc32(array: Array) -> str:
    checksum = 0
    for piece in iterate_pieces(array, _PIECE_ELEMENTS):
        checksum = zlib.crc32(piece.tobytes(), checksum)
    return f"{checksum:08x}"
