"""The sync points of one comparison as columns, with what the page asks of them.

Everything works on whole columns: a comparison may have a million rows, and no row is ever made
into an object here but those of the window that is shown.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.judge_numbers import HIGHER_IS_BETTER, LARGEST_SHARE
from syncpoint.metrics.limits import Limits, bound, limits_in_force
from syncpoint.page.grouping import groups_of
from syncpoint.page.row_query import Query, Selection
from syncpoint.page.schema import Guilt, Level
from syncpoint.page.sync_point_names import NAMING, labels_of

LEVELS: tuple[Level, ...] = ("close", "moderate", "large", "none")
CLOSE, MODERATE, LARGE, NONE = range(4)
GUILTS: tuple[Guilt, ...] = (
    *("", "guilty", "first-non-finite", "inherited"),
    *("amplified", "output", "unknown"),
)
INHERITED = GUILTS.index("inherited")
_BY_VERDICT = {
    **{"close": CLOSE, "moderate": MODERATE, "large": LARGE},
    **{"inherited": MODERATE, "amplified": LARGE, "none": NONE},
}
INPUTS, PARAMETERS = "inputs", "parameters"
"""The groups of what the model was given, and of its parameters."""
ROLES = ("model-input", "model-output", "parameter", "state")
"""What can be asked for beside the types of ops."""
_BOUNDED = ("psnr", "sqnr")
"""Metrics that statistics of both sides bound from above."""


Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


class Table:
    """The rows of a comparison, read as columns."""

    def __init__(self, frame: pl.DataFrame, limits: Limits | None = None) -> None:
        self.frame = frame
        self.limits = limits
        """Those of every row, or None where each has those of its precision."""
        self.size = frame.height
        self._levels: dict[str, NDArray[np.int8]] = {}
        self._ranks: dict[str, NDArray[np.int64]] = {}
        self._badness: dict[str, NDArray[np.float64]] = {}
        self._bounds: dict[str, Bounds] = {}
        self._shown: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}
        self._severities: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        # Several panes ask at once, and whole columns are worked out for one of them only.
        self._working = threading.RLock()
        self._selections: dict[Query, Selection] = {}

    # ---- columns that do not depend on the metric -------------------------------------------

    @cached_property
    def execution(self) -> NDArray[np.int64]:
        """Rows in the target's execution order; those without a place come last."""
        order = self._numbers("target_order")
        order = np.where(order < 0, np.inf, order)
        role = self.frame["target_role"]
        order[(role == "model-input").to_numpy()] = -1
        order[(role == "parameter").to_numpy()] = np.inf
        steps = [self.frame[f"target_{name}"].to_numpy() for name in ("step", "sample", "rank")]
        # A model's output comes after the op that makes it.
        last = (role == "model-output").to_numpy()
        keys = (np.arange(self.size), last, order, *steps)
        return np.lexsort(keys).astype(np.int64)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The place of every row in that order."""
        places = np.empty(self.size, np.int64)
        places[self.execution] = np.arange(self.size)
        return places

    @cached_property
    def verdicts(self) -> NDArray[Any]:
        """In words."""
        return self.frame["verdict"].to_numpy()

    @cached_property
    def guilts(self) -> NDArray[np.int8]:
        """Whose fault, as places in GUILTS."""
        column = pl.col
        off = column("verdict").is_in(["moderate", "large"])
        made = column("introduced_verdict").is_in(["moderate", "large"])
        said = (
            pl.when(column("first_non_finite"))
            .then(2)
            .when(column("verdict") == "inherited")
            .then(INHERITED)
            .when(column("verdict") == "amplified")
            .then(4)
            .when(off & column("output"))
            .then(5)
            .when(off & made)
            .then(1)
            .when(off & column("introduced_rmse").is_null())
            .then(6)
            .otherwise(0)
        )
        return self.frame.select(said.cast(pl.Int8)).to_series().to_numpy()

    @cached_property
    def modules(self) -> pl.Series:
        """The module that made it: the target's, else that of its partner."""
        own = pl.col("target_module")
        return self.frame.select(
            pl.when(own == "").then(pl.col("reference_module")).otherwise(own).alias("module")
        ).to_series()

    @cached_property
    def groups(self) -> pl.Series:
        """What a row is rolled up under; "" for one that no module made. What the model was given
        and its parameters are groups of their own."""
        counted = self.modules.value_counts()
        counts = dict(zip(counted["module"], counted["count"], strict=True))
        groups = groups_of({module: count for module, count in counts.items() if module})
        named = self.modules.replace_strict({**groups, "": ""}, return_dtype=pl.String)
        role = pl.col("target_role")
        return self.frame.select(
            pl.when(role == "model-input")
            .then(pl.lit(INPUTS))
            .when(role == "parameter")
            .then(pl.lit(PARAMETERS))
            .otherwise(named)
            .alias("group")
        ).to_series()

    @cached_property
    def computed(self) -> int:
        """How many rows, in execution order, come before the parameters."""
        return int((self.frame["target_role"] != "parameter").sum())

    def labels(self, rows: NDArray[np.int64], side: str = "target") -> list[str]:
        """The names to show of these rows' ends on one side."""
        ends = self.frame.select(f"{side}_{name}" for name in NAMING)
        return labels_of(ends[rows], side).to_list()

    def label(self, row: int, side: str = "target") -> str:
        """The name to show of one."""
        return self.labels(np.array([row]), side)[0]

    def parts(self, rows: NDArray[np.int64]) -> list[str]:
        """`step=3`, or "", of each of these rows."""
        said = [
            pl.when(pl.col(f"target_{name}") >= 0)
            .then(pl.format(f"{name}={{}}", pl.col(f"target_{name}")))
            .otherwise(None)
            for name in ("sample", "step", "rank")
        ]
        words = pl.concat_str(said, separator=" ", ignore_nulls=True)
        places = self.frame.select("target_sample", "target_step", "target_rank")
        return places[rows].select(words.alias("part")).to_series().to_list()

    @cached_property
    def bad(self) -> NDArray[np.int64]:
        """Elements that are not finite, or masked, on one side only."""
        return self.frame["mismatched"].fill_null(0).to_numpy()

    @cached_property
    def haystack(self) -> pl.Series:
        """What the filter by text looks through."""
        return self.frame.select(
            pl.concat_str(
                [
                    labels_of(self.frame, "target").alias("a"),
                    labels_of(self.frame, "reference").alias("b"),
                    pl.col("target_op"),
                    pl.col("reference_op"),
                    pl.col("target_module"),
                    pl.col("reference_module"),
                ],
                separator="\n",
            ).str.to_lowercase()
        ).to_series()

    # ---- by metric -----------------------------------------------------------------------------

    def scores(self, metric: str) -> NDArray[np.float64]:
        """The metric of every row; NaN where it has none."""
        return self._numbers(metric)

    def bounds(self, metric: str) -> NDArray[np.float64]:
        """What statistics say the metric is at most, where it was not measured; NaN where they say
        nothing."""
        if metric not in _BOUNDED:
            return np.full(self.size, np.nan)
        known = np.isnan(self.scores(metric)) & (self.bad == 0)
        bound = self._numbers(f"{metric}_bound")
        return np.where(known & np.isfinite(bound), bound, np.nan)

    def shown(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The score or the bound of every row, and which are bounds."""
        with self._working:
            if metric not in self._shown:
                scores, bounds = self.scores(metric), self.bounds(metric)
                bounded = ~np.isnan(bounds)
                self._shown[metric] = np.where(bounded, bounds, scores), bounded
            return self._shown[metric]

    def levels(self, metric: str) -> NDArray[np.int8]:
        """How bad each row is by this metric, as places in LEVELS."""
        with self._working:
            if metric not in self._levels:
                self._levels[metric] = self._judged(metric)
            return self._levels[metric]

    def limits_of(self, metric: str) -> Bounds:
        """The two limits of every row; NaN where the metric has none."""
        with self._working:
            if metric not in self._bounds:
                self._bounds[metric] = self._limited(metric)
            return self._bounds[metric]

    def _limited(self, metric: str) -> Bounds:
        close, moderate = np.full(self.size, np.nan), np.full(self.size, np.nan)
        scale = "outliers_from" if metric == "bulk_max_abs" else "peak"
        peak = np.nan_to_num(self._numbers(scale), nan=0.0)
        for name, rows in self._presets.items():
            limits = limits_in_force(name, self.limits)
            if limits is None or limits.exact:
                continue
            at_one, at_zero = ({"peak": x, "outliers_from": x} for x in (1.0, 0.0))
            for level, into in ((0, close), (1, moderate)):
                # Every limit is a + b * peak or, of mse, b * peak^2.
                one = bound(metric, at_one, limits, level)
                if one is None:
                    continue
                zero = bound(metric, at_zero, limits, level) or 0.0
                power = 2 if metric == "mse" else 1
                into[rows] = zero + (one - zero) * peak[rows] ** power
        return close, moderate

    @cached_property
    def _presets(self) -> dict[str, NDArray[np.bool_]]:
        """Which rows each set of limits is for."""
        names = self.frame["preset"]
        return {name: (names == name).to_numpy() for name in names.unique()}

    def badness(self, metric: str) -> NDArray[np.float64]:
        """Smaller is worse; what has no score is infinite."""
        with self._working:
            if metric not in self._badness:
                self._badness[metric] = self._bad_by(metric)
            return self._badness[metric]

    def _bad_by(self, metric: str) -> NDArray[np.float64]:
        score = self.scores(metric)
        better = CATALOGUE[metric].better
        key = score if better == "higher" else -np.abs(score - 1) if better == "one" else -score
        levels = self.levels(metric)
        if metric in _BOUNDED:
            key = np.where(np.isnan(key), self._numbers(f"{metric}_bound"), key)
        # Without a score what is off is worse than anything measured, and the rest is not.
        unscored = np.where(levels == LARGE, -1e300, np.where(levels == MODERATE, -1e299, np.inf))
        key = np.where(np.isnan(key), unscored, key)
        return np.where(self.bad > 0, -np.inf, key)

    def rank(self, metric: str) -> NDArray[np.int64]:
        """Rows with the least similar first."""
        with self._working:
            if metric not in self._ranks:
                without = self.levels(metric) == NONE
                self._ranks[metric] = np.lexsort((self.order, self.badness(metric), without))
            return self._ranks[metric]

    def severity(self, metric: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows with the worst first, by level, then guilt, then the metric; and the place of every
        row among them."""
        with self._working:
            if metric not in self._severities:
                levels = self.levels(metric).astype(np.int64)
                worse = np.where(levels == NONE, -1, 2 * levels)
                worse -= (self.guilts == INHERITED) & (levels > 0)
                rows = np.lexsort((self.order, self.badness(metric), -worse))
                places = np.empty(self.size, np.int64)
                places[rows] = np.arange(self.size)
                self._severities[metric] = rows, places
            return self._severities[metric]

    def bars(self, metric: str, rows: NDArray[np.int64]) -> Bounds:
        """Length of the bars, and where the second limit stands; the first is in the middle."""
        score = self.scores(metric)[rows]
        close, moderate = (limit[rows] for limit in self.limits_of(metric))
        with np.errstate(all="ignore"):
            if metric in ("psnr", "sqnr"):
                fill, tick = score / (2 * close), moderate / (2 * close)
            else:
                if metric == "cosine":
                    score, close, moderate = 1 - score, 1 - close, 1 - moderate
                span = 2 * np.array([self._db(name) for name in self.frame["preset"].gather(rows)])
                fill = 0.5 + 20 * np.log10(close / score) / span
                tick = 0.5 + 20 * np.log10(close / moderate) / span
        fill = np.where(np.isposinf(fill), 1.0, np.nan_to_num(fill, nan=0.0, neginf=0.0))
        return np.clip(fill, 0.0, 1.0), tick

    def _db(self, name: str) -> float:
        limits = limits_in_force(name, self.limits)
        return limits.psnr[0] if limits and limits.psnr[0] else 100.0

    def _judged(self, metric: str) -> NDArray[np.int8]:
        """`metrics.judge_numbers.judge_metric` on whole columns; a test holds the two together."""
        by_verdict = self.frame["verdict"].replace_strict(
            _BY_VERDICT, default=NONE, return_dtype=pl.Int8
        )
        levels = by_verdict.to_numpy().copy()
        measured = (
            (self.frame["basis"] == "values") & (self.frame["count"].fill_null(0) > 0)
        ).to_numpy() & (levels != NONE)
        total = self._total_levels()
        levels[measured] = total[measured]
        close, moderate = self.limits_of(metric)
        score = self.scores(metric)
        if metric == "mean_rel":
            robust = self._numbers("mean_rel_robust")
            score = np.where(np.isnan(robust), score, robust)
        plain = measured & (self.bad == 0) & ~np.isnan(close)
        if metric in HIGHER_IS_BETTER:
            own = np.where(score >= close, CLOSE, np.where(score >= moderate, MODERATE, LARGE))
        else:
            own = np.where(score <= close, CLOSE, np.where(score <= moderate, MODERATE, LARGE))
        own = np.maximum(own, self._hidden_levels)
        unscored = np.isnan(score) | (metric.startswith("bulk_") & ~self._has_hidden_bulk)
        own = np.where(unscored, NONE, own)
        levels[plain] = own[plain]
        # Correct rounding is known by the types of both sides, which no metric knows.
        rounded = (self._numbers("max_ulp") <= 0.5) & (by_verdict.to_numpy() < levels) & ~unscored
        levels[rounded & measured] = by_verdict.to_numpy()[rounded & measured]
        inputs = self.frame["target_role"] == "model-input"
        judged = (inputs & self.frame["same_input"].is_not_null()).to_numpy()
        levels[judged] = by_verdict.to_numpy()[judged]
        # Whoever makes error is shown so, however little of it this metric sees.
        makers = np.isin(self.guilts, [GUILTS.index("guilty"), GUILTS.index("first-non-finite")])
        said = by_verdict.to_numpy()
        raised = makers & ((levels == NONE) | (levels < said))
        levels[raised] = said[raised]
        return levels

    def _total_levels(self) -> NDArray[np.int8]:
        """The verdict on total error by all that counts: psnr, sqnr, max_abs, mismatches."""
        worst = np.zeros(self.size, np.int8)
        for metric in ("psnr", "sqnr"):
            close, moderate = self.limits_of(metric)
            score = self.scores(metric)
            level = np.where(score >= close, CLOSE, np.where(score >= moderate, MODERATE, LARGE))
            worst = np.maximum(worst, np.where(np.isnan(close), CLOSE, level)).astype(np.int8)
        close, moderate = self.limits_of("max_abs")
        score = np.nan_to_num(self.scores("max_abs"), nan=0.0, posinf=np.inf)
        lone = (score > close).astype(np.int8) + (score > moderate)
        worst = np.maximum(worst, np.where(np.isnan(close), CLOSE, lone)).astype(np.int8)
        worst = np.maximum(worst, self._hidden_levels).astype(np.int8)
        exact = self._presets.get("exact", np.zeros(self.size, bool))
        if self.limits is not None and self.limits.exact:
            exact = np.ones(self.size, bool)
        unequal = (self.frame["count"] != self.frame["equal"]).fill_null(True).to_numpy()
        worst[exact] = np.where(unequal[exact], LARGE, CLOSE)
        compared = self.frame["compared"].fill_null(0).to_numpy()
        worst[~exact & (compared == 0)] = NONE
        worst[self.bad > 0] = LARGE
        return worst

    @cached_property
    def _has_hidden_bulk(self) -> NDArray[np.bool_]:
        """Which rows have elements that outliers hide; as in `metrics.judge_numbers`."""
        peak, least = self._numbers("peak"), self._numbers("reference_min")
        shares = (least >= 0) & (peak > 0.5) & (peak <= LARGEST_SHARE)
        return ~np.isnan(self._numbers("bulk_sqnr")) & ~shares

    @cached_property
    def _hidden_levels(self) -> NDArray[np.int8]:
        """`metrics.judge_numbers.bulk_level` on whole columns."""
        (close, moderate), score = self.limits_of("bulk_sqnr"), self._numbers("bulk_sqnr")
        levels = np.where(score >= close, CLOSE, np.where(score >= moderate, MODERATE, LARGE))
        close, moderate = self.limits_of("bulk_max_abs")
        score = self._numbers("bulk_max_abs")
        levels = np.maximum(levels, (score > close).astype(np.int8) + (score > moderate))
        return np.where(self._has_hidden_bulk & ~np.isnan(close), levels, CLOSE).astype(np.int8)

    def _numbers(self, name: str) -> NDArray[np.float64]:
        return self.frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()

    # ---- questions -----------------------------------------------------------------------------

    def select(self, query: Query) -> Selection:
        """The rows a query lets through; the last few answers are kept, for scrolling."""
        with self._working:
            if query not in self._selections:
                found = self._select(query)
                while len(self._selections) >= 8:
                    del self._selections[next(iter(self._selections))]
                self._selections[query] = found
            return self._selections[query]

    def _select(self, query: Query) -> Selection:
        keep = np.ones(self.size, bool)
        if query.text:
            keep &= self.haystack.str.contains(query.text.lower(), literal=True).to_numpy()
        if query.types:
            wanted = list(query.types)
            of_type = self.frame["target_type"].is_in(wanted)
            in_role = self.frame["target_role"].is_in([one for one in wanted if one in ROLES])
            keep &= (of_type | in_role).to_numpy()
        if query.module:
            inside = (self.modules == query.module) | self.modules.str.starts_with(
                f"{query.module}."
            )
            keep &= (inside | (self.groups == query.module)).to_numpy()
        if query.start or query.stop:
            keep &= self.order >= query.start
            if query.stop:
                keep &= self.order < query.stop
        names = self.names(query.metric)
        counts = {
            name: int(np.count_nonzero(keep & (names == at))) for at, name in enumerate(NAMES)
        }
        if query.levels:
            places = [NAMES.index(name) for name in query.levels if name in NAMES]
            keep &= np.isin(names, places)
        order = self.rank(query.metric) if query.sort == "similarity" else self.execution
        rows = order[keep[order]]
        if query.descending:
            rows = rows[::-1]
        found = Selection(rows, counts)
        if query.grouped:
            found.groups = self._grouped(rows)
        return found

    def names(self, metric: str) -> NDArray[np.int8]:
        """Places in NAMES: level, but what is passed on counts as inherited."""
        levels = self.levels(metric)
        passed = (self.guilts == INHERITED) & ((levels == MODERATE) | (levels == LARGE))
        return np.where(passed, NAMES.index("inherited"), levels).astype(np.int8)

    def _grouped(self, rows: NDArray[np.int64]) -> list[tuple[str, NDArray[np.int64]]]:
        codes, names = self._group_codes
        own = codes[rows]
        places = np.argsort(own, kind="stable")
        sorted_ = own[places]
        starts = np.flatnonzero(np.concatenate([[True], sorted_[1:] != sorted_[:-1]])[: len(own)])
        pieces = np.split(rows[places], starts[1:]) if len(rows) else []
        found = [(names[codes[piece[0]]], piece) for piece in pieces]
        # A stable sort keeps the first of each piece where it stood in the list.
        return [found[at] for at in np.argsort(places[starts])]

    @cached_property
    def _group_codes(self) -> tuple[NDArray[Any], list[str]]:
        names = self.groups.unique(maintain_order=True).to_list()
        small = len(names) <= np.iinfo(np.uint16).max
        codes = self.groups.replace_strict(
            {name: at for at, name in enumerate(names)}, return_dtype=pl.Int64
        )
        # Numbers of two bytes are sorted in one go.
        return codes.to_numpy().astype(np.uint16 if small else np.int64), names


NAMES = ("close", "moderate", "large", "none", "inherited")
"""What the filter by level offers; the first four are LEVELS."""
