"""The result of a comparison (`Result`): its rows and unmatched tensors, and what follows from
them: worst rows, outputs, first divergence, exit code, table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from syncpoint.comparison.coverage import (
    Account,
    Coverage,
    account_of,
    compute_coverage,
    list_uncompared_outputs,
    missing_names,
)
from syncpoint.comparison.findings import Diagnosis, Finding
from syncpoint.comparison.first_divergence import find_first_divergence
from syncpoint.comparison.judge_rows import (
    AUTO,
    Choice,
    check_choice,
    is_unfinished,
    judge_rows,
    overall_verdict,
)
from syncpoint.comparison.rows import Row, worst_first_key
from syncpoint.comparison.unmatched import UnmatchedTensor
from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics.limits import Limits
from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Kept, OpKey, Role

if TYPE_CHECKING:
    import polars

    from syncpoint.comparison.error_split import ErrorSplit
    from syncpoint.matching.masks import Mask


@dataclass(frozen=True, kw_only=True)
class Result:
    """All sync points of a target and a reference run, measured and judged."""

    target: Mapping[str, Any]
    """Facts of the target run: model, path, digest, runtime, device, precision, notes."""
    reference: Mapping[str, Any]
    rows: list[Row]
    unmatched: list[UnmatchedTensor]
    choice: Choice = AUTO
    edges: Mapping[OpKey, tuple[OpKey, ...]] = field(default_factory=dict)
    """Target ops with the ops that they read, to find the first divergence."""
    warnings: tuple[str, ...] = ()
    created: str = ""
    through: ErrorSplit | None = None
    """How much of each error is compression and how much runtime, if a third run was compared."""
    diagnosis: Diagnosis | None = None
    """The causes, if the comparison was diagnosed."""
    unkept: Mapping[str, int] = field(default_factory=dict)
    """By side: op outputs that the run lists but has no value of."""
    partial: tuple[str, ...] = ()
    """Sides that are known to lack tensors that they computed."""
    unfinished: str = ""
    """Progress of an unfinished comparison, in words; "" if it is finished."""
    min_coverage: float | None = None
    """Share of each side that the user requires to be covered; None for the default."""
    unverified: str = ""
    """Why the files of the comparison could not be verified; "" if they were."""
    verified: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By side: how many tensors were read, and how many match their checksums; empty in
    comparisons of versions that did not verify."""
    masks: tuple[Mask, ...] = ()
    """Masks of the map file: positions that do not count."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the diagnosis, the most important first."""
        return self.diagnosis.findings if self.diagnosis is not None else ()

    def rejudged(self, choice: Choice) -> Self:
        """The same measurements, judged by other limits."""
        check_choice(choice)
        return replace(self, rows=judge_rows(self.rows, choice, self.edges), choice=choice)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the whole comparison."""
        if any(u.why.code is ReasonCode.DAMAGED and u.counted for u in self.unmatched):
            return Verdict.LARGE  # the damage may be the reason why it has no partner
        return overall_verdict(self.rows)

    @cached_property
    def coverage(self) -> Coverage:
        """How much of each run was compared, and how many tensors are missing (METRICS.md)."""
        return compute_coverage(self)

    def account_of(self, tensor: UnmatchedTensor) -> Account:
        """Whether an unmatched tensor is missing, or an error in it would show elsewhere."""
        return account_of(self, tensor)

    def missing(self, side: str) -> list[str]:
        """Names of the tensors of one side that were not compared."""
        return missing_names(self, side)

    @property
    def uncompared_outputs(self) -> list[str]:
        """Model outputs that the comparison says nothing about, each with the reason."""
        return list_uncompared_outputs(self)

    @property
    def first_divergence(self) -> list[Row]:
        """The rows where the two runs part; several only if they lie on parallel branches."""
        return find_first_divergence(self)

    @cached_property
    def bases(self) -> dict[str, int]:
        """How many verdicts are based on values, on statistics and on digests."""
        judged = [row.basis for row in self.rows if row.verdict is not Verdict.NONE]
        return {form.value: judged.count(form) for form in Kept}

    @property
    def outputs(self) -> list[Row]:
        """The rows of the model's outputs."""
        return [row for row in self.rows if row.output]

    @property
    def inputs_differ(self) -> list[Row]:
        """Model inputs that differ between the two sides."""
        return [
            row
            for row in self.rows
            if row.target.key.role is Role.MODEL_INPUT and row.verdict.severity > 0
        ]

    def worst(self, count: int = 10, metric: str = "psnr") -> list[Row]:
        """The worst rows by verdict, guilt and metric."""
        return sorted(self.rows, key=lambda row: worst_first_key(row, metric))[:count]

    def exit_code(self, fail_on: str = "large", min_coverage: float | None = None) -> int:
        """The exit code of the comparison (INTERFACE.md); `min_coverage` replaces the one that it
        was made with."""
        bad = {Verdict.LARGE, Verdict.AMPLIFIED}
        if fail_on == "moderate":
            bad.add(Verdict.MODERATE)
        if self.verdict in bad or self.inputs_differ:
            return EXIT_DIVERGED
        if any(is_unfinished(row) for row in self.rows):
            return EXIT_UNCOVERED
        result = self if min_coverage is None else replace(self, min_coverage=min_coverage)
        return EXIT_CLOSE if result.coverage.is_enough else EXIT_UNCOVERED

    @property
    def preset_name(self) -> str:
        """The name of the limits; `auto` if none were chosen."""
        return self.choice.name if isinstance(self.choice, Limits) else self.choice

    @cached_property
    def table(self) -> polars.DataFrame:
        """A table with one row per sync point; docs/formats.md lists the columns."""
        from syncpoint.comparison.storage.sync_point_table import rows_to_table

        return rows_to_table(self.rows)
