"""Choose the rows that causes look into: guilty ops, else outputs that no op explains; drop rows
that only pass on NaN or inf; first divergence.

The rule reads rows only. `ValueChecks` answers what only values can tell, for example whether the
target folded a norm into the product before it. docs/diagnosis.md has the rule in words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role


@dataclass(frozen=True, kw_only=True)
class ValueChecks:
    """Questions of the rule that rows alone cannot answer."""

    drop_folded_norms: Callable[[list[Row]], list[Row]]
    """The rows without those that are off only because the target folded a norm into a product."""
    is_unexplained_output: Callable[[Row], bool]
    """Whether a row is a model output that is off while no sync point of an op accounts for it."""
    is_innocent: Callable[[Row], bool]
    """Whether an op gives what the reference's op gives on the same inputs, up to rounding."""
    first_divergence: Callable[[], Sequence[Row]]
    """Where the runs part, by `Result.first_divergence`."""


def find_guilty(computed: Sequence[Row], checks: ValueChecks) -> list[Row]:
    """Return the guilty rows of what ops and models gave, in execution order.

    Ops that introduce a large error hide model outputs that no op accounts for, and those hide ops
    that introduce a moderate error. Where the runs part counts when nothing else is guilty, or
    when introduced error is not known.
    """
    accused = drop_consequences([row for row in computed if is_accused(row)])
    large = checks.drop_folded_norms([row for row in accused if is_large(row)])
    outputs = [] if large else [row for row in computed if checks.is_unexplained_output(row)]
    moderate = [row for row in accused if not is_large(row)]
    guilty = large or outputs or moderate
    first_rows = _find_first_divergence(computed, bool(guilty), checks)
    keys = {row.target.key for row in guilty}
    guilty = [*guilty, *(row for row in first_rows if row.target.key not in keys)]
    return sorted(guilty, key=lambda row: row.target.order)


def is_accused(row: Row) -> bool:
    """Whether an op introduces more error than is close, or the first NaN or inf."""
    return row.guilty and row.target.key.role is Role.OUTPUT


def is_large(row: Row) -> bool:
    """Whether an op introduces a large error, or the first NaN or inf."""
    return row.introduced_verdict is Verdict.LARGE or row.first_non_finite


def is_consequence(row: Row) -> bool:
    """Whether an op only passes on NaN or inf that the reference does not have."""
    return row.has_more_non_finite and not row.first_non_finite


def drop_consequences(accused: list[Row]) -> list[Row]:
    """Return the accused rows without consequences, if one of them made the first NaN or inf.

    NaN and inf that an op passes on say nothing about that op. Without a first one no other op
    could be the cause, so all stay accused.
    """
    if not any(row.first_non_finite for row in accused):
        return accused
    return [row for row in accused if not is_consequence(row)]


def is_introduced_known(computed: Iterable[Row]) -> bool:
    """Whether introduced error is known anywhere."""
    return any(row.introduced is not None for row in computed)


def _find_first_divergence(
    computed: Sequence[Row], has_guilty: bool, checks: ValueChecks
) -> Sequence[Row]:
    """Return the rows where the runs diverge first, if they may be guilty.

    If introduced error is known, it has cleared the innocent rows already.
    """
    if not is_introduced_known(computed):
        return [row for row in checks.first_divergence() if not checks.is_innocent(row)]
    return [] if has_guilty else checks.first_divergence()
