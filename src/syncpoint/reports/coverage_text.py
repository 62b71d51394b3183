"""Text that explains exit code 3: why too little was compared (nothing, a side below its share, an
output), and what to do about it."""

from __future__ import annotations

from syncpoint.comparison.judge_rows import GIVEN_ROLES
from syncpoint.comparison.result import Result
from syncpoint.metrics.verdict import ReasonCode

_MAX_MISSING_NAMES = 3
"""Maximum number of missing tensors to name."""


def uncovered_text(result: Result) -> str:
    """Why too little was compared for exit code 0."""
    coverage = result.coverage
    if not coverage.compared:
        why = "no target tensor has a counterpart in the reference"
        if any(u.why.code is ReasonCode.AMBIGUOUS for u in result.unmatched):
            why = "names that differ only by a number are ambiguous if some of them are missing"
        incomparable = [r for r in result.rows if r.why.code is ReasonCode.INCOMPARABLE]
        if incomparable:
            why = incomparable[0].why.detail
            cure = "record both sides in the same mode, see docs/modes.md"
            return f"nothing was compared: {why}; {cure}"
        codes = {r.why.code or "" for r in result.rows if r.target.key.role not in GIVEN_ROLES}
        if codes:
            words = ", ".join(sorted(codes))
            return (
                f"nothing was compared: all tensors with a partner are {words};"
                " inspect the values of both sides with syncpoint inspect"
            )
        return f"nothing was compared: {why}; pin pairs with --map, see docs/matching.md"
    outputs = result.uncompared_outputs
    for side, other, covered, required in (
        ("reference", "target", coverage.reference_covered, coverage.reference_required),
        ("target", "reference", coverage.target_covered, coverage.target_required),
    ):
        if covered < required:
            missing = getattr(coverage, f"{side}_missing")
            missing_outputs = (
                f", among them model outputs: {_list_names(outputs)}" if outputs else ""
            )
            lower_limit = "" if outputs else ", or lower --min-coverage"
            return (
                f"only {_floor_percent(covered)} of the {side} was compared, less than the"
                f" {required:.0%} that --min-coverage requires: {missing:,} of its tensors have no"
                f" partner in the {other} ({_list_names(result.missing(side))}){missing_outputs};"
                f" {_missing_cure(result, side, other)}{lower_limit}"
            )
    return (
        f"a model output was not compared: {_list_names(outputs)}; record the outputs on both"
        " sides, or pair them with --map (docs/matching.md)"
    )


def _missing_cure(result: Result, side: str, other: str) -> str:
    if result.unkept.get(other):
        return f"the {other} lists ops without values: record all of them (no --filter)"
    return f"record all tensors of the {other}, pair renamed tensors with --map (docs/matching.md)"


def _list_names(names: list[str]) -> str:
    more = len(names) - _MAX_MISSING_NAMES
    return ", ".join(names[:_MAX_MISSING_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _floor_percent(share: float) -> str:
    """A share as a percentage, rounded down so that it never shows the limit it is below."""
    return f"{int(share * 1000) / 10:.3g}%"
