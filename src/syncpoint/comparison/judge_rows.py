"""Decide verdict and guilt of each row from its numbers, and the one verdict of the whole
comparison, under any limits; for one pair: metrics/judge_*.py.

`judge_row` judges one sync point: while it is measured, at the end, or under other limits.
`judge_rows` adds what depends on all rows, such as amplified outputs.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from syncpoint.comparison.consequence import Edges, settle_rows_without_consequence
from syncpoint.comparison.rows import Introduced, Row
from syncpoint.errors import InputError
from syncpoint.metrics.judge_statistics_and_digests import judge_digest, judge_statistics
from syncpoint.metrics.judge_values import judge, judge_introduced, judge_rounded
from syncpoint.metrics.limits import PRESETS, Limits, preset_of
from syncpoint.metrics.verdict import FAILING_REASONS, NO_REASON, Reason, ReasonCode, Verdict
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, Role

AUTO = "auto"
GIVEN_ROLES = frozenset({Role.MODEL_INPUT, Role.PARAMETER})
"""Roles of tensors that a model receives and does not compute."""
Choice = str | Limits
"""`auto`, or limits for every row."""
CANCELS = "the terms of this result cancel"
_MIN_COMPENSATION = 30.0
"""Introduced error over total error above which an op undoes the error of its inputs."""


def check_choice(choice: object) -> None:
    """Raise InputError unless `choice` is `auto` or a Limits; names of presets are not accepted."""
    if choice != AUTO and not isinstance(choice, Limits):
        raise InputError(
            f"limits must be {AUTO!r} or a Limits, not {choice!r}",
            cure="look up a preset by its name with syncpoint.metrics.limits.preset",
        )


def judge_rows(
    rows: list[Row], choice: Choice = AUTO, edges: Edges = MappingProxyType({})
) -> list[Row]:
    """All rows of a comparison with their verdicts under these limits.

    `edges` are the target ops with the ops that they read.
    """
    judged = settle_rows_without_consequence(
        [judge_row(row, choice) for row in rows],
        edges,
        lambda row: judge_total(row, limits_of(row, choice))[0] is Verdict.CLOSE,
    )
    if not any(row.introduced for row in judged):
        return judged
    judged = _settle_results_that_cancel(judged, choice)
    if any(is_unfinished(row) for row in judged):
        return judged  # whether an op is guilty is not known yet
    # After random numbers, errors do not come from amplified rounding. Of a damaged tensor, the
    # true error is unknown.
    unknown_reasons = (ReasonCode.RANDOM, ReasonCode.DAMAGED)
    guilty = any(_is_guilty(row) or row.unmeasured.code in unknown_reasons for row in judged)
    return [_mark_amplified(row, judged) if not guilty else row for row in judged]


def _settle_results_that_cancel(rows: list[Row], choice: Choice) -> list[Row]:
    """The rows, with inherited ones whose terms cancel as close if their error is small beside the
    terms. If a model output is off, the digits that cancelled may be those that it needs."""
    outputs = [row for row in rows if row.output]
    if not outputs or any(row.verdict is not Verdict.CLOSE for row in outputs):
        return rows
    return [
        _settle_result_that_cancels(row)
        if row.verdict is Verdict.INHERITED and _is_close_to_terms(row, choice)
        else row
        for row in rows
    ]


def _settle_result_that_cancels(row: Row) -> Row:
    detail = f"{row.why.detail}; {CANCELS}, and within the limits of what it adds up"
    return replace(row, verdict=Verdict.CLOSE, why=Reason(detail=detail))


def limits_of(row: Row, choice: Choice) -> Limits:
    """The limits of a row. Integers that must be equal are exact under any preset."""
    if isinstance(choice, Limits) and row.preset != "exact":
        return choice
    return PRESETS[row.preset]


def judge_row(row: Row, choice: Choice = AUTO) -> Row:
    """The row with its verdict, from its total error and the error its op introduced."""
    if row.unmeasured or row.numbers is None:
        why = row.unmeasured or Reason(ReasonCode.NO_TARGET_VALUE)
        return replace(row, verdict=Verdict.NONE, why=why)
    verdict, why = _judge_measured(row, choice)
    introduced = Verdict.NONE
    if row.introduced is not None:
        own_limits = choice if isinstance(choice, Limits) else PRESETS[row.introduced.preset]
        introduced = judge_introduced(row.introduced.ratio, own_limits)
        if introduced.severity and verdict is Verdict.CLOSE and _is_compensated(row):
            introduced = Verdict.NONE
    if row.first_non_finite:
        # Even if the op is as exact as its precision allows, the run breaks here.
        verdict, why = Verdict.LARGE, Reason(detail=f"first non-finite; {why}")
    elif not row.output:
        verdict, why = _weigh_introduced(row, choice, introduced, verdict, why)
    if row.nearer_to_float64 and introduced is not Verdict.LARGE and not row.first_non_finite:
        # A value that differs because it is closer to float64 than the reference is no error.
        verdict = Verdict.CLOSE if verdict.severity else verdict
    return replace(row, verdict=verdict, why=why, introduced_verdict=introduced)


def is_excused(row: Row, choice: Choice = AUTO) -> bool:
    """Whether a row is close only because it is closer to float64 than the reference."""
    if not row.nearer_to_float64 or row.verdict is not Verdict.CLOSE:
        return False
    return judge_row(replace(row, nearer_to_float64=False), choice).verdict is not Verdict.CLOSE


def _judge_measured(row: Row, choice: Choice) -> tuple[Verdict, Reason]:
    """The verdict on the total error, with the rules for model inputs and correct rounding."""
    numbers = row.numbers or {}
    if row.target.key.role is Role.MODEL_INPUT and "same_input" in numbers:
        if numbers["same_input"]:
            return Verdict.CLOSE, NO_REASON
        return Verdict.LARGE, Reason(detail="the model inputs differ")
    limits = limits_of(row, choice)
    verdict, why = judge_total(row, limits)
    if verdict.severity and is_correctly_rounded(row, limits):
        return judge_rounded(numbers, row.target.dtype)
    return verdict, why


def _weigh_introduced(
    row: Row, choice: Choice, introduced: Verdict, verdict: Verdict, why: Reason
) -> tuple[Verdict, Reason]:
    """The verdict on an op output, by how much of the total error the op introduced."""
    if verdict is Verdict.CLOSE and introduced is Verdict.LARGE and row.introduced:
        # The total is within the limits of the whole path, but the op introduces more than its
        # own rounding. So the row is moderate, or large by the limits of the op's own precision.
        own_verdict = _own_verdict(row.introduced, choice)
        ratio = row.introduced.ratio or 0.0
        detail = f"within the limits, but the op introduces {ratio:.3g}x what its precision allows"
        return max(Verdict.MODERATE, own_verdict, key=lambda v: v.severity), Reason(detail=detail)
    if not verdict.severity or introduced is Verdict.NONE:
        return verdict, why
    if introduced is Verdict.CLOSE:
        return Verdict.INHERITED, why
    if introduced.severity < verdict.severity:
        return introduced, Reason(detail=f"{why}; most of the error is inherited")
    return verdict, why


def _is_close_to_terms(row: Row, choice: Choice) -> bool:
    """Whether the terms of a row cancel, and its total error is close beside them."""
    error = row.introduced.terms_error if row.introduced is not None else None
    limits = limits_of(row, choice)
    return error is not None and not limits.exact and error <= 10.0 ** (-limits.psnr[0] / 20)


def _is_compensated(row: Row) -> bool:
    """Whether the target agrees with the reference far better than the reference's op on the
    target's inputs does. Then not this op is off but an input, in a way that this op undoes: its
    pair is wrong, or the two sides represent it differently. Or float64 decides a tie otherwise,
    such as that of an argmax."""
    numbers = row.numbers or {}
    total = numbers.get("rmse")
    if row.basis != Kept.VALUES or total is None or row.introduced is None or numbers["mismatched"]:
        return False
    return bool(row.introduced.rmse > _MIN_COMPENSATION * total)


def judge_total(row: Row, limits: Limits) -> tuple[Verdict, Reason]:
    """The verdict on the total error of a row with numbers, by its basis."""
    numbers = row.numbers or {}
    if row.basis == Kept.DIGEST:
        return judge_digest(numbers)
    if row.basis == Kept.STATISTICS:
        return judge_statistics(numbers, limits)
    return judge(numbers, limits)


def _own_verdict(introduced: Introduced, choice: Choice) -> Verdict:
    """The verdict on the introduced error under the limits of the op's own precision."""
    limits = choice if isinstance(choice, Limits) else PRESETS[introduced.preset]
    verdict = Verdict.CLOSE
    for value, (close, moderate) in (
        (introduced.psnr, limits.psnr),
        (introduced.sqnr, limits.sqnr),
    ):
        if value is not None and value < close and not limits.exact:
            metric_verdict = Verdict.MODERATE if value >= moderate else Verdict.LARGE
            verdict = max(verdict, metric_verdict, key=lambda v: v.severity)
    return verdict


def _is_guilty(row: Row) -> bool:
    """Whether an op is guilty, or may be because its introduced error is unknown."""
    if row.target.key.role in (Role.OUTPUT, Role.STATE) and row.introduced is not None:
        return row.guilty
    return row.target.key.role is not Role.MODEL_OUTPUT and row.verdict.severity > 0


def _mark_amplified(row: Row, rows: list[Row]) -> Row:
    """The row as amplified, if it is a large model output and no op is guilty."""
    if not row.output or row.verdict is not Verdict.LARGE or row.introduced_verdict.severity:
        return row
    output_rows = (r for r in rows if r.target.key.op == row.target.key.op and r.introduced)
    if not any(r.target.key.role is Role.OUTPUT for r in output_rows):
        # The op that computes the output was not measured, so it may be guilty.
        detail = f"{row.why}; the introduced error of its op could not be measured"
        return replace(row, why=Reason(detail=detail))
    ratios = [r.introduced.ratio for r in rows if r.introduced and r.introduced.ratio is not None]
    max_ratio = max(ratios, default=0.0)
    detail = (
        f"{row.why}; no op is guilty: none introduces more than {max_ratio:.1f}x what its"
        " precision allows, and small errors grew along the graph"
    )
    return replace(row, verdict=Verdict.AMPLIFIED, why=Reason(detail=detail))


def is_unfinished(row: Row) -> bool:
    """Whether a row is not measured yet in an unfinished comparison."""
    return ReasonCode.UNFINISHED in (row.why.code, row.unknown.code)


def overall_verdict(rows: list[Row]) -> Verdict:
    """The verdict on the whole comparison; unmeasured rows are not a pass."""
    if any(is_unfinished(row) for row in rows):
        return Verdict.NONE  # verdicts may still change
    verdicts = {row.verdict for row in rows}
    computed = any(
        row.verdict is not Verdict.NONE and row.target.key.role not in GIVEN_ROLES for row in rows
    )
    ignored = {ReasonCode.SHAPE} if _are_outputs_judged(rows) else frozenset()
    failing = any(
        row.verdict is Verdict.NONE and row.why.code in FAILING_REASONS - ignored for row in rows
    )
    if Verdict.LARGE in verdicts or failing:
        return Verdict.LARGE
    if Verdict.AMPLIFIED in verdicts:
        return Verdict.AMPLIFIED
    if verdicts & {Verdict.MODERATE, Verdict.INHERITED}:
        return Verdict.MODERATE
    # Equal inputs and parameters alone prove nothing about the outputs.
    return Verdict.CLOSE if Verdict.CLOSE in verdicts and computed else Verdict.NONE


def _are_outputs_judged(rows: list[Row]) -> bool:
    """Whether every model output is compared. A pair inside the model whose shapes do not fit then
    says more about the pairing than about the model: a wrong shape shows in what reads it."""
    output_rows = [row for row in rows if row.output]
    return bool(output_rows) and all(row.verdict is not Verdict.NONE for row in output_rows)


def is_correctly_rounded(row: Row, limits: Limits) -> bool:
    """Whether every element is the reference value, rounded to the coarser of the two types.

    Such a value may differ much if it is subnormal: 1e-6 in float16 differs by 1.3 %, and no
    float16 is closer. If the user chose stricter limits than those of the type, they hold.
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
