"""Details of one sync point for the inspector: both ends, metrics judged and explained, error bars,
statistics, why there are no values; reads no values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isnan, log10, sqrt
from typing import Any

import numpy as np

from syncpoint.comparison.measuring.digest_and_statistics_pairs import tensor_statistics
from syncpoint.comparison.storage.sync_point_table import row_from_table
from syncpoint.errors import SyncpointError
from syncpoint.metrics import CATALOGUE
from syncpoint.metrics.judge_values import judge_metric
from syncpoint.metrics.limits import PRESETS, Limits, limits_in_force, metric_bound, precision_name
from syncpoint.page.encoding import json_number
from syncpoint.page.fault_and_error_source import describe_fault
from syncpoint.page.fused_ops import list_region_ops
from syncpoint.page.navigator import build_row_briefs
from syncpoint.page.open_comparison import OpenComparison
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

_LOG2_ROUNDOFF = {"f32": -24, "tf32": -11, "f16": -11, "bf16": -8, "fp8": -4}
"""log2 of the unit roundoff of each precision."""
_FIRST_METRICS = (
    *("psnr", "sqnr", "mae", "max_abs", "cosine", "rel_l2", "within_1e3"),
    *("bulk_sqnr", "mismatched", "exact", "max_ulp", "lsb"),
)
"""Metrics that are listed first; the others follow in the order of the catalogue."""
_METRIC_TEXTS = {
    "psnr": "error relative to the peak",
    "sqnr": "error relative to the signal",
    "bulk_sqnr": "SQNR without the outliers",
    "mae": "average difference",
    "max_abs": "worst element",
    "cosine": "direction only",
    "rel_l2": "L2 norm of the error ÷ that of the reference",
    "within_1e3": "share of elements with a relative error below 0.001",
    "mismatched": "NaN, infinite or masked on one side only",
    "exact": "share of elements that are equal",
    "max_ulp": "representable numbers between the two, at most",
    "lsb": "quantization steps; rounding alone gives 0.289",
}
_MAX_ATTRIBUTE_CHARS = 2000


def build_row_detail(opened: OpenComparison, row: int, metric: str) -> RowDetail:
    """Return what the inspector shows before it asks for values."""
    fields = opened.table.frame.row(row, named=True)
    fault = describe_fault(opened, row, fields)
    limits = limits_in_force(fields["preset"], opened.limits)
    compared = fields["compared"] or 0
    rms = (fields["reference_l2"] or 0.0) / sqrt(compared) if compared else 0.0
    histogram = json.loads(fields["error_histogram"]) if fields["error_histogram"] else []
    return RowDetail(
        brief=build_row_briefs(opened.table, metric, np.asarray([row]))[0],
        target=_build_end(opened, "target", row, fields),
        reference=_build_end(opened, "reference", row, fields),
        evidence=fields["evidence"],
        confidence=fields["confidence"],
        view=fields["view"],
        basis=fields["basis"],
        preset=fields["preset"],
        headline=fault.headline,
        story=fault.story,
        guilty_row=fault.source_row,
        guilty_label=opened.table.label(fault.source_row) if fault.source_row is not None else "",
        guilty_how=fault.source_evidence,
        bars=_build_bars(opened, fields),
        region=list_region_ops(opened, row),
        metrics=_list_metrics(fields, limits),
        statistics=_compare_statistics(opened, fields)
        if fields["basis"] == Kept.STATISTICS
        else [],
        same_bytes=fields["same_bytes"],
        error_histogram=[(int(exponent), int(count)) for exponent, count in histogram],
        rms=json_number(rms) if rms else None,
        rounding=_LOG2_ROUNDOFF.get(fields["preset"]),
        precision=precision_name(fields["preset"]),
        notes=[str(note) for note in fields["notes"] or ()],
        missing=_why_no_values(opened, fields),
        output=fields["output"],
    )


def _why_no_values(opened: OpenComparison, fields: Mapping[str, Any]) -> str:
    """Return why the values cannot be shown; "" where they can."""
    if fields["unmeasured"]:
        return f"It was not measured: {fields['unmeasured']}."
    if fields["basis"] != Kept.VALUES:
        return f"Only {fields['basis'] or 'names'} were kept."
    sides = [side for side in ("target", "reference") if opened.run(side) is None]
    return " ".join(
        f"The {side} run is not available: {opened.why_missing.get(side, '')}." for side in sides
    )


# ---- the two ends --------------------------------------------------------------------------------


def _build_end(opened: OpenComparison, side: Side, row: int, fields: Mapping[str, Any]) -> EndInfo:
    def field(name: str) -> Any:
        return fields[f"{side}_{name}"]

    frame = Frame.from_text(field("source") or "")
    tensor, op = _find_recorded(opened, side, fields)
    parts = ((name, field(name)) for name in ("sample", "step", "rank"))
    return EndInfo(
        op=field("op"),
        label=opened.table.label(row, side),
        type=field("type"),
        dtype=field("dtype"),
        shape=list(field("shape")),
        module=field("module"),
        file=frame.file if frame else "",
        line=frame.line if frame else 0,
        role=field("role"),
        part=" ".join(f"{name}={value}" for name, value in parts if value >= 0),
        kept=tensor.kept.value if tensor else "",
        statistics=_list_statistics(tensor.statistics) if tensor and tensor.statistics else {},
        digest=tensor.digest if tensor else "",
        digest_kind=tensor.digest_kind if tensor else "",
        attributes={
            name: json.dumps(value, default=str)[:_MAX_ATTRIBUTE_CHARS]
            for name, value in (op.attributes.items() if op else ())
        },
        stack=[f"{frame} {frame.function}".strip() for frame in (op.source if op else ())],
    )


def _find_recorded(
    opened: OpenComparison, side: Side, fields: Mapping[str, Any]
) -> tuple[Tensor | None, Op | None]:
    run = opened.run(side)
    if run is None:
        return None, None
    end = getattr(row_from_table(fields), side)
    tensor = run.tensor(end.key)
    op = run.op(end.key.op)
    if tensor is not None and end.key.role is Role.STATE and tensor.alias_of:
        # The op that wrote the state, not the one that holds it.
        op = run.ops[end.order] if 0 <= end.order < len(run.ops) else op
    return tensor, op


def _list_statistics(statistics: Statistics) -> dict[str, Number]:
    names = ("count", "min", "max", "mean", "std", "l2", "nan", "inf", "zero")
    values = {name: getattr(statistics, name) for name in names}
    return {name: json_number(value) for name, value in values.items() if not isnan(value)}


# ---- numbers -------------------------------------------------------------------------------------


def _build_bars(opened: OpenComparison, fields: Mapping[str, Any]) -> ErrorBars:
    peak = fields["peak"]
    preset = fields["introduced_preset"] or fields["preset"]
    limits = opened.limits or PRESETS.get(preset)
    close, large = limits.introduced if limits else (0.0, 0.0)

    def share(rmse: float | None) -> Number:
        return json_number(rmse / peak) if rmse is not None and peak else None

    expected = fields["expected_rmse"]
    expected_psnr = None
    if expected is not None and peak:
        expected_psnr = 20 * log10(peak / expected) if expected else float("inf")
    return ErrorBars(
        peak=json_number(peak),
        total=share(fields["rmse"]),
        total_psnr=json_number(fields["psnr"]),
        introduced=share(fields["introduced_rmse"]),
        introduced_psnr=json_number(fields["introduced_psnr"]),
        expected=share(expected),
        expected_psnr=json_number(expected_psnr),
        ratio=json_number(fields["introduced_ratio"]),
        close_ratio=close,
        large_ratio=large,
        preset=preset,
        unknown=fields["introduced_unknown"] or "",
    )


def _list_metrics(fields: Mapping[str, Any], limits: Limits | None) -> list[MetricValue]:
    rest = [name for name in CATALOGUE if name not in _FIRST_METRICS and name != "error_histogram"]
    numbers = row_from_table(fields).numbers if fields["basis"] == Kept.VALUES else None
    return [
        _judge_metric(name, fields, numbers, limits)
        for name in (*_FIRST_METRICS, *rest)
        if name in fields and (fields[name] is not None or fields["basis"] == Kept.VALUES)
    ]


def _judge_metric(
    name: str, fields: Mapping[str, Any], numbers: Mapping[str, Any] | None, limits: Limits | None
) -> MetricValue:
    level: Level = "none"
    bounds: list[Number] = []
    if numbers is not None and limits is not None and fields["verdict"] != "none":
        if not limits.exact:
            close_moderate = [metric_bound(name, numbers, limits, number) for number in (0, 1)]
            bounds = [json_number(x) for x in close_moderate if x is not None]
        if bounds or (limits.exact and name == "exact"):
            level = judge_metric(name, numbers, limits).value  # type: ignore[assignment]
        if name == "mismatched" and numbers["mismatched"]:
            level = "large"
    value = fields[name]
    return MetricValue(
        id=name,
        value=json_number(float(value)) if value is not None else None,
        level=level,
        limits=bounds,
        text=_explain_metric(name, fields),
    )


def _explain_metric(name: str, fields: Mapping[str, Any]) -> str:
    shape = fields["reference_shape"]
    if name == "max_abs" and fields["max_abs_index"] is not None and 0 not in shape:
        count = int(np.prod(shape, dtype=np.int64))
        if shape and fields["max_abs_index"] < count:
            index = [int(i) for i in np.unravel_index(fields["max_abs_index"], shape)]
            return f"{_METRIC_TEXTS[name]}, at {index}"
    if name == "cosine" and fields["norm_ratio"] is not None:
        return f"{_METRIC_TEXTS[name]}; norm ratio {fields['norm_ratio']:.3f}"
    return _METRIC_TEXTS.get(name, CATALOGUE[name].explanation)


def _compare_statistics(opened: OpenComparison, fields: Mapping[str, Any]) -> list[StatisticRow]:
    """Return the statistics of both sides where their runs are available, and their difference;
    empty where the pair was not compared by statistics."""
    if fields["basis"] != Kept.STATISTICS:
        return []
    statistics = {side: _read_statistics(opened, side, fields) for side in ("target", "reference")}
    rows = []
    for name in ("max", "min", "mean", "std", "l2", "nan", "inf"):
        pair = [getattr(statistics[side], name, None) for side in ("reference", "target")]
        numbers = [None if x is None or isnan(x) else json_number(x) for x in pair]
        relative = fields.get(f"{name}_rel_diff")
        if relative is None and numbers == [None, None]:
            continue
        rows.append(
            StatisticRow(
                name=name, reference=numbers[0], target=numbers[1], relative=json_number(relative)
            )
        )
    return rows


def _read_statistics(
    opened: OpenComparison, side: str, fields: Mapping[str, Any]
) -> Statistics | None:
    run = opened.run(side)
    key: TensorKey = getattr(row_from_table(fields), side).key
    tensor = run.tensor(key) if run else None
    if run is None or tensor is None:
        return None
    side_index = ("target", "reference").index(side)
    try:
        sides = opened.sides
        if sides is None:
            return tensor.statistics if tensor.quantization is None else None
        view = "" if side_index else fields["view"]
        statistics = tensor_statistics(sides, side_index, tensor, view)
    except (SyncpointError, ValueError):
        return None
    return None if isinstance(statistics, str) else statistics
