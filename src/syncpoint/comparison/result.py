"""The result of a comparison: rows, what stayed unmatched, and the answers drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from syncpoint.comparison.coverage import Account, Coverage, count_missing, required_share
from syncpoint.comparison.findings import Diagnosis, Finding
from syncpoint.comparison.judge_rows import (
    AUTO,
    Choice,
    check_choice,
    is_unfinished,
    judge_rows,
    overall,
)
from syncpoint.comparison.rows import Row
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics.limits import Limits
from syncpoint.metrics.verdict import FAILING_REASONS, Reason, ReasonCode, Verdict
from syncpoint.run.model import Kept, OpKey, OtherOutput, Part, Role

if TYPE_CHECKING:
    import polars

    from syncpoint.comparison.error_split import Through
    from syncpoint.matching.masks import Mask

_COMPUTED = frozenset({Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT})
_OUT_OF_COUNT = frozenset(
    {ReasonCode.EXCLUDED, ReasonCode.RANDOM, ReasonCode.EMPTY, ReasonCode.ALL_MASKED}
)
"""No verdict for these reasons does not lower the coverage."""


@dataclass(frozen=True, kw_only=True)
class Lonely:
    """A tensor without a partner, as it is shown."""

    side: str
    op: str
    role: str
    index: int
    type: str
    module: str
    why: Reason
    """Why it has no partner."""
    counted: bool = True
    """Whether it carries a value that could have been compared."""
    account: str = Account.UNKNOWN
    """Whether it is missing, or an error in it would have shown elsewhere."""
    inside: str = ""
    """The op that it is a piece of, where that is known."""

    @property
    def reason(self) -> str:
        """Why it has no partner, in one word: the code."""
        return self.why.code or ""

    @property
    def detail(self) -> str:
        """The rest of the reason in words."""
        return str(replace(self.why, code=None))


@dataclass(frozen=True, kw_only=True)
class Result:
    """All sync points of a target and a reference run, measured and judged."""

    target: Mapping[str, Any]
    """What is known of the target run: label, path, digest, runtime, device, precision, notes."""
    reference: Mapping[str, Any]
    rows: list[Row]
    unmatched: list[Lonely]
    choice: Choice = AUTO
    edges: Mapping[OpKey, tuple[OpKey, ...]] = field(default_factory=dict)
    """Target ops with the ops they read, for the question what came first."""
    warnings: tuple[str, ...] = ()
    created: str = ""
    through: Through | None = None
    """How much of each error is compression and how much runtime, where a run in between tells."""
    diagnosis: Diagnosis | None = None
    """Why, as far as somebody looked."""
    unkept: Mapping[str, int] = field(default_factory=dict)
    """By side: results of ops that its run lists and has no value of."""
    partial: tuple[str, ...] = ()
    """Sides that are known to lack tensors which they computed."""
    unfinished: str = ""
    """How far the comparison was when it was looked at before its end, in words; else ""."""
    min_coverage: float | None = None
    """The share of each side that the user asks to be covered; None for that of METRICS.md."""
    unverified: str = ""
    """Why the files it was read from could not be verified; "" where they were."""
    verified: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By side, how many tensors were read, and how many of them fit their checksums; empty in
    comparisons of versions that did not check."""
    masks: tuple[Mask, ...] = ()
    """Positions that do not count, as the map says them."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The causes that were found, in the order in which to look at them."""
        return self.diagnosis.findings if self.diagnosis is not None else ()

    def rejudged(self, choice: Choice) -> Self:
        """The same measurements under other limits."""
        check_choice(choice)
        return replace(self, rows=judge_rows(self.rows, choice), choice=choice)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the whole."""
        if any(u.why.code is ReasonCode.DAMAGED and u.counted for u in self.unmatched):
            return Verdict.LARGE  # perhaps it is the damage that keeps it from its partner
        return overall(self.rows)

    @cached_property
    def coverage(self) -> Coverage:
        """Compared tensors over those that carry a value, for both runs; and how many are missing
        by the rule of METRICS.md."""
        rows = [row for row in self.rows if row.target.key.role in _COMPUTED]
        counted = [row for row in rows if not _out_of_count(row)]
        compared = sum(row.verdict is not Verdict.NONE for row in counted)
        lonely = [u for u in self.unmatched if u.counted]
        totals = {
            side: len(counted) + sum(u.side == side for u in lonely)
            for side in ("target", "reference")
        }
        return Coverage(
            target=compared / totals["target"] if totals["target"] else 0.0,
            reference=compared / totals["reference"] if totals["reference"] else 0.0,
            target_tensors=totals["target"],
            reference_tensors=totals["reference"],
            paired=len(rows),
            compared=compared,
            target_missing=len(counted) - compared + self._missing("target", "reference"),
            reference_missing=len(counted) - compared + self._missing("reference", "target"),
            outputs_missing=len(self.uncompared_outputs),
            unseen=len(counted) - compared + self._unseen("target") + self._unseen("reference"),
            target_required=required_share("target", self.partial, self.min_coverage),
            reference_required=required_share("reference", self.partial, self.min_coverage),
        )

    def _missing(self, side: str, other: str) -> int:
        """How many tensors without a partner are missing on one side."""
        others = [u for u in self.unmatched if u.counted and u.side == other]
        left = sum(self.account_of(u) is not Account.INSIDE for u in others)
        return count_missing(self._accounts(side), left + self.unkept.get(other, 0))

    def _unseen(self, side: str) -> int:
        """How many of these would have shown an error nowhere else, or were lost."""
        other = "reference" if side == "target" else "target"
        return count_missing(self._accounts(side), self.unkept.get(other, 0))

    def _accounts(self, side: str) -> list[Account]:
        return [self.account_of(u) for u in self.unmatched if u.counted and u.side == side]

    def account_of(self, lonely: Lonely) -> Account:
        """What became of a tensor without a partner. Older comparisons do not say; there a
        target that shows its graph is taken to hide tensors of the reference."""
        if lonely.account:
            return Account(lonely.account)
        hides = lonely.side == "reference" and any(self.edges.values())
        return Account.INSIDE if hides else Account.MISSING

    @cached_property
    def bases(self) -> dict[str, int]:
        """How many verdicts rest on values, on statistics and on digests."""
        judged = [row.basis for row in self.rows if row.verdict is not Verdict.NONE]
        return {kept.value: judged.count(kept) for kept in Kept}

    @property
    def outputs(self) -> list[Row]:
        """The rows of the model's outputs."""
        return [row for row in self.rows if row.output]

    @property
    def inputs_differ(self) -> list[Row]:
        """Model inputs that were not the same on both sides."""
        return [
            row
            for row in self.rows
            if row.target.key.role is Role.MODEL_INPUT and row.verdict.severity > 0
        ]

    @property
    def uncompared_outputs(self) -> list[str]:
        """Model outputs that nothing was said about."""
        rows = [
            f"{row.target.label} ({row.why.code})"
            for row in self.outputs
            if row.verdict is Verdict.NONE and not _says_all(row)
        ]
        lonely = [
            f"{u.side} {u.op}:{u.index}"
            for u in self.unmatched
            if u.role == Role.MODEL_OUTPUT and u.counted
        ]
        return rows + lonely + self._other_outputs() + self._lost_outputs()

    def _other_outputs(self) -> list[str]:
        """Outputs that are no tensors, unless both sides have the same number or text there."""
        target, reference = (
            about.get("other_outputs") or {} for about in (self.target, self.reference)
        )
        left = []
        for name in dict.fromkeys([*target, *reference]):
            values = [
                OtherOutput.from_json(str(side[name])) if name in side else None
                for side in (target, reference)
            ]
            if values[0] == values[1] and values[0] is not None and not values[0].is_opaque:
                continue
            texts = ["nothing" if value is None else value.text for value in values]
            left.append(f"{name} (no tensor: {' against '.join(texts)})")
        return left

    def _lost_outputs(self) -> list[str]:
        """The outputs of runs that ended before they had all: of the samples or steps that were
        recorded some may be there. A dump of another tool need not hold model outputs."""
        sides = (("target", self.target), ("reference", self.reference))
        return [
            f"those of the {side}, whose run is incomplete"
            for side, about in sides
            if not about.get("complete", True) and "format" not in about.get("options", {})
        ]

    def worst(self, count: int = 10, metric: str = "psnr") -> list[Row]:
        """The rows that are furthest off, guilty ones first among equals."""
        return sorted(self.rows, key=lambda row: badness(row, metric))[:count]

    @property
    def first_divergence(self) -> list[Row]:
        """Where the runs part: several rows only if they lie on parallel branches.

        The earliest ops whose introduced error is large; without introduced error, those whose
        total is not close while everything they read is. A state may be where they part, if a
        step begins with or leaves what no op is guilty of. Where a run does not say where an op got
        what it was given, and that is off already, the op is not where they part if another was
        off before it.
        """
        off: dict[tuple[int, int], list[Row]] = {}
        unsure = self._after_damage()
        for row in sorted(self.rows, key=lambda r: r.target.order):
            if row.target.key.role in (Role.OUTPUT, Role.STATE):
                known = row.introduced is not None
                # Without introduced error an op may be to blame for what a step leaves.
                sure = known or row.target.key.role is Role.OUTPUT or row.target.key.index
                large = row.introduced_verdict is Verdict.LARGE if known else row.verdict.severity
                if (large and sure) or row.first_non_finite:
                    part = row.target.key.part
                    off.setdefault((part.sample, part.rank), []).append(row)
        found: dict[OpKey, Row] = {}
        for rows in off.values():
            # A step inherits from those before it, and never from one that follows.
            earliest = min(row.target.key.part.step for row in rows)
            for row in self._first([r for r in rows if r.target.key.part.step == earliest]):
                if row.introduced is None and row.target.key.op in unsure:
                    continue  # it is to blame, or the op whose tensor is damaged
                found.setdefault(row.target.key.op, row)
        return list(found.values())

    def _after_damage(self) -> set[OpKey]:
        """Target ops that read a damaged tensor, directly or through ops without a verdict."""
        damaged = {r.target.key.op for r in self.rows if r.why.code is ReasonCode.DAMAGED}
        if not damaged:
            return set()
        judged = {row.target.key.op for row in self.rows if row.verdict is not Verdict.NONE}
        after: set[OpKey] = set()
        for op, inputs in self.edges.items():  # in execution order
            if any(i in damaged or (i in after and i not in judged) for i in inputs):
                after.add(op)
        return after

    def _first(self, rows: list[Row]) -> list[Row]:
        """Those of the rows, all of one execution, that read nothing from the others."""
        left = [r for r in rows if r.target.key.role is Role.STATE and not r.target.key.index]
        ops: dict[OpKey, Row] = {}
        for row in rows:
            if row not in left:
                ops.setdefault(row.target.key.op, row)
        below: dict[OpKey, bool] = {}
        for op, inputs in self.edges.items():
            below[op] = any(below.get(i, False) or i in ops for i in inputs)
        first = [row for op, row in ops.items() if not below.get(op, False)]
        handed = {
            (row.target.key.op, row.target.key.part)
            for row in self.rows
            if row.target.key.role is Role.INPUT and row.verdict.severity
        }
        first = [row for at, row in enumerate(first) if not at or not _is_handed(row, handed)]
        # A dump knows no edges: only the order then tells what came first.
        return [*first, *left] if any(self.edges.values()) else first[:1]

    def exit_code(self, fail_on: str = "large", min_coverage: float | None = None) -> int:
        """The exit code of the comparison, as INTERFACE.md defines it; `min_coverage` in place of
        the one that it was made with."""
        bad = {Verdict.LARGE, Verdict.AMPLIFIED}
        if fail_on == "moderate":
            bad.add(Verdict.MODERATE)
        if self.verdict in bad or self.inputs_differ:
            return EXIT_DIVERGED
        if any(is_unfinished(row) for row in self.rows):
            return EXIT_UNCOVERED
        result = self if min_coverage is None else replace(self, min_coverage=min_coverage)
        return EXIT_CLOSE if result.coverage.is_enough else EXIT_UNCOVERED

    def missing(self, side: str) -> list[str]:
        """Names of tensors of one side that were not compared, those first whose errors would
        not have shown elsewhere."""
        left = [u for u in self.unmatched if u.side == side and u.counted]
        left = [u for u in left if self.account_of(u) is not Account.INSIDE]
        left.sort(key=lambda u: self.account_of(u) is not Account.MISSING)
        rows = [row for row in self.rows if row.target.key.role in _COMPUTED]
        unmeasured = [r for r in rows if r.verdict is Verdict.NONE and not _out_of_count(r)]
        names = [f"{u.op}:{u.index}" if u.index else u.op for u in left]
        names += [(r.target if side == "target" else r.reference).label for r in unmeasured]
        return list(dict.fromkeys(names))

    @property
    def preset_name(self) -> str:
        """The limits in words."""
        return self.choice.name if isinstance(self.choice, Limits) else self.choice

    @cached_property
    def table(self) -> polars.DataFrame:
        """One row a sync point; the columns are those of docs/formats.md."""
        from syncpoint.comparison.storage.sync_point_table import frame

        return frame(self.rows)


def has_same_bytes(row: Row) -> bool:
    """Whether digests show that both sides of a row have the same bytes."""
    return row.basis != Kept.VALUES and bool((row.numbers or {}).get("same_bytes"))


def is_unproven(row: Row) -> bool:
    """Whether a row is close only as far as statistics tell."""
    close = row.verdict is Verdict.CLOSE
    return close and (row.ends_only or (row.basis == Kept.STATISTICS and not has_same_bytes(row)))


def _says_all(row: Row) -> bool:
    """Whether a row without a verdict leaves nothing open: the user excluded it, or both sides are
    empty in the same shape, as what a detector that finds nothing gives."""
    if row.why.code is ReasonCode.EMPTY:
        return row.target.shape == row.reference.shape
    return row.why.code is ReasonCode.EXCLUDED


def _is_handed(row: Row, handed: set[tuple[OpKey, Part]]) -> bool:
    """Whether all that speaks against an op may be what it was given."""
    if row.introduced is not None or row.first_non_finite:
        return False
    return (row.target.key.op, row.target.key.part) in handed


def _out_of_count(row: Row) -> bool:
    return row.verdict is Verdict.NONE and row.why.code in _OUT_OF_COUNT


_RANK = {
    Verdict.LARGE: 0,
    Verdict.AMPLIFIED: 0,
    Verdict.MODERATE: 1,
    Verdict.INHERITED: 2,
    Verdict.CLOSE: 3,
    Verdict.NONE: 4,
}


def badness(row: Row, metric: str = "psnr") -> tuple[Any, ...]:
    """Sorts the worst first: what failed without a verdict, then by verdict, guilt and metric."""
    from syncpoint.metrics import CATALOGUE

    failing = row.verdict is Verdict.NONE and row.why.code in FAILING_REASONS
    value = (row.numbers or {}).get(metric)
    better = CATALOGUE[metric].better if metric in CATALOGUE else None
    if value is None or value != value:
        value = float("inf")
    elif better == "one":
        value = -abs(value - 1)
    elif better != "higher":
        value = -value
    return (-1 if failing else _RANK[row.verdict], not row.guilty, value, row.target.order)
