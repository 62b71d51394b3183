"""A divergence in words: what, what share, the greatest difference and where, whose fault."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from syncpoint.comparison.judge_rows import limits_of
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.metrics.judge_numbers import bulk_reason
from syncpoint.metrics.limits import Limits, metric_bound
from syncpoint.metrics.verdict import Verdict
from syncpoint.reports.number_format import metric_text, ratio_text
from syncpoint.run.dtypes import long_name
from syncpoint.run.model import Role


def row_place(row: Row) -> str:
    """The place of a row: op, module and line."""
    place = [p for p in (row.target.module or row.reference.module,) if p]
    source = row.target.source or row.reference.source
    if source:
        place.append(source)
    return f"{row.target.label} ({', '.join(place)})" if place else row.target.label


def divergence_lines(row: Row, result: Result) -> list[str]:
    """The message of one row, a few lines: each is one statement."""
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
        off = numbers["count"] - numbers["equal"]
        lines.append(f"  {off:,} of {numbers['count']:,} elements are unequal")
    elif numbers["compared"]:
        off_share = 1 - (numbers["allclose"] or 0.0)
        lines.append(
            f"  {off_share:.1%} of {numbers['compared']:,} elements outside the tolerance of their"
            " precision"
        )
    if numbers["max_abs"] is not None and numbers["max_abs_index"] is not None:
        at = _index_text(numbers["max_abs_index"], row.reference.shape)
        allowed = metric_bound("max_abs", numbers, limits, 0)
        text = f"  greatest difference {metric_text('max_abs', numbers['max_abs'])} at {at}"
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
    """The statistics of both sides, for whoever wants to see what speaks against them."""
    numbers = row.numbers or {}
    said = []
    for name in ("min", "max", "mean", "l2", "nan", "inf"):
        mine, theirs = (numbers.get(f"{side}_{name}") for side in ("target", "reference"))
        if mine is not None and theirs is not None and mine != theirs:
            both = (_statistic_text(name, value) for value in (mine, theirs))
            said.append(f"{name} {' against '.join(both)}")
    return [f"  {', '.join(said)}"] if said else []


def _statistic_text(name: str, value: Any) -> str:
    if name in ("nan", "inf"):
        return "some" if value < 0 else f"{value:,}"
    return metric_text(name, value)


def _introduced_lines(row: Row, result: Result) -> list[str]:
    made = row.introduced
    if made is None:
        unknown = [f"  introduced error unknown: {row.unknown}"] if row.unknown else []
        return unknown + _parameter_lines(row, result)
    precision = long_name(made.preset)
    if made.ratio == inf and not made.expected:
        text = "introduced here: its precision allows no error at all"
    else:
        text = f"introduced here: {ratio_text(made.ratio)} of what {precision} allows"
    lines = [f"  {text}"]
    if made.region:
        lines.append(
            f"  somewhere in the reference's {', '.join(made.region)}, which lie between two sync"
            " points"
        )
    if row.guilty:
        lines += _parameter_lines(row, result)
        followers = sum(
            r.verdict is Verdict.INHERITED and r.target.order > row.target.order
            for r in result.rows
        )
        if followers:
            points = "sync point is" if followers == 1 else "sync points are"
            lines.append(f"  {followers} later {points} off and only inherited it")
    return lines


def _parameter_lines(row: Row, result: Result) -> list[str]:
    """Parameters of the op's module that differ: more often than not, the answer."""
    module = row.target.module
    named = [
        f"{r.target.label} ({_distance_text(r)})"
        for r in result.rows
        if r.target.key.role is Role.PARAMETER
        and r.verdict.severity
        and module
        and r.target.key.op.op.rpartition(".")[0] == module
    ]
    return [f"  its parameters differ: {', '.join(named)}"] if named else []


def _distance_text(row: Row) -> str:
    numbers = row.numbers or {}
    if row.basis == "statistics":
        return f"at most {metric_text('psnr', numbers.get('psnr_bound'))} dB"
    if row.basis == "digest":
        return "other bytes"
    return f"{metric_text('psnr', numbers.get('psnr'))} dB"


def _index_text(flat: int, shape: tuple[int, ...]) -> str:
    if not shape:
        return "its only element"
    return str([int(i) for i in np.unravel_index(flat, shape)])
