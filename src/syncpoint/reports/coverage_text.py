"""Why too little was compared to pass, in words."""

from __future__ import annotations

from syncpoint.comparison.judge_rows import GIVEN_ROLES
from syncpoint.comparison.result import Result
from syncpoint.metrics.verdict import ReasonCode

_MAX_MISSING_NAMES = 3
"""Tensors that were not compared and are named."""


def uncovered_text(result: Result) -> str:
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
        codes = {r.why.code or "" for r in result.rows if r.target.key.role not in GIVEN_ROLES}
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
            also = f", among them model outputs: {_list_names(outputs)}" if outputs else ""
            lower = "" if outputs else ", or lower --min-coverage"
            return (
                f"only {_floor_percent(covered)} of the {side} was compared, less than the"
                f" {required:.0%} that --min-coverage requires: {missing:,} of its tensors have no"
                f" partner in the {other} ({_list_names(result.missing(side))}){also};"
                f" {_missing_cure(result, side, other)}{lower}"
            )
    return (
        f"a model output was not compared: {_list_names(outputs)}; record the outputs on both"
        " sides, or pair them with --map (docs/matching.md)"
    )


def _missing_cure(result: Result, side: str, other: str) -> str:
    if result.unkept.get(other):
        return f"the {other} lists ops without their values, so record all of them (no --filter)"
    return f"record all of the {other}, pair renamed tensors with --map (docs/matching.md)"


def _list_names(names: list[str]) -> str:
    more = len(names) - _MAX_MISSING_NAMES
    return ", ".join(names[:_MAX_MISSING_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _floor_percent(share: float) -> str:
    """A share that is below a limit, without being rounded up to it."""
    return f"{int(share * 1000) / 10:.3g}%"
