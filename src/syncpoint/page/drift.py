"""What the drift strip shows: groups, flags, limits, and where target tensors are missing."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from syncpoint.metrics.limits import PRESETS, metric_bound
from syncpoint.page.op_columns import orders_of
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_states import GUILTS
from syncpoint.page.schema import Drift, DriftFlag, DriftGroup
from syncpoint.reports.number_format import ratio_text

_FLAGS = 12


def drift(opened: Opened, metric: str) -> Drift:
    """What the drift strip shows beside the curve."""
    table = opened.table
    groups: list[DriftGroup] = []
    names = table.groups.gather(table.execution[: table.computed])
    runs = names.rle().struct.unnest() if len(names) else None
    at = 0
    for length, name in runs.iter_rows() if runs is not None else ():
        groups.append(DriftGroup(group=name, start=at, stop=at + length))
        at += length
    presets = table.frame["preset"].unique().to_list()
    chosen = opened.limits or (PRESETS.get(presets[0]) if len(presets) == 1 else None)
    limits: list[float] = []
    if chosen and not chosen.exact and metric in ("psnr", "sqnr", "rel_l2", "cosine", "mean_rel"):
        limits = [metric_bound(metric, {"peak": 1.0}, chosen, level) or 0.0 for level in (0, 1)]
    given = ["model-input", "state", "parameter"]
    made = table.frame.select("target_role", "basis").filter(~pl.col("target_role").is_in(given))
    return Drift(
        points=table.computed,
        values=int((made["basis"] == "values").sum()),
        groups=groups,
        flags=_flags(opened),
        limits=limits,
        unmatched=_unmatched(opened),
    )


def _unmatched(opened: Opened) -> list[int]:
    """Before which places a target tensor is missing."""
    roles = ("output", "input", "model-output")
    lonely = {
        one["op"]
        for one in opened.about["unmatched"]
        if one["side"] == "target" and one["role"] in roles
    }
    return places_before(opened, lonely) if lonely else []


def places_before(opened: Opened, ops: set[str]) -> list[int]:
    """Places among the sync points before which target ops ran, in the first of several
    executions."""
    table = opened.table
    rows = table.execution[: table.computed]
    steps = table.frame.select("target_step", "target_sample", "target_rank")[rows].to_numpy()
    order = table.frame["target_order"].to_numpy()[rows]
    # What the model was given stands before all ops, and has no place among them.
    given = (table.frame["target_role"] == "model-input").to_numpy()[rows]
    order = np.where(given, -1, order)
    if len(steps):
        order = order[np.arange(len(order)) < _first_change(steps)]
    places = np.searchsorted(order, orders_of(opened, ops), side="right")
    return [int(place) for place in np.unique(places)]


def _first_change(rows: NDArray[np.int64]) -> int:
    changes = np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1))
    return int(changes[0]) + 1 if len(changes) else len(rows)


def _flags(opened: Opened) -> list[DriftFlag]:
    table = opened.table
    wanted = [GUILTS.index("guilty"), GUILTS.index("first-non-finite")]
    rows = np.flatnonzero(np.isin(table.guilts, wanted) & (table.verdicts == "large"))
    rows = rows[np.argsort(table.order[rows])][:_FLAGS]
    flags = []
    for row in rows.tolist():
        name = table.label(row)
        non_finite = table.guilts[row] == wanted[1]
        ratio = table.frame["introduced_ratio"][row]
        text = f"{name} introduces {ratio_text(ratio)} expected"
        if non_finite:
            text = f"{name} makes non-finite values"
        flags.append(
            DriftFlag(
                row=row,
                order=int(table.order[row]),
                kind="non-finite" if non_finite else "guilty",
                text=text,
            )
        )
    return flags
