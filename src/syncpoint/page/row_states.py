"""The state of every row for the page, as packed columns: level by a metric (bulk included) and
guilt; counts of elements not finite on one side.

Everything works on whole columns: a comparison may have a million rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.metrics.judge_values import HIGHER_IS_BETTER, MAX_PROBABILITY
from syncpoint.metrics.limits import Limits, limits_in_force, metric_bound
from syncpoint.page.encoding import pack_array
from syncpoint.page.schema import Guilt, Level, RowStates

if TYPE_CHECKING:
    from syncpoint.page.open_comparison import OpenComparison

LEVELS: tuple[Level, ...] = ("close", "moderate", "large", "none")
CLOSE, MODERATE, LARGE, NONE = range(4)
GUILTS: tuple[Guilt, ...] = (
    *("", "guilty", "first-non-finite", "inherited"),
    *("amplified", "output", "unknown"),
)
INHERITED = GUILTS.index("inherited")
ERROR_MAKERS = (GUILTS.index("guilty"), GUILTS.index("first-non-finite"))
"""Codes of the guilts of rows that make error themselves."""
_LEVEL_BY_VERDICT = {
    **{"close": CLOSE, "moderate": MODERATE, "large": LARGE},
    **{"inherited": MODERATE, "amplified": LARGE, "none": NONE},
}
LimitColumns = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The close and the moderate limit of every row."""

_LEVEL_LETTERS = np.frombuffer(b"cmln", np.uint8)
_GUILT_LETTERS = np.frombuffer(b".gfiaou", np.uint8)
_MISMATCH_LETTERS = np.frombuffer(b".b", np.uint8)
_BOUND_LETTERS = np.frombuffer(b".bsd", np.uint8)
_METRICS_WITH_INTRODUCED = ("psnr", "sqnr", "rmse", "rel_l2", "max_abs")


# ---- computing -----------------------------------------------------------------------------------


def number_column(frame: pl.DataFrame, name: str) -> NDArray[np.float64]:
    """A column as float64, with NaN for null."""
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def count_mismatched(frame: pl.DataFrame) -> NDArray[np.int64]:
    """Count the elements of every row that are NaN, infinite or masked on one side only."""
    return frame["mismatched"].fill_null(0).to_numpy()


def code_guilts(frame: pl.DataFrame) -> NDArray[np.int8]:
    """Return the guilt of every row, as an index into GUILTS."""
    column = pl.col
    is_off = column("verdict").is_in(["moderate", "large"])
    introduces_error = column("introduced_verdict").is_in(["moderate", "large"])
    codes = (
        pl.when(column("first_non_finite"))
        .then(GUILTS.index("first-non-finite"))
        .when(column("verdict") == "inherited")
        .then(INHERITED)
        .when(column("verdict") == "amplified")
        .then(GUILTS.index("amplified"))
        .when(is_off & column("output"))
        .then(GUILTS.index("output"))
        .when(is_off & introduces_error)
        .then(GUILTS.index("guilty"))
        .when(is_off & column("introduced_rmse").is_null())
        .then(GUILTS.index("unknown"))
        .otherwise(0)
    )
    return frame.select(codes.cast(pl.Int8)).to_series().to_numpy()


class LevelJudge:
    """Judges every row by one metric: `metrics.judge_values.judge_metric` on whole columns."""

    def __init__(
        self, frame: pl.DataFrame, limits: Limits | None, guilts: NDArray[np.int8]
    ) -> None:
        self._frame = frame
        self._limits = limits
        self._guilts = guilts
        self._mismatched = count_mismatched(frame)
        self._limit_columns: dict[str, LimitColumns] = {}

    def judge(self, metric: str) -> NDArray[np.int8]:
        """Return the level of every row, as an index into LEVELS.

        A test compares it with `metrics.judge_values.judge_metric`.
        """
        verdict_levels = (
            self._frame["verdict"]
            .replace_strict(_LEVEL_BY_VERDICT, default=NONE, return_dtype=pl.Int8)
            .to_numpy()
        )
        levels = verdict_levels.copy()
        has_values = (self._frame["basis"] == "values") & (self._frame["count"].fill_null(0) > 0)
        is_measured = has_values.to_numpy() & (levels != NONE)
        levels[is_measured] = self._total_levels[is_measured]
        close, moderate = self.limit_columns(metric)
        scores = self._numbers(metric)
        if metric == "mean_rel":
            robust = self._numbers("mean_rel_robust")
            scores = np.where(np.isnan(robust), scores, robust)
        has_limits = is_measured & (self._mismatched == 0) & ~np.isnan(close + moderate)
        metric_levels = _levels_within(scores, close, moderate, metric in HIGHER_IS_BETTER)
        metric_levels = np.maximum(metric_levels, self._hidden_levels)
        is_unscored = np.isnan(scores) | (metric.startswith("bulk_") & ~self._has_hidden_bulk)
        metric_levels = np.where(is_unscored, NONE, metric_levels)
        levels[has_limits] = metric_levels[has_limits]
        # Correct rounding is known by the dtypes of both sides, which no metric uses.
        is_rounding = (self._numbers("max_ulp") <= 0.5) & (verdict_levels < levels) & ~is_unscored
        is_rounding &= is_measured
        levels[is_rounding] = verdict_levels[is_rounding]
        is_input = self._frame["target_role"] == "model-input"
        is_judged_input = (is_input & self._frame["same_input"].is_not_null()).to_numpy()
        levels[is_judged_input] = verdict_levels[is_judged_input]
        # A row that makes error is shown as such, even where this metric sees little of it.
        is_maker = np.isin(self._guilts, ERROR_MAKERS)
        is_raised = is_maker & ((levels == NONE) | (levels < verdict_levels))
        levels[is_raised] = verdict_levels[is_raised]
        return levels

    def limit_columns(self, metric: str) -> LimitColumns:
        """Return the two limits of every row; NaN where the metric has none."""
        if metric not in self._limit_columns:
            self._limit_columns[metric] = self._compute_limits(metric)
        return self._limit_columns[metric]

    def _compute_limits(self, metric: str) -> LimitColumns:
        size = self._frame.height
        close, moderate = np.full(size, np.nan), np.full(size, np.nan)
        scale = "outliers_from" if metric == "bulk_max_abs" else "peak"
        peak = np.nan_to_num(self._numbers(scale), nan=0.0)
        for name, rows in self._rows_by_preset.items():
            limits = limits_in_force(name, self._limits)
            if limits is None or limits.exact:
                continue
            at_one, at_zero = ({"peak": x, "outliers_from": x} for x in (1.0, 0.0))
            for level, column in ((0, close), (1, moderate)):
                # Every limit is a + b * peak or, for mse, b * peak^2.
                limit_at_one = metric_bound(metric, at_one, limits, level)
                if limit_at_one is None:
                    continue
                limit_at_zero = metric_bound(metric, at_zero, limits, level) or 0.0
                power = 2 if metric == "mse" else 1
                slope = limit_at_one - limit_at_zero
                with np.errstate(over="ignore"):
                    bounds = limit_at_zero + slope * peak[rows] ** power
                column[rows] = np.where(np.isfinite(bounds), bounds, np.nan)
        return close, moderate

    @cached_property
    def _rows_by_preset(self) -> dict[str, NDArray[np.bool_]]:
        names = self._frame["preset"]
        return {name: (names == name).to_numpy() for name in names.unique()}

    @cached_property
    def _total_levels(self) -> NDArray[np.int8]:
        """The verdict on total error by psnr, sqnr, max_abs and mismatches together."""
        size = self._frame.height
        worst = np.zeros(size, np.int8)
        for metric in ("psnr", "sqnr"):
            close, moderate = self.limit_columns(metric)
            level = _levels_within(self._numbers(metric), close, moderate, higher_is_better=True)
            worst = np.maximum(worst, np.where(np.isnan(close), CLOSE, level)).astype(np.int8)
        close, moderate = self.limit_columns("max_abs")
        max_abs = np.nan_to_num(self._numbers("max_abs"), nan=0.0, posinf=np.inf)
        max_abs_level = (max_abs > close).astype(np.int8) + (max_abs > moderate)
        worst = np.maximum(worst, np.where(np.isnan(close), CLOSE, max_abs_level)).astype(np.int8)
        worst = np.maximum(worst, self._hidden_levels).astype(np.int8)
        is_exact = self._rows_by_preset.get("exact", np.zeros(size, bool))
        if self._limits is not None and self._limits.exact:
            is_exact = np.ones(size, bool)
        is_unequal = (self._frame["count"] != self._frame["equal"]).fill_null(True).to_numpy()
        worst[is_exact] = np.where(is_unequal[is_exact], LARGE, CLOSE)
        compared = self._frame["compared"].fill_null(0).to_numpy()
        worst[~is_exact & (compared == 0)] = NONE
        worst[self._mismatched > 0] = LARGE
        return worst

    @cached_property
    def _has_hidden_bulk(self) -> NDArray[np.bool_]:
        """Which rows have elements that outliers hide; as in `metrics.judge_values`."""
        peak, minimum = self._numbers("peak"), self._numbers("reference_min")
        are_shares = (minimum >= 0) & (peak > 0.5) & (peak <= MAX_PROBABILITY)
        return ~np.isnan(self._numbers("bulk_sqnr")) & ~are_shares

    @cached_property
    def _hidden_levels(self) -> NDArray[np.int8]:
        """`metrics.judge_values.bulk_level` on whole columns."""
        close, moderate = self.limit_columns("bulk_sqnr")
        levels = _levels_within(self._numbers("bulk_sqnr"), close, moderate, higher_is_better=True)
        close, moderate = self.limit_columns("bulk_max_abs")
        max_abs = self._numbers("bulk_max_abs")
        levels = np.maximum(levels, (max_abs > close).astype(np.int8) + (max_abs > moderate))
        return np.where(self._has_hidden_bulk & ~np.isnan(close), levels, CLOSE).astype(np.int8)

    def _numbers(self, name: str) -> NDArray[np.float64]:
        return number_column(self._frame, name)


def _levels_within(
    scores: NDArray[np.float64],
    close: NDArray[np.float64],
    moderate: NDArray[np.float64],
    higher_is_better: bool,
) -> NDArray[np.int64]:
    """Return the level of every score; one that is NaN is large."""
    if higher_is_better:
        return np.where(scores >= close, CLOSE, np.where(scores >= moderate, MODERATE, LARGE))
    return np.where(scores <= close, CLOSE, np.where(scores <= moderate, MODERATE, LARGE))


# ---- for the page --------------------------------------------------------------------------------


def pack_states(opened: OpenComparison, metric: str) -> RowStates:
    """Return level, guilt and score of every row by one metric, a few bytes a row."""
    table = opened.table
    scores, is_bound = table.scores_or_bounds(metric)
    introduced = ""
    if metric in _METRICS_WITH_INTRODUCED:
        column = table.frame[f"introduced_{metric}"].fill_null(np.nan).to_numpy()
        introduced = pack_array(column, "<f4")
    return RowStates(
        metric=metric,
        levels=_LEVEL_LETTERS[table.levels(metric)].tobytes().decode(),
        guilts=_GUILT_LETTERS[table.guilts].tobytes().decode(),
        bad=_MISMATCH_LETTERS[(table.mismatched > 0).astype(np.int64)].tobytes().decode(),
        scores=pack_array(scores, "<f4"),
        bounds=_BOUND_LETTERS[_bound_codes(table.frame, is_bound)].tobytes().decode(),
        introduced=introduced,
        orders=pack_array(table.order, "<u4"),
    )


def _bound_codes(frame: pl.DataFrame, is_bound: NDArray[np.bool_]) -> NDArray[np.int64]:
    is_digest = (frame["basis"] == "digest").to_numpy()
    same_bytes = frame["same_bytes"].fill_null(False).to_numpy()
    return np.where(is_digest, np.where(same_bytes, 2, 3), is_bound.astype(np.int64))
