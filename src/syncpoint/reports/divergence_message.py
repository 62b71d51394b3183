"""A divergence in words: what, what share, the greatest difference and where, whose fault."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from syncpoint.comparison.coverage import Coverage
from syncpoint.comparison.judging import GIVEN, limits_of
from syncpoint.comparison.result import Result, has_same_bytes, is_unproven
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_UNCOVERED
from syncpoint.foreign_text import make_visible
from syncpoint.metrics.limits import PRESETS, Limits, bound, bulk_reason
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.reports.number_format import metric_text, ratio_text
from syncpoint.run.dtypes import long_name
from syncpoint.run.model import Role

_UNREADABLE = 3
"""Tensors that cannot be read and are named."""
_MISSING_NAMES = 3
"""Tensors that were not compared and are named."""


def where(row: Row) -> str:
    """The place of a row: op, module and line."""
    place = [p for p in (row.target.module or row.reference.module,) if p]
    source = row.target.source or row.reference.source
    if source:
        place.append(source)
    return f"{row.target.label} ({', '.join(place)})" if place else row.target.label


def divergence(row: Row, result: Result) -> list[str]:
    """The message of one row, a few lines: each is one statement."""
    mark = "first non-finite" if row.first_non_finite else row.verdict.value
    lines = [f"{row.verdict.glyph} {mark}: {where(row)}"]
    if row.numbers is None or row.basis != "values":
        if row.reason:
            lines.append(f"  {row.reason}")
        if row.basis == "statistics":
            lines += _figure_lines(row)
        return lines + _parameter_lines(row, result)
    numbers = row.numbers
    limits = limits_of(row, result.choice)
    if numbers["count"]:
        lines += _element_lines(row, numbers, limits)
    lines += _guilt_lines(row, result)
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
        at = _index(numbers["max_abs_index"], row.reference.shape)
        allowed = bound("max_abs", numbers, limits, 0)
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


def _figure_lines(row: Row) -> list[str]:
    """The statistics of both sides, for whoever wants to see what speaks against them."""
    numbers = row.numbers or {}
    said = []
    for name in ("min", "max", "mean", "l2", "nan", "inf"):
        mine, theirs = (numbers.get(f"{side}_{name}") for side in ("target", "reference"))
        if mine is not None and theirs is not None and mine != theirs:
            both = (_figure(name, value) for value in (mine, theirs))
            said.append(f"{name} {' against '.join(both)}")
    return [f"  {', '.join(said)}"] if said else []


def _figure(name: str, value: Any) -> str:
    if name in ("nan", "inf"):
        return "some" if value < 0 else f"{value:,}"
    return metric_text(name, value)


def _guilt_lines(row: Row, result: Result) -> list[str]:
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
        f"{r.target.label} ({_how_far(r)})"
        for r in result.rows
        if r.target.key.role is Role.PARAMETER
        and r.verdict.severity
        and module
        and r.target.key.op.op.rpartition(".")[0] == module
    ]
    return [f"  its parameters differ: {', '.join(named)}"] if named else []


def _how_far(row: Row) -> str:
    numbers = row.numbers or {}
    if row.basis == "statistics":
        return f"at most {metric_text('psnr', numbers.get('psnr_bound'))} dB"
    if row.basis == "digest":
        return "other bytes"
    return f"{metric_text('psnr', numbers.get('psnr'))} dB"


def _index(flat: int, shape: tuple[int, ...]) -> str:
    if not shape:
        return "its only element"
    return str([int(i) for i in np.unravel_index(flat, shape)])


def headline(result: Result) -> str:
    """The verdict with its mark, and the coverage, one line."""
    return f"{result.verdict.glyph} {verdict_line(result)}"


def verdict_line(result: Result) -> str:
    """The verdict and the coverage, one line."""
    coverage = result.coverage
    compared = "" if _is_close_in_part(result.verdict, coverage) else "compared "
    return (
        f"{verdict_text(result)}: {compared}{coverage.compared} of"
        f" {coverage.target_tensors} target tensors ({coverage.target:.0%}) and of"
        f" {coverage.reference_tensors} reference tensors ({coverage.reference:.0%}),"
        f" preset {preset_text(result)}{_basis_text(result)}"
    )


def verdict_text(result: Result) -> str:
    """The verdict in words. What only statistics speak for is not close as values are, and what
    was compared in part is close only as far as that."""
    if result.verdict is Verdict.CLOSE and any(map(is_unproven, result.rows)):
        text = f"{result.verdict} as far as statistics tell"
        in_part = _is_close_in_part(result.verdict, result.coverage)
        return f"{text}, and as far as compared" if in_part else text
    return qualified(result.verdict.value, result.coverage)


def qualified(verdict: str, coverage: Coverage) -> str:
    """A verdict on the whole, or on that part of it that was compared."""
    return f"{verdict} as far as compared" if _is_close_in_part(verdict, coverage) else verdict


def _is_close_in_part(verdict: str, coverage: Coverage) -> bool:
    """Whether what was compared is close, and not all was."""
    return verdict == Verdict.CLOSE and not coverage.is_whole


def row_text(row: Row) -> str:
    """The verdict of one row in a word or two, with its basis where that is less than values."""
    if row.first_non_finite:
        return "first non-finite"
    if row.verdict is Verdict.NONE:
        code = row.why.code
        return row.reason if code is ReasonCode.SHAPE or code is None else code.value
    return f"{row.verdict} by statistics" if is_unproven(row) else row.verdict.value


def _basis_text(result: Result) -> str:
    """A reminder where the answer rests on less than values."""
    said = []
    bases = result.bases
    if bases["statistics"]:
        judged = [r for r in result.rows if r.basis == "statistics"]
        same = sum(r.verdict is not Verdict.NONE and has_same_bytes(r) for r in judged)
        caveat = "which can prove a difference, hardly equality"
        if same == bases["statistics"]:
            caveat = "all with the same bytes"
        elif same:
            caveat += f" ({same} have the same bytes)"
        said.append(f"{bases['statistics']} by statistics, {caveat}")
    if bases["digest"]:
        said.append(f"{bases['digest']} by digest, which tell equal from unequal only")
    ends = sum(r.ends_only and r.verdict is not Verdict.NONE for r in result.rows)
    if ends:
        said.append(
            f"{ends} by their least and greatest value alone, which can prove a difference, hardly"
            " equality"
        )
    return f"; {'; '.join(said)}" if said else ""


def preset_text(result: Result) -> str:
    """The limits in words; for `auto`, what it assumed."""
    if result.preset_name != "auto":
        return result.preset_name
    used: dict[str, int] = {}
    for row in result.rows:
        if row.verdict is not Verdict.NONE:
            used[row.preset] = used.get(row.preset, 0) + 1
    order = list(PRESETS)
    assumed = ", ".join(sorted(used, key=order.index))
    return f"auto (assumed {assumed})" if assumed else "auto"


def inputs_lines(result: Result) -> list[str]:
    """What to say first of all when the two runs were not given the same."""
    rows = result.inputs_differ
    if not rows:
        return []
    names = ", ".join(row.target.label for row in rows)
    return [f"■ the two runs were given different inputs: {names}; nothing below means much"]


def unreadable_lines(result: Result) -> list[str]:
    """Tensors that were recorded and are damaged or can no longer be read: the whole is not close
    for them, and nothing else says so."""
    lines = []
    for code in (ReasonCode.DAMAGED, ReasonCode.UNREADABLE):
        rows = [r for r in result.rows if r.why.code is code]
        for row in rows[:_UNREADABLE]:
            cure = row.why.cure or "record that run again, then compare"
            lines.append(f"■ {code}: {where(row)}: {row.why.detail}; {cure}")
        if len(rows) > _UNREADABLE:
            lines.append(f"  and {len(rows) - _UNREADABLE} more; --csv has all with their reasons")
    for tensor in result.unmatched:
        if tensor.why.code is ReasonCode.DAMAGED:
            lines.append(
                f"■ damaged: the {tensor.side}'s {tensor.op} has no counterpart, and its bytes are"
                " not those that were recorded; copy the run again or record it again"
            )
    return lines


def unverified_lines(result: Result) -> list[str]:
    """One line where the files that the comparison was read from could not be verified."""
    return [f"this comparison is unverified: {result.unverified}"] if result.unverified else []


def quiet_lines(result: Result) -> list[str]:
    """What `--quiet` prints: the headline, after what must be known beside any verdict."""
    return [
        *inputs_lines(result),
        *unreadable_lines(result),
        *unverified_lines(result),
        headline(result),
    ]


def summary(result: Result, fail_on: str = "large") -> str:
    """All that an assertion has to say."""
    lines = [*inputs_lines(result), *unverified_lines(result), headline(result)]
    if result.exit_code(fail_on) == EXIT_UNCOVERED:
        lines.append(uncovered(result))
    shown = result.first_divergence or [
        row for row in result.worst(3) if row.verdict.severity or row.verdict is Verdict.NONE
    ]
    for row in shown[:3]:
        lines += divergence(row, result)
    for row in result.outputs:
        if row.verdict.severity and row not in shown:
            lines += divergence(row, result)
    return "\n".join(map(make_visible, lines))


def uncovered(result: Result) -> str:
    """Why too little was compared to pass."""
    coverage = result.coverage
    if not coverage.compared:
        why = "no target tensor found its counterpart in the reference"
        if any(u.why.code is ReasonCode.AMBIGUOUS for u in result.unmatched):
            why = "names that differ by a number only are ambiguous where some are missing"
        apart = [r for r in result.rows if r.why.code is ReasonCode.INCOMPARABLE]
        if apart:
            why = apart[0].why.detail
            return f"nothing was compared: {why}; record both sides alike, see docs/modes.md"
        codes = {r.why.code or "" for r in result.rows if r.target.key.role not in GIVEN}
        if codes:
            words = ", ".join(sorted(codes))
            return (
                f"nothing was compared: the tensors that have a partner are {words};"
                " look at the values of both sides with syncpoint inspect"
            )
        return f"nothing was compared: {why}; pin pairs with --map, see docs/matching.md"
    outputs = result.uncompared_outputs
    for side, other, covered, required in (
        ("reference", "target", coverage.reference_covered, coverage.reference_required),
        ("target", "reference", coverage.target_covered, coverage.target_required),
    ):
        if covered < required:
            missing = getattr(coverage, f"{side}_missing")
            also = f", among them model outputs: {_listed(outputs)}" if outputs else ""
            return (
                f"only {_percent(covered)} of the {side} was compared, less than the {required:.0%}"
                f" that are asked for (--min-coverage): {missing:,} of its tensors have no partner"
                f" in the {other} ({_listed(result.missing(side))}){also};"
                f" {_cure(result, side, other)}{'' if outputs else ', or lower --min-coverage'}"
            )
    return (
        f"a model output was not compared: {_listed(outputs)}; record the outputs on both sides,"
        " or pair them with --map (docs/matching.md)"
    )


def _cure(result: Result, side: str, other: str) -> str:
    if result.unkept.get(other):
        return f"the {other} lists ops without their values, so record all of them (no --filter)"
    return f"record all of the {other}, pair renamed tensors with --map (docs/matching.md)"


def _listed(names: list[str]) -> str:
    more = len(names) - _MISSING_NAMES
    return ", ".join(names[:_MISSING_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    """A share that is below a limit, without being rounded up to it."""
    return f"{int(share * 1000) / 10:.3g}%"


def is_output(row: Row) -> bool:
    """Whether a row is one of the model's outputs."""
    return row.output
