"""Numbers -> verdicts. Pure: rows in, rows out, so a saved comparison can be judged again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from syncpoint.comparison.rows import Introduced, Row
from syncpoint.metrics.coarse import judge_digest, judge_statistics
from syncpoint.metrics.limits import PRESETS, Limits, judge, judge_introduced, preset_of
from syncpoint.metrics.verdict import FAILING_REASONS, Reason, Verdict
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Role

AUTO = "auto"
GIVEN = frozenset({Role.MODEL_INPUT, Role.PARAMETER})
"""Roles of what a model is given, as against what it computes."""
_FEW_DIGITS = 0.1
"""Relative error from which correctly rounded values are worth a look."""
Choice = str | Limits
"""`auto`, or the limits that hold for every row."""


def judged(rows: list[Row], choice: Choice = AUTO) -> list[Row]:
    """The rows with their verdicts under these limits."""
    done = [_judge_row(row, choice) for row in rows]
    if not any(row.introduced for row in done):
        return done
    if any(is_unfinished(row) for row in done):
        return done  # that nobody is guilty is not known yet
    # What comes after random numbers is off for a reason, and not because small errors grew. What
    # a damaged tensor was is not known.
    unknown = (Reason.RANDOM, Reason.DAMAGED)
    guilty = any(_is_guilty(row) or row.unmeasured.startswith(unknown) for row in done)
    return [_amplified(row, done) if not guilty else row for row in done]


def limits_of(row: Row, choice: Choice) -> Limits:
    """The limits a row is judged by. Integers that must be equal stay so under any preset."""
    if isinstance(choice, Limits) and row.preset != "exact":
        return choice
    return PRESETS[row.preset]


def _judge_row(row: Row, choice: Choice) -> Row:
    if row.unmeasured or row.numbers is None:
        return replace(row, verdict=Verdict.NONE, reason=row.unmeasured or Reason.NO_TARGET_VALUE)
    verdict, reason = judge_total(row, limits_of(row, choice))
    if verdict.severity and is_correctly_rounded(row, limits_of(row, choice)):
        verdict, reason = _judge_rounded(row.numbers, row.target.dtype)
    if row.target.key.role is Role.MODEL_INPUT and "same_input" in row.numbers:
        same = row.numbers["same_input"]
        verdict, reason = (Verdict.CLOSE, "") if same else (Verdict.LARGE, "the inputs differ")
    introduced = Verdict.NONE
    if row.introduced is not None:
        own = choice if isinstance(choice, Limits) else PRESETS[row.introduced.preset]
        introduced = judge_introduced(row.introduced.ratio, own)
    if row.first_non_finite:
        # As exact as its precision allows, perhaps, and still where the run breaks.
        verdict, reason = Verdict.LARGE, f"first non-finite; {reason}"
    elif row.output:
        pass
    elif verdict is Verdict.CLOSE and introduced is Verdict.LARGE and row.introduced:
        # Within the limits of what came before it, too large to be this op's rounding: not to be
        # passed over, and large if it would be so by the op's own precision.
        verdict = max(
            Verdict.MODERATE, _own_verdict(row.introduced, choice), key=lambda v: v.severity
        )
        ratio = row.introduced.ratio or 0.0
        reason = f"within the limits, yet {ratio:.3g}x of what its precision allows"
    elif verdict.severity and introduced is not Verdict.NONE:
        if introduced is Verdict.CLOSE:
            verdict = Verdict.INHERITED
        elif introduced.severity < verdict.severity:
            verdict = introduced
            reason += "; most of it inherited"
    return replace(row, verdict=verdict, reason=reason, introduced_verdict=introduced)


def judge_total(row: Row, limits: Limits) -> tuple[Verdict, str]:
    """The verdict on the total error of a row that has numbers, by what they are of."""
    numbers = row.numbers or {}
    if row.basis == Kept.DIGEST:
        return judge_digest(numbers)
    if row.basis == Kept.STATISTICS:
        return judge_statistics(numbers, limits)
    return judge(numbers, limits)


def is_correctly_rounded(row: Row, limits: Limits) -> bool:
    """Whether every element is the reference's value, rounded to the coarser type of the two.

    Among subnormal numbers that is far off: 1e-6 in float16 is 1.3 % off, and no float16 is nearer.
    Limits that are stricter than the type's own were asked for and hold.
    """
    numbers = row.numbers or {}
    types = [DTYPES[end.dtype] for end in (row.target, row.reference)]
    if row.basis != Kept.VALUES or limits.exact or any(t.kind is not Kind.FLOAT for t in types):
        return False
    coarser_type = min(types, key=lambda t: t.mantissa)
    if PRESETS[preset_of(coarser_type.name)].psnr[0] < limits.psnr[0]:
        return False
    distance = numbers.get("max_ulp")
    return distance is not None and distance <= 0.5 and not numbers["mismatched"]


def _judge_rounded(numbers: Mapping[str, Any], dtype: str) -> tuple[Verdict, str]:
    """Close, unless the type has hardly a digit left for these values: a model that divides by a
    value which is now zero, or which has doubled, breaks however correct the rounding was."""
    vanished = numbers["target_zero"] - numbers["reference_zero"]
    rounded = f"correctly rounded to {dtype}"
    if vanished > 0:
        return Verdict.MODERATE, f"{vanished:,} too small for {dtype} became 0; {rounded}"
    if numbers["rel_l2"] is None or numbers["rel_l2"] > _FEW_DIGITS:
        off = f"{numbers['rel_l2'] or 0.0:.0%} off, so small are they for {dtype}"
        return Verdict.MODERATE, f"{off}; {rounded}"
    return Verdict.CLOSE, ""


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


def _amplified(row: Row, rows: list[Row]) -> Row:
    """A model output that is large although every op is as good as its precision allows."""
    if not row.output or row.verdict is not Verdict.LARGE or row.introduced_verdict.severity:
        return row
    makers = (r for r in rows if r.target.key.op == row.target.key.op and r.introduced)
    if not any(r.target.key.role is Role.OUTPUT for r in makers):
        # Nobody is known to be guilty, which is not the same as nobody being so.
        return replace(row, reason=f"{row.reason}; the op that makes it could not be measured")
    ratios = [r.introduced.ratio for r in rows if r.introduced and r.introduced.ratio is not None]
    greatest = max(ratios, default=0.0)
    return replace(
        row,
        verdict=Verdict.AMPLIFIED,
        reason=f"{row.reason}; no op is guilty, none introduced more than {greatest:.1f}x of what"
        " its precision allows: small errors grew on the way",
    )


def is_unfinished(row: Row) -> bool:
    """Whether more will be known of a row when its comparison is finished."""
    return (
        row.verdict is Verdict.NONE and row.reason.startswith(Reason.UNFINISHED)
    ) or row.unknown.startswith(Reason.UNFINISHED)


def overall(rows: list[Row]) -> Verdict:
    """The verdict on the whole comparison. What was not measured is no pass."""
    if any(is_unfinished(row) for row in rows):
        return Verdict.NONE  # large may turn out as inherited, and close as not
    verdicts = {row.verdict for row in rows}
    computed = any(
        row.verdict is not Verdict.NONE and row.target.key.role not in GIVEN for row in rows
    )
    failing = any(
        row.verdict is Verdict.NONE and row.reason.split(":")[0] in FAILING_REASONS for row in rows
    )
    if Verdict.LARGE in verdicts or failing:
        return Verdict.LARGE
    if Verdict.AMPLIFIED in verdicts:
        return Verdict.AMPLIFIED
    if verdicts & {Verdict.MODERATE, Verdict.INHERITED}:
        return Verdict.MODERATE
    # That both were given the same says nothing of what they made of it.
    return Verdict.CLOSE if Verdict.CLOSE in verdicts and computed else Verdict.NONE
