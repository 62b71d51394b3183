"""Numbers -> verdicts. Pure: rows in, rows out, so a saved comparison can be judged again.

`judge_row` is the one judge of a sync point, whoever asks: while it is measured, at the end, under
other limits. `judge_rows` adds what only all rows together tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syncpoint.comparison.rounded_values import is_correctly_rounded
from syncpoint.comparison.rows import Introduced, Row
from syncpoint.errors import InputError
from syncpoint.metrics.judge_numbers import judge, judge_digest, judge_introduced, judge_statistics
from syncpoint.metrics.limits import PRESETS, Limits
from syncpoint.metrics.verdict import FAILING_REASONS, NO_REASON, Reason, ReasonCode, Verdict
from syncpoint.run.model import Kept, Role

AUTO = "auto"
GIVEN_ROLES = frozenset({Role.MODEL_INPUT, Role.PARAMETER})
"""Roles of what a model is given, as against what it computes."""
Choice = str | Limits
"""`auto`, or the limits that hold for every row."""


def check_choice(choice: object) -> None:
    """Refuse what is neither `auto` nor limits. The name of a preset would count as `auto`."""
    if choice != AUTO and not isinstance(choice, Limits):
        raise InputError(
            f"limits to judge by: {AUTO}, or a Limits",
            repr(choice),
            "look up a preset by its name with syncpoint.metrics.limits.preset",
        )


def judge_rows(rows: list[Row], choice: Choice = AUTO) -> list[Row]:
    """The rows of a whole comparison with their verdicts under these limits."""
    done = [judge_row(row, choice) for row in rows]
    if not any(row.introduced for row in done):
        return done
    if any(is_unfinished(row) for row in done):
        return done  # that nobody is guilty is not known yet
    # What comes after random numbers is off for a reason, and not because small errors grew. What
    # a damaged tensor was is not known.
    unknown = (ReasonCode.RANDOM, ReasonCode.DAMAGED)
    guilty = any(_is_guilty(row) or row.unmeasured.code in unknown for row in done)
    return [_mark_amplified(row, done) if not guilty else row for row in done]


def limits_of(row: Row, choice: Choice) -> Limits:
    """The limits a row is judged by. Integers that must be equal stay so under any preset."""
    if isinstance(choice, Limits) and row.preset != "exact":
        return choice
    return PRESETS[row.preset]


def judge_row(row: Row, choice: Choice = AUTO) -> Row:
    """One row with its verdict: that on its total error, weighed by what its op introduced."""
    if row.unmeasured or row.numbers is None:
        why = row.unmeasured or Reason(ReasonCode.NO_TARGET_VALUE)
        return replace(row, verdict=Verdict.NONE, why=why)
    verdict, why = _judge_measured(row, choice)
    introduced = Verdict.NONE
    if row.introduced is not None:
        own = choice if isinstance(choice, Limits) else PRESETS[row.introduced.preset]
        introduced = judge_introduced(row.introduced.ratio, own)
    if row.first_non_finite:
        # As exact as its precision allows, perhaps, and still where the run breaks.
        verdict, why = Verdict.LARGE, Reason(detail=f"first non-finite; {why}")
    elif not row.output:
        verdict, why = _weigh_introduced(row, choice, introduced, verdict, why)
    if row.nearer_to_float64 and introduced is not Verdict.LARGE and not row.first_non_finite:
        # A value that differs from the reference's because it is nearer to the truth is no fault.
        verdict = Verdict.CLOSE if verdict.severity else verdict
    return replace(row, verdict=verdict, why=why, introduced_verdict=introduced)


def is_excused(row: Row, choice: Choice = AUTO) -> bool:
    """Whether a row is close only because its value is nearer to float64 than the reference's."""
    if not row.nearer_to_float64 or row.verdict is not Verdict.CLOSE:
        return False
    return judge_row(replace(row, nearer_to_float64=False), choice).verdict is not Verdict.CLOSE


def _judge_measured(row: Row, choice: Choice) -> tuple[Verdict, Reason]:
    """The verdict on the total error; correct rounding and model inputs have rules of their own."""
    numbers = row.numbers or {}
    if row.target.key.role is Role.MODEL_INPUT and "same_input" in numbers:
        if numbers["same_input"]:
            return Verdict.CLOSE, NO_REASON
        return Verdict.LARGE, Reason(detail="the inputs differ")
    limits = limits_of(row, choice)
    verdict, why = judge_total(row, limits)
    if verdict.severity and is_correctly_rounded(row, limits):
        return judge_rounded(numbers, row.target.dtype)
    return verdict, why


def _weigh_introduced(
    row: Row, choice: Choice, introduced: Verdict, verdict: Verdict, why: Reason
) -> tuple[Verdict, Reason]:
    """The verdict on an op's result, by how much of the total error the op itself made."""
    if verdict is Verdict.CLOSE and introduced is Verdict.LARGE and row.introduced:
        # Within the limits of what came before it, too large to be this op's rounding: not to be
        # passed over, and large if it would be so by the op's own precision.
        own = _own_verdict(row.introduced, choice)
        ratio = row.introduced.ratio or 0.0
        detail = f"within the limits, yet {ratio:.3g}x of what its precision allows"
        return max(Verdict.MODERATE, own, key=lambda v: v.severity), Reason(detail=detail)
    if not verdict.severity or introduced is Verdict.NONE:
        return verdict, why
    if introduced is Verdict.CLOSE:
        return Verdict.INHERITED, why
    if introduced.severity < verdict.severity:
        return introduced, Reason(detail=f"{why}; most of it inherited")
    return verdict, why


def judge_total(row: Row, limits: Limits) -> tuple[Verdict, Reason]:
    """The verdict on the total error of a row that has numbers, by what they are of."""
    numbers = row.numbers or {}
    if row.basis == Kept.DIGEST:
        return judge_digest(numbers)
    if row.basis == Kept.STATISTICS:
        return judge_statistics(numbers, limits)
    return judge(numbers, limits)


def _own_verdict(introduced: Introduced, choice: Choice) -> Verdict:
    """The introduced error judged by the limits of the op's own precision."""
    limits = choice if isinstance(choice, Limits) else PRESETS[introduced.preset]
    verdict = Verdict.CLOSE
    for value, (close, moderate) in (
        (introduced.psnr, limits.psnr),
        (introduced.sqnr, limits.sqnr),
    ):
        if value is not None and value < close and not limits.exact:
            found = Verdict.MODERATE if value >= moderate else Verdict.LARGE
            verdict = max(verdict, found, key=lambda v: v.severity)
    return verdict


def _is_guilty(row: Row) -> bool:
    """Whether error may come from here: also where introduced error is not known."""
    if row.target.key.role in (Role.OUTPUT, Role.STATE) and row.introduced is not None:
        return row.guilty
    return row.target.key.role is not Role.MODEL_OUTPUT and row.verdict.severity > 0


def _mark_amplified(row: Row, rows: list[Row]) -> Row:
    """A model output that is large although every op is as good as its precision allows."""
    if not row.output or row.verdict is not Verdict.LARGE or row.introduced_verdict.severity:
        return row
    makers = (r for r in rows if r.target.key.op == row.target.key.op and r.introduced)
    if not any(r.target.key.role is Role.OUTPUT for r in makers):
        # Nobody is known to be guilty, which is not the same as nobody being so.
        detail = f"{row.why}; the op that makes it could not be measured"
        return replace(row, why=Reason(detail=detail))
    ratios = [r.introduced.ratio for r in rows if r.introduced and r.introduced.ratio is not None]
    greatest = max(ratios, default=0.0)
    detail = (
        f"{row.why}; no op is guilty, none introduced more than {greatest:.1f}x of what its"
        " precision allows: small errors grew on the way"
    )
    return replace(row, verdict=Verdict.AMPLIFIED, why=Reason(detail=detail))


def is_unfinished(row: Row) -> bool:
    """Whether more will be known of a row when its comparison is finished."""
    return ReasonCode.UNFINISHED in (row.why.code, row.unknown.code)


def overall_verdict(rows: list[Row]) -> Verdict:
    """The verdict on the whole comparison. What was not measured is no pass."""
    if any(is_unfinished(row) for row in rows):
        return Verdict.NONE  # large may turn out as inherited, and close as not
    verdicts = {row.verdict for row in rows}
    computed = any(
        row.verdict is not Verdict.NONE and row.target.key.role not in GIVEN_ROLES for row in rows
    )
    failing = any(row.verdict is Verdict.NONE and row.why.code in FAILING_REASONS for row in rows)
    if Verdict.LARGE in verdicts or failing:
        return Verdict.LARGE
    if Verdict.AMPLIFIED in verdicts:
        return Verdict.AMPLIFIED
    if verdicts & {Verdict.MODERATE, Verdict.INHERITED}:
        return Verdict.MODERATE
    # That both were given the same says nothing of what they made of it.
    return Verdict.CLOSE if Verdict.CLOSE in verdicts and computed else Verdict.NONE


_MAX_REL_L2 = 0.1
"""Relative error from which correctly rounded values are worth a look."""


def judge_rounded(numbers: Mapping[str, Any], dtype: str) -> tuple[Verdict, Reason]:
    """Close, unless the type has hardly a digit left for these values: a model that divides by a
    value which is now zero, or which has doubled, breaks however correct the rounding was."""
    vanished = numbers["target_zero"] - numbers["reference_zero"]
    rounded = f"correctly rounded to {dtype}"
    if vanished > 0:
        zeroed = f"{vanished:,} too small for {dtype} became 0"
        return Verdict.MODERATE, Reason(detail=f"{zeroed}; {rounded}")
    if numbers["rel_l2"] is None or numbers["rel_l2"] > _MAX_REL_L2:
        off = f"{numbers['rel_l2'] or 0.0:.0%} off, so small are they for {dtype}"
        return Verdict.MODERATE, Reason(detail=f"{off}; {rounded}")
    return Verdict.CLOSE, NO_REASON
