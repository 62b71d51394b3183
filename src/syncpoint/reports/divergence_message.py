"""The message about one row that is off: mismatched share, max absolute error and its index, PSNR,
statistics, introduced error, differing parameters."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from syncpoint.comparison.judge_rows import limits_of
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.judge_values import bulk_reason
from syncpoint.metrics.limits import Limits, metric_bound
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.number_and_name_format import metric_text, ratio_text, row_place
from syncpoint.run.dtypes import long_name
from syncpoint.run.model import Role


def divergence_lines(row: Row, result: Result) -> list[str]:
    """The message about one row, one statement per line."""
    mark = "first non-finite" if row.first_non_finite else row.verdict.value
    lines = [f"{row.verdict.glyph} {mark}: {row_place(row)}"]
    if row.numbers is None or row.basis != "values":
        if row.reason:
            lines.append(f"  {row.reason}")
        if row.basis == "statistics":
            lines += _statistics_lines(row)
        return lines + _parameter_lines(row, result)
    numbers = row.numbers
    limits = limits_of(row, result.choice)
    if numbers["count"]:
        lines += _element_lines(row, numbers, limits)
    lines += _introduced_lines(row, result)
    return lines


def _element_lines(row: Row, numbers: Any, limits: Limits) -> list[str]:
    lines = []
    if numbers["mismatched"]:
        lines.append(
            f"  {numbers['mismatched']:,} of {numbers['count']:,} elements are non-finite or masked"
            " on one side only"
        )
    if limits.exact:
        unequal = numbers["count"] - numbers["equal"]
        lines.append(f"  {unequal:,} of {numbers['count']:,} elements are unequal")
    elif numbers["compared"]:
        off_share = 1 - (numbers["allclose"] or 0.0)
        lines.append(
            f"  {off_share:.1%} of {numbers['compared']:,} elements outside the tolerance of their"
            " precision"
        )
    if numbers["max_abs"] is not None and numbers["max_abs_index"] is not None:
        index = _index_text(numbers["max_abs_index"], row.reference.shape)
        allowed = metric_bound("max_abs", numbers, limits, 0)
        text = f"  max absolute error {metric_text('max_abs', numbers['max_abs'])} at {index}"
        if allowed is not None and numbers["max_abs"] > allowed and not limits.exact:
            text += f" (up to {metric_text('max_abs', allowed)} is close)"
        lines.append(text)
    if numbers["compared"] and not limits.exact:
        lines.append(
            f"  psnr {metric_text('psnr', numbers['psnr'])} dB (close from {limits.psnr[0]:g}),"
            f" sqnr {metric_text('sqnr', numbers['sqnr'])} dB (close from {limits.sqnr[0]:g}),"
            f" preset {limits.name}"
        )
        hidden = bulk_reason(numbers, limits)
        lines += [f"  {hidden}"] if hidden else []
    return lines


def _statistics_lines(row: Row) -> list[str]:
    """The statistics that differ between the two sides."""
    numbers = row.numbers or {}
    differences = []
    for name in ("min", "max", "mean", "l2", "nan", "inf"):
        target_value, reference_value = (
            numbers.get(f"{side}_{name}") for side in ("target", "reference")
        )
        if (
            target_value is not None
            and reference_value is not None
            and target_value != reference_value
        ):
            texts = (_statistic_text(name, value) for value in (target_value, reference_value))
            differences.append(f"{name} {' against '.join(texts)}")
    return [f"  {', '.join(differences)}"] if differences else []


def _statistic_text(name: str, value: Any) -> str:
    if name in ("nan", "inf"):
        return "some" if value < 0 else f"{value:,}"
    return metric_text(name, value)


def _introduced_lines(row: Row, result: Result) -> list[str]:
    introduced = row.introduced
    if introduced is None:
        unknown = (
            [f"  the error that this op itself adds cannot be measured: {row.unknown}"]
            if row.unknown
            else []
        )
        return unknown + _parameter_lines(row, result)
    precision = long_name(introduced.preset)
    if introduced.ratio == inf and not introduced.expected:
        text = "introduced by this op: its precision allows no error at all"
    else:
        text = f"introduced by this op: {ratio_text(introduced.ratio)} what {precision} allows"
    lines = [f"  {text}"]
    if introduced.region:
        lines.append(
            f"  in one of the reference ops {', '.join(introduced.region)}, which lie between two"
            " sync points"
        )
    if row.guilty:
        lines += _parameter_lines(row, result)
        followers = sum(
            r.verdict is Verdict.INHERITED and r.target.order > row.target.order
            for r in result.rows
        )
        if followers:
            points = "sync point has" if followers == 1 else "sync points have"
            lines.append(f"  {followers} later {points} only inherited the error")
    return lines


def _parameter_lines(row: Row, result: Result) -> list[str]:
    """The parameters of the op's module that differ, which are often the cause."""
    module = row.target.module
    different_parameters = [
        f"{r.target.label} ({_distance_text(r)})"
        for r in result.rows
        if r.target.key.role is Role.PARAMETER
        and r.verdict.severity
        and module
        and r.target.key.op.op.rpartition(".")[0] == module
    ]
    return (
        [f"  its parameters differ: {', '.join(different_parameters)}"]
        if different_parameters
        else []
    )


def _distance_text(row: Row) -> str:
    numbers = row.numbers or {}
    if row.basis == "statistics":
        return f"at most {metric_text('psnr', numbers.get('psnr_bound'))} dB"
    if row.basis == "digest":
        return "different bytes"
    return f"{metric_text('psnr', numbers.get('psnr'))} dB"


def _index_text(flat: int, shape: tuple[int, ...]) -> str:
    if not shape:
        return "its only element"
    return str([int(i) for i in np.unravel_index(flat, shape)])
