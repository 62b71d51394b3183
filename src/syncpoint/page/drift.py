"""The strip beside the error curve of the page: module groups, flags, limits all rows share, and
places where target tensors have no counterpart."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.metrics.limits import PRESETS, metric_bound
from syncpoint.page.open_comparison import OpenComparison
from syncpoint.page.read_ops import find_orders
from syncpoint.page.row_states import ERROR_MAKERS, GUILTS
from syncpoint.page.schema import DriftFlag, DriftGroup, DriftStrip
from syncpoint.reports.number_and_name_format import ratio_text

_MAX_FLAGS = 12
_METRICS_WITH_COMMON_LIMITS = ("psnr", "sqnr", "rel_l2", "cosine", "mean_rel")
"""Metrics whose limits do not depend on the peak of a tensor."""


def build_drift_strip(opened: OpenComparison, metric: str) -> DriftStrip:
    """Return what the drift strip shows beside the curve."""
    table = opened.table
    groups: list[DriftGroup] = []
    names = table.groups.gather(table.execution[: table.computed])
    runs = names.rle().struct.unnest() if len(names) else None
    start = 0
    for length, name in runs.iter_rows() if runs is not None else ():
        groups.append(DriftGroup(group=name, start=start, stop=start + length))
        start += length
    roles = ["model-input", "state", "parameter"]
    computed = table.frame.select("target_role", "basis").filter(
        ~pl.col("target_role").is_in(roles)
    )
    return DriftStrip(
        points=table.computed,
        values=int((computed["basis"] == "values").sum()),
        groups=groups,
        flags=_build_flags(opened),
        limits=_common_limits(opened, metric),
        unmatched=_find_unmatched_places(opened),
    )


def _common_limits(opened: OpenComparison, metric: str) -> list[float]:
    """Return the two limits of a metric where all rows share them; else an empty list."""
    presets = opened.table.frame["preset"].unique().to_list()
    limits = opened.limits or (PRESETS.get(presets[0]) if len(presets) == 1 else None)
    if limits is None or limits.exact or metric not in _METRICS_WITH_COMMON_LIMITS:
        return []
    return [metric_bound(metric, {"peak": 1.0}, limits, level) or 0.0 for level in (0, 1)]


def _find_unmatched_places(opened: OpenComparison) -> list[int]:
    """Return the places before which a target tensor has no counterpart."""
    roles = ("output", "input", "model-output")
    ops = {
        unmatched["op"]
        for unmatched in opened.about["unmatched"]
        if unmatched["side"] == "target" and unmatched["role"] in roles
    }
    return find_places_before(opened, ops) if ops else []


def find_places_before(opened: OpenComparison, ops: set[str]) -> list[int]:
    """Return the places among the sync points before which target ops ran, in the first of
    several executions."""
    table = opened.table
    rows = table.execution[: table.computed]
    steps = table.frame.select("target_step", "target_sample", "target_rank")[rows].to_numpy()
    order = table.frame["target_order"].to_numpy()[rows]
    # Model inputs stand before all ops, and have no place among them.
    is_input = (table.frame["target_role"] == "model-input").to_numpy()[rows]
    order = np.where(is_input, -1, order)
    if len(steps):
        order = order[np.arange(len(order)) < _first_change(steps)]
    places = np.searchsorted(order, find_orders(opened, ops), side="right")
    return [int(place) for place in np.unique(places)]


def _first_change(rows: NDArray[np.int64]) -> int:
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1))
    return int(changes[0]) + 1 if len(changes) else len(rows)


def _build_flags(opened: OpenComparison) -> list[DriftFlag]:
    table = opened.table
    rows = np.flatnonzero(np.isin(table.guilts, ERROR_MAKERS) & (table.verdicts == "large"))
    rows = rows[np.argsort(table.order[rows])][:_MAX_FLAGS]
    flags = []
    for row in rows.tolist():
        name = table.label(row)
        is_non_finite = table.guilts[row] == GUILTS.index("first-non-finite")
        ratio = table.frame["introduced_ratio"][row]
        text = f"{name} introduces {ratio_text(ratio)} expected"
        if is_non_finite:
            text = f"{name} produces NaN or inf"
        flags.append(
            DriftFlag(
                row=row,
                order=int(table.order[row]),
                kind="non-finite" if is_non_finite else "guilty",
                text=text,
            )
        )
    return flags
