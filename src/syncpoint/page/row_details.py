"""Everything about one sync point but its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isnan, log10, sqrt
from typing import Any

import numpy as np

from syncpoint.comparison.statistics_pairs import tensor_statistics
from syncpoint.comparison.storage.sync_point_table import row_from_table
from syncpoint.errors import SyncpointError
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.judge_numbers import judge_metric
from syncpoint.metrics.limits import PRESETS, Limits, limits_in_force, metric_bound, precision_name
from syncpoint.page.encoding import json_number
from syncpoint.page.fused_ops import region_of
from syncpoint.page.navigator import briefs
from syncpoint.page.open_comparison import Opened
from syncpoint.page.row_verdict_sentence import fault
from syncpoint.page.schema import (
    EndInfo,
    ErrorBars,
    Level,
    MetricValue,
    Number,
    RowDetail,
    Side,
    StatisticRow,
)
from syncpoint.run.model import Frame, Kept, Op, Role, Statistics, Tensor, TensorKey

_UNITS = {"f32": -24, "tf32": -11, "f16": -11, "bf16": -8, "fp8": -4}
"""log2 of the unit roundoff."""
_LEAD = (
    *("psnr", "sqnr", "mae", "max_abs", "cosine", "rel_l2", "within_1e3"),
    *("bulk_sqnr", "mismatched", "exact", "max_ulp", "lsb"),
)
"""Metrics in the order in which people ask for them; the rest follow as in the catalogue."""
_WORDS = {
    "psnr": "against the peak",
    "sqnr": "against the signal",
    "bulk_sqnr": "beside the outliers that hide it",
    "mae": "average difference",
    "max_abs": "single worst element",
    "cosine": "direction alone",
    "rel_l2": "error's length ÷ reference's",
    "within_1e3": "share with a relative error under 0.001",
    "mismatched": "NaN, infinite or masked on one side only",
    "exact": "share of elements that are equal",
    "max_ulp": "representable numbers in between, at worst",
    "lsb": "quantization steps; rounding alone gives 0.289",
}
_MOST_TEXT = 2000


def detail(opened: Opened, row: int, metric: str) -> RowDetail:
    """What the inspector shows before it asks for values."""
    flat = opened.table.frame.row(row, named=True)
    said = fault(opened, row, flat)
    limits = limits_in_force(flat["preset"], opened.limits)
    compared = flat["compared"] or 0
    rms = (flat["reference_l2"] or 0.0) / sqrt(compared) if compared else 0.0
    histogram = json.loads(flat["error_histogram"]) if flat["error_histogram"] else []
    return RowDetail(
        brief=briefs(opened.table, metric, np.asarray([row]))[0],
        target=_end(opened, "target", row, flat),
        reference=_end(opened, "reference", row, flat),
        evidence=flat["evidence"],
        confidence=flat["confidence"],
        view=flat["view"],
        basis=flat["basis"],
        preset=flat["preset"],
        headline=said.headline,
        story=said.story,
        guilty_row=said.row,
        guilty_label=opened.table.label(said.row) if said.row is not None else "",
        guilty_how=said.how,
        bars=_bars(opened, flat),
        region=region_of(opened, row),
        metrics=_metrics(flat, limits),
        statistics=_statistics(opened, flat) if flat["basis"] == Kept.STATISTICS else [],
        same_bytes=flat["same_bytes"],
        error_histogram=[(int(at), int(count)) for at, count in histogram],
        rms=json_number(rms) if rms else None,
        rounding=_UNITS.get(flat["preset"]),
        precision=precision_name(flat["preset"]),
        notes=[str(note) for note in flat["notes"] or ()],
        missing=_missing(opened, flat),
        output=flat["output"],
    )


def _missing(opened: Opened, flat: Mapping[str, Any]) -> str:
    """Why there is nothing to draw."""
    if flat["unmeasured"]:
        return f"It was not measured: {flat['unmeasured']}."
    if flat["basis"] != Kept.VALUES:
        return f"Only {flat['basis'] or 'names'} were kept."
    away = [side for side in ("target", "reference") if opened.run(side) is None]
    if away:
        said = [f"The {side} run is not at hand: {opened.why_not.get(side, '')}." for side in away]
        return " ".join(said)
    return ""


# ---- the two ends --------------------------------------------------------------------------------


def _end(opened: Opened, side: Side, row: int, flat: Mapping[str, Any]) -> EndInfo:
    def told(name: str) -> Any:
        return flat[f"{side}_{name}"]

    frame = Frame.from_text(told("source") or "")
    tensor, op = _recorded(opened, side, flat)
    parts = ((name, told(name)) for name in ("sample", "step", "rank"))
    return EndInfo(
        op=told("op"),
        label=opened.table.label(row, side),
        type=told("type"),
        dtype=told("dtype"),
        shape=list(told("shape")),
        module=told("module"),
        file=frame.file if frame else "",
        line=frame.line if frame else 0,
        role=told("role"),
        part=" ".join(f"{name}={value}" for name, value in parts if value >= 0),
        kept=tensor.kept.value if tensor else "",
        statistics=_told(tensor.statistics) if tensor and tensor.statistics else {},
        digest=tensor.digest if tensor else "",
        digest_kind=tensor.digest_kind if tensor else "",
        attributes={
            name: json.dumps(value, default=str)[:_MOST_TEXT]
            for name, value in (op.attributes.items() if op else ())
        },
        stack=[f"{frame} {frame.function}".strip() for frame in (op.source if op else ())],
    )


def _recorded(
    opened: Opened, side: Side, flat: Mapping[str, Any]
) -> tuple[Tensor | None, Op | None]:
    run = opened.run(side)
    if run is None:
        return None, None
    end = getattr(row_from_table(flat), side)
    tensor = run.tensor(end.key)
    op = run.op(end.key.op)
    if tensor is not None and end.key.role is Role.STATE and tensor.alias_of:
        # What wrote the state is the op that a reader wants to know of.
        op = run.ops[end.order] if 0 <= end.order < len(run.ops) else op
    return tensor, op


def _told(statistics: Statistics) -> dict[str, Number]:
    names = ("count", "min", "max", "mean", "std", "l2", "nan", "inf", "zero")
    known = {name: getattr(statistics, name) for name in names}
    return {name: json_number(value) for name, value in known.items() if not isnan(value)}


# ---- numbers -------------------------------------------------------------------------------------


def _bars(opened: Opened, flat: Mapping[str, Any]) -> ErrorBars:
    peak = flat["peak"]
    preset = flat["introduced_preset"] or flat["preset"]
    limits = opened.limits or PRESETS.get(preset)
    close, large = limits.introduced if limits else (0.0, 0.0)

    def share(rmse: float | None) -> Number:
        return json_number(rmse / peak) if rmse is not None and peak else None

    expected = flat["expected_rmse"]
    expected_psnr = None
    if expected is not None and peak:
        expected_psnr = 20 * log10(peak / expected) if expected else float("inf")
    return ErrorBars(
        peak=json_number(peak),
        total=share(flat["rmse"]),
        total_psnr=json_number(flat["psnr"]),
        introduced=share(flat["introduced_rmse"]),
        introduced_psnr=json_number(flat["introduced_psnr"]),
        expected=share(expected),
        expected_psnr=json_number(expected_psnr),
        ratio=json_number(flat["introduced_ratio"]),
        close_ratio=close,
        large_ratio=large,
        preset=preset,
        unknown=flat["introduced_unknown"] or "",
    )


def _metrics(flat: Mapping[str, Any], limits: Limits | None) -> list[MetricValue]:
    rest = [name for name in CATALOGUE if name not in _LEAD and name != "error_histogram"]
    numbers = row_from_table(flat).numbers if flat["basis"] == Kept.VALUES else None
    return [
        _metric(name, flat, numbers, limits)
        for name in (*_LEAD, *rest)
        if name in flat and (flat[name] is not None or flat["basis"] == Kept.VALUES)
    ]


def _metric(
    name: str, flat: Mapping[str, Any], numbers: Mapping[str, Any] | None, limits: Limits | None
) -> MetricValue:
    level: Level = "none"
    bounds: list[Number] = []
    if numbers is not None and limits is not None and flat["verdict"] != "none":
        if not limits.exact:
            found = [metric_bound(name, numbers, limits, at) for at in (0, 1)]
            bounds = [json_number(x) for x in found if x is not None]
        if bounds or (limits.exact and name == "exact"):
            level = judge_metric(name, numbers, limits).value  # type: ignore[assignment]
        if name == "mismatched" and numbers["mismatched"]:
            level = "large"
    value = flat[name]
    return MetricValue(
        id=name,
        value=json_number(float(value)) if value is not None else None,
        level=level,
        limits=bounds,
        text=_text(name, flat),
    )


def _text(name: str, flat: Mapping[str, Any]) -> str:
    shape = flat["reference_shape"]
    if name == "max_abs" and flat["max_abs_index"] is not None and 0 not in shape:
        count = int(np.prod(shape, dtype=np.int64))
        if shape and flat["max_abs_index"] < count:
            at = [int(i) for i in np.unravel_index(flat["max_abs_index"], shape)]
            return f"{_WORDS[name]}, at {at}"
    if name == "cosine" and flat["norm_ratio"] is not None:
        return f"{_WORDS[name]}; norm ratio {flat['norm_ratio']:.3f}"
    return _WORDS.get(name, CATALOGUE[name].explanation)


def _statistics(opened: Opened, flat: Mapping[str, Any]) -> list[StatisticRow]:
    """Figures of both sides where they are at hand, and by how much they differ in any case."""
    both = {side: _figures(opened, side, flat) for side in ("target", "reference")}
    rows = []
    for name in ("max", "min", "mean", "std", "l2", "nan", "inf"):
        pair = [getattr(both[side], name, None) for side in ("reference", "target")]
        known = [None if x is None or isnan(x) else json_number(x) for x in pair]
        relative = flat.get(f"{name}_rel_diff")
        if relative is None and known == [None, None]:
            continue
        rows.append(
            StatisticRow(
                name=name, reference=known[0], target=known[1], relative=json_number(relative)
            )
        )
    return rows


def _figures(opened: Opened, side: str, flat: Mapping[str, Any]) -> Statistics | None:
    run = opened.run(side)
    key: TensorKey = getattr(row_from_table(flat), side).key
    tensor = run.tensor(key) if run else None
    if run is None or tensor is None:
        return None
    place = ("target", "reference").index(side)
    try:
        sides = opened.sides
        if sides is None:
            return tensor.statistics if tensor.quantization is None else None
        found = tensor_statistics(sides, place, tensor, "" if place else flat["view"])
    except (SyncpointError, ValueError):
        return None
    return None if isinstance(found, str) else found
