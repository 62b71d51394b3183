"""Coverage of a comparison, new or saved: share compared and required on each side, counts and
names of tensors and outputs not compared, as JSON.

Also lists the tensors and the model outputs that were not compared. METRICS.md states the rule.
Whether an error in an unmatched tensor would be visible is decided in `unmatched.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role
from syncpoint.run.non_tensor_outputs import OtherOutput

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result
    from syncpoint.comparison.unmatched import UnmatchedTensor

TARGET, REFERENCE = "target", "reference"
MIN_COVERAGE = 0.5
"""Default share of each side that must be covered."""
MIN_COVERAGE_OF_PARTIAL = 0.9
"""Default share where the other side is known to lack tensors: they are lost, not fused.
Complete dumps give 1.0, and dumps that lost every tenth tensor 0.92 to 0.96 (measured)."""
_COMPUTED_ROLES = frozenset({Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT})
_UNCOUNTED_REASONS = frozenset(
    {ReasonCode.EXCLUDED, ReasonCode.RANDOM, ReasonCode.EMPTY, ReasonCode.ALL_MASKED}
)
"""Rows without a verdict for one of these reasons do not lower the coverage."""


class Account(StrEnum):
    """Whether an error in an unmatched tensor would be visible in the comparison."""

    MISSING = "missing"
    """No compared tensor would show an error in it."""
    DOWNSTREAM = "downstream"
    """Its value flows into a tensor that was compared."""
    INSIDE = "inside"
    """A compared op of the other side declares that it computes this tensor too."""
    UNKNOWN = ""
    """The comparison was saved by a version that did not record it."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of each run was compared."""

    target: float
    """Compared tensors divided by all tensors that carry a value."""
    reference: float
    target_tensors: int
    reference_tensors: int
    paired: int
    compared: int
    target_missing: int = 0
    """Tensors that were not compared although the other side has or should have a partner."""
    reference_missing: int = 0
    outputs_missing: int = 0
    """Model outputs that were not compared."""
    unseen: int = 0
    """Tensors of both sides whose errors no compared tensor would show."""
    target_required: float = MIN_COVERAGE
    """The share that must be covered."""
    reference_required: float = MIN_COVERAGE

    @property
    def target_covered(self) -> float:
        """Compared / (compared + missing) tensors of the target; `--min-coverage` limits it."""
        return _share(self.compared, self.target_missing)

    @property
    def reference_covered(self) -> float:
        """Compared / (compared + missing) tensors of the reference."""
        return _share(self.compared, self.reference_missing)

    @property
    def is_enough(self) -> bool:
        """Whether enough of both sides was compared to pass."""
        covered = self.target_covered >= self.target_required
        covered &= self.reference_covered >= self.reference_required
        return self.compared > 0 and covered and not self.outputs_missing

    @property
    def is_whole(self) -> bool:
        """Whether the verdict on the compared tensors holds for the whole model."""
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
        """The coverage in a `comparison.json`.

        Older files do not record missing tensors. If their target has a graph, its ops are assumed
        to contain the unmatched tensors of the reference.
        """
        saved = about["coverage"]
        fields = {name: saved[name] for name in cls.__dataclass_fields__ if name in saved}
        if "target_missing" not in saved:
            edges = about.get("edges")
            has_graph = edges is None or any(reads for _, reads in edges)
            hidden_count = 0 if has_graph else saved["reference_tensors"] - saved["compared"]
            fields["target_missing"] = saved["target_tensors"] - saved["compared"]
            fields["reference_missing"] = fields["unseen"] = hidden_count
        return cls(**fields)


def required_share(side: str, partial: Collection[str], min_coverage: float | None = None) -> float:
    """The share of a side that must be covered; `partial` are the sides that lack tensors."""
    if min_coverage is not None:
        return min_coverage
    other = REFERENCE if side == TARGET else TARGET
    return MIN_COVERAGE_OF_PARTIAL if other in partial else MIN_COVERAGE


def _share(compared: int, missing: int) -> float:
    return compared / (compared + missing) if compared else 0.0


def count_missing(accounts: Iterable[Account], other_count: int) -> int:
    """How many of the counted unmatched tensors of one side are missing.

    An unmatched tensor whose errors show downstream could still have been compared if the other
    side has an unmatched tensor too, or lost one. So at most `other_count` of them are missing.
    The rest have no partner because the other side computes no such tensor.
    """
    counts = Counter(accounts)
    return counts[Account.MISSING] + min(counts[Account.DOWNSTREAM], other_count)


def _is_out_of_count(row: Row) -> bool:
    return row.verdict is Verdict.NONE and row.why.code in _UNCOUNTED_REASONS


def compute_coverage(comparison: Result) -> Coverage:
    """The coverage of a comparison, by the rule of METRICS.md."""
    rows = [row for row in comparison.rows if row.target.key.role in _COMPUTED_ROLES]
    counted = [row for row in rows if not _is_out_of_count(row)]
    compared = sum(row.verdict is not Verdict.NONE for row in counted)
    unjudged = len(counted) - compared
    unmatched = [u for u in comparison.unmatched if u.counted]
    totals = {
        side: len(counted) + sum(u.side == side for u in unmatched)
        for side in ("target", "reference")
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
    """How many unmatched tensors of one side are missing."""
    others = [u for u in comparison.unmatched if u.counted and u.side == other]
    visible_count = sum(account_of(comparison, u) is not Account.INSIDE for u in others)
    return count_missing(
        _accounts(comparison, side), visible_count + comparison.unkept.get(other, 0)
    )


def _count_unseen(comparison: Result, side: str) -> int:
    """How many unmatched tensors of one side could hide an error, or were lost."""
    other = "reference" if side == "target" else "target"
    return count_missing(_accounts(comparison, side), comparison.unkept.get(other, 0))


def _accounts(comparison: Result, side: str) -> list[Account]:
    return [account_of(comparison, u) for u in comparison.unmatched if u.counted and u.side == side]


def account_of(comparison: Result, tensor: UnmatchedTensor) -> Account:
    """Whether an error in an unmatched tensor would be visible.

    Older comparisons do not record it. If their target has a graph, its ops are assumed to contain
    the unmatched tensors of the reference.
    """
    if tensor.account:
        return Account(tensor.account)
    may_be_inside = tensor.side == "reference" and any(comparison.edges.values())
    return Account.INSIDE if may_be_inside else Account.MISSING


def missing_names(comparison: Result, side: str) -> list[str]:
    """Names of the tensors of one side that were not compared.

    Tensors whose errors would not show elsewhere come first.
    """
    unmatched = [u for u in comparison.unmatched if u.side == side and u.counted]
    unmatched = [u for u in unmatched if account_of(comparison, u) is not Account.INSIDE]
    unmatched.sort(key=lambda u: account_of(comparison, u) is not Account.MISSING)
    rows = [row for row in comparison.rows if row.target.key.role in _COMPUTED_ROLES]
    unmeasured = [r for r in rows if r.verdict is Verdict.NONE and not _is_out_of_count(r)]
    names = [f"{u.op}:{u.index}" if u.index else u.op for u in unmatched]
    names += [(r.target if side == "target" else r.reference).label for r in unmeasured]
    return list(dict.fromkeys(names))


def list_uncompared_outputs(comparison: Result) -> list[str]:
    """Names of the model outputs that were not compared, with the reasons."""
    unjudged = [
        f"{row.target.label} ({row.why.code})"
        for row in comparison.outputs
        if row.verdict is Verdict.NONE and not _is_settled(row)
    ]
    unmatched = [
        f"{u.side} {u.op}:{u.index}"
        for u in comparison.unmatched
        if u.role == Role.MODEL_OUTPUT and u.counted
    ]
    return unjudged + unmatched + _list_other_outputs(comparison) + _list_lost_outputs(comparison)


def _list_other_outputs(comparison: Result) -> list[str]:
    """Model outputs that are not tensors, unless both sides have the same number or text."""
    target, reference = (
        about.get("other_outputs") or {} for about in (comparison.target, comparison.reference)
    )
    different_outputs = []
    for name in dict.fromkeys([*target, *reference]):
        values = [
            OtherOutput.from_json(str(side[name])) if name in side else None
            for side in (target, reference)
        ]
        if values[0] == values[1] and values[0] is not None and not values[0].is_opaque:
            continue
        texts = ["nothing" if value is None else value.text for value in values]
        different_outputs.append(f"{name} (not a tensor: {' against '.join(texts)})")
    return different_outputs


def _list_lost_outputs(comparison: Result) -> list[str]:
    """The outputs of runs that ended early, which may lack some samples or steps.

    Dumps of other tools are left out: they need not contain model outputs.
    """
    sides = (("target", comparison.target), ("reference", comparison.reference))
    return [
        f"outputs of the {side}, whose run is incomplete"
        for side, about in sides
        if not about.get("complete", True) and "format" not in about.get("options", {})
    ]


def _is_settled(row: Row) -> bool:
    """Whether an output without a verdict needs none.

    Either the user excluded it, or both sides are empty with the same shape, such as the boxes of
    a detector that finds nothing.
    """
    if row.why.code is ReasonCode.EMPTY:
        return row.target.shape == row.reference.shape
    return row.why.code is ReasonCode.EXCLUDED
