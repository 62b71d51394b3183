"""The coverage rule: what share of each side was compared, and whether that is enough.

METRICS.md states it. Which unmatched tensors are missing is decided in `unmatched.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result
    from syncpoint.comparison.unmatched import UnmatchedTensor

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role

TARGET, REFERENCE = "target", "reference"

MIN_COVERAGE = 0.5
"""Share of each side that must be covered unless the user asks for another."""
MIN_COVERAGE_OF_PARTIAL = 0.9
"""The same where the other side is known to lack tensors: its ops are not fused, they are lost.
Complete dumps give 1.0, and dumps that lost every tenth tensor 0.92 to 0.96 (measured)."""


class Account(StrEnum):
    """What became of a tensor that has no partner."""

    MISSING = "missing"
    """Nothing that was compared would show an error in it."""
    DOWNSTREAM = "downstream"
    """Its value flows into a tensor that was compared."""
    INSIDE = "inside"
    """An op of the other side that was compared stands for it too, and says so."""
    UNKNOWN = ""
    """In comparisons that were saved before this was recorded."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of each run was compared."""

    target: float
    """Compared tensors over all that carry a value."""
    reference: float
    target_tensors: int
    reference_tensors: int
    paired: int
    compared: int
    target_missing: int = 0
    """Tensors that were not compared, though the other side has or should have a partner."""
    reference_missing: int = 0
    outputs_missing: int = 0
    """Model outputs that nothing was said about."""
    unseen: int = 0
    """Tensors of both sides whose errors nothing that was compared would show."""
    target_required: float = MIN_COVERAGE
    """The share that must be covered."""
    reference_required: float = MIN_COVERAGE

    @property
    def target_covered(self) -> float:
        """Compared tensors over those and the missing ones: what `--min-coverage` is about."""
        return _share(self.compared, self.target_missing)

    @property
    def reference_covered(self) -> float:
        """As `target_covered`, for the reference."""
        return _share(self.compared, self.reference_missing)

    @property
    def is_enough(self) -> bool:
        """Whether enough of both sides was compared to pass."""
        covered = self.target_covered >= self.target_required
        covered &= self.reference_covered >= self.reference_required
        return self.compared > 0 and covered and not self.outputs_missing

    @property
    def is_whole(self) -> bool:
        """Whether a verdict on what was compared may stand for the whole without a word."""
        return self.is_enough and not self.unseen

    def as_dict(self) -> dict[str, float | int]:
        """For JSON."""
        return {
            **self.__dict__,
            "target_covered": self.target_covered,
            "reference_covered": self.reference_covered,
        }

    @classmethod
    def of_saved(cls, about: Mapping[str, Any]) -> Coverage:
        """That of a comparison.json. Older ones do not say what is missing: there a target that
        shows its graph is taken to hide tensors of the reference."""
        saved = about["coverage"]
        known = {name: saved[name] for name in cls.__dataclass_fields__ if name in saved}
        if "target_missing" not in saved:
            edges = about.get("edges")
            hides = edges is None or any(reads for _, reads in edges)
            left = 0 if hides else saved["reference_tensors"] - saved["compared"]
            known["target_missing"] = saved["target_tensors"] - saved["compared"]
            known["reference_missing"] = known["unseen"] = left
        return cls(**known)


def required_share(side: str, partial: Collection[str], min_coverage: float | None = None) -> float:
    """The share of a side that must be covered; `partial` are the sides that lack tensors."""
    if min_coverage is not None:
        return min_coverage
    other = REFERENCE if side == TARGET else TARGET
    return MIN_COVERAGE_OF_PARTIAL if other in partial else MIN_COVERAGE


def _share(compared: int, missing: int) -> float:
    return compared / (compared + missing) if compared else 0.0


def count_missing(accounts: Iterable[Account], others_left: int) -> int:
    """How many of one side's counted tensors without a partner are missing.

    A tensor that shows downstream could still have been compared if the other side has a tensor
    left to compare it with, or had one and lost it. So at most `others_left` of them are missing;
    the rest have no partner because the other side computes no such tensor.
    """
    counts = Counter(accounts)
    return counts[Account.MISSING] + min(counts[Account.DOWNSTREAM], others_left)


_COMPUTED_ROLES = frozenset({Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT})


_UNCOUNTED_REASONS = frozenset(
    {ReasonCode.EXCLUDED, ReasonCode.RANDOM, ReasonCode.EMPTY, ReasonCode.ALL_MASKED}
)
"""No verdict for these reasons does not lower the coverage."""


def _is_out_of_count(row: Row) -> bool:
    return row.verdict is Verdict.NONE and row.why.code in _UNCOUNTED_REASONS


def compute_coverage(comparison: Result) -> Coverage:
    """Compared tensors over those that carry a value, for both runs; and how many are missing
    by the rule of METRICS.md."""
    rows = [row for row in comparison.rows if row.target.key.role in _COMPUTED_ROLES]
    counted = [row for row in rows if not _is_out_of_count(row)]
    compared = sum(row.verdict is not Verdict.NONE for row in counted)
    unjudged = len(counted) - compared
    lonely = [u for u in comparison.unmatched if u.counted]
    totals = {
        side: len(counted) + sum(u.side == side for u in lonely) for side in ("target", "reference")
    }
    return Coverage(
        target=compared / totals["target"] if totals["target"] else 0.0,
        reference=compared / totals["reference"] if totals["reference"] else 0.0,
        target_tensors=totals["target"],
        reference_tensors=totals["reference"],
        paired=len(rows),
        compared=compared,
        target_missing=unjudged + _count_missing_on(comparison, TARGET, REFERENCE),
        reference_missing=unjudged + _count_missing_on(comparison, REFERENCE, TARGET),
        outputs_missing=len(comparison.uncompared_outputs),
        unseen=unjudged + sum(_count_unseen(comparison, side) for side in (TARGET, REFERENCE)),
        target_required=required_share("target", comparison.partial, comparison.min_coverage),
        reference_required=required_share("reference", comparison.partial, comparison.min_coverage),
    )


def _count_missing_on(comparison: Result, side: str, other: str) -> int:
    """How many tensors without a partner are missing on one side."""
    others = [u for u in comparison.unmatched if u.counted and u.side == other]
    left = sum(account_of(comparison, u) is not Account.INSIDE for u in others)
    return count_missing(_accounts(comparison, side), left + comparison.unkept.get(other, 0))


def _count_unseen(comparison: Result, side: str) -> int:
    """How many of these would have shown an error nowhere else, or were lost."""
    other = "reference" if side == "target" else "target"
    return count_missing(_accounts(comparison, side), comparison.unkept.get(other, 0))


def _accounts(comparison: Result, side: str) -> list[Account]:
    return [account_of(comparison, u) for u in comparison.unmatched if u.counted and u.side == side]


def account_of(comparison: Result, lonely: UnmatchedTensor) -> Account:
    """What became of a tensor without a partner. Older comparisons do not say; there a
    target that shows its graph is taken to hide tensors of the reference."""
    if lonely.account:
        return Account(lonely.account)
    hides = lonely.side == "reference" and any(comparison.edges.values())
    return Account.INSIDE if hides else Account.MISSING


def missing_names(comparison: Result, side: str) -> list[str]:
    """Names of tensors of one side that were not compared, those first whose errors would
    not have shown elsewhere."""
    left = [u for u in comparison.unmatched if u.side == side and u.counted]
    left = [u for u in left if account_of(comparison, u) is not Account.INSIDE]
    left.sort(key=lambda u: account_of(comparison, u) is not Account.MISSING)
    rows = [row for row in comparison.rows if row.target.key.role in _COMPUTED_ROLES]
    unmeasured = [r for r in rows if r.verdict is Verdict.NONE and not _is_out_of_count(r)]
    names = [f"{u.op}:{u.index}" if u.index else u.op for u in left]
    names += [(r.target if side == "target" else r.reference).label for r in unmeasured]
    return list(dict.fromkeys(names))
