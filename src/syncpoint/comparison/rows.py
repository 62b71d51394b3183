"""One row of a comparison: a sync point, its numbers and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncpoint.metrics import Measurement
from syncpoint.metrics.verdict import FAILING_REASONS, NO_REASON, Reason, Verdict
from syncpoint.run.model import Kept, Role, TensorKey


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of a sync point, with what a reader wants to know of it."""

    key: TensorKey
    type: str
    dtype: str
    shape: tuple[int, ...]
    module: str = ""
    source: str = ""
    """`file.py:12`, the innermost line of the user's code."""
    name: str = ""
    """Of model inputs and outputs: the path the user knows."""
    order: int = -1
    """Place in the execution order of its run."""

    @property
    def label(self) -> str:
        """The name to show."""
        text = self.name or str(self.key.op)
        if self.key.role == "output" and self.key.index:
            text += f":{self.key.index}"
        elif self.key.role == "input":
            text += f" (input {self.key.index})"
        elif self.key.role == "state":
            text += " before" if self.key.index else " after"
        part = str(self.key.part)
        return f"{text} [{part}]" if part else text


@dataclass(frozen=True, kw_only=True)
class Introduced:
    """What an op, or the region it stands for, added to the error it was given."""

    rmse: float
    psnr: float | None
    sqnr: float | None
    rel_l2: float | None
    max_abs: float | None
    expected: float | None
    """Root mean square error that the precision of the op allows."""
    ratio: float | None
    """Introduced over expected; 0 when nothing was introduced, inf when nothing is allowed."""
    preset: str
    """Precision of the op itself, which decides how much of the expected is tolerated."""
    region: tuple[str, ...] = ()
    """Reference ops that were run together, where there are several."""

    @classmethod
    def of_measurement(
        cls,
        found: Measurement,
        *,
        expected: float | None,
        ratio: float | None,
        precision: str,
        region: tuple[str, ...] = (),
    ) -> Introduced:
        """What was measured against the true values; `precision` is that of the op itself."""
        return cls(
            rmse=found.rmse or 0.0,
            psnr=found.psnr,
            sqnr=found.sqnr,
            rel_l2=found.rel_l2,
            max_abs=found.max_abs,
            expected=expected,
            ratio=ratio,
            preset="f32" if precision == "exact" else precision,
            region=region,
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """A sync point, what was measured there, and the verdict."""

    target: End
    reference: End
    evidence: str
    confidence: float
    view: str
    basis: str
    """`values`, `statistics` or `digest`; "" where nothing was measured."""
    preset: str
    """The precision that `auto` assumes here."""
    numbers: Mapping[str, Any] | None = None
    introduced: Introduced | None = None
    unknown: Reason = NO_REASON
    """Why introduced error is not known, where somebody will ask."""
    unmeasured: Reason = NO_REASON
    """Why there are no numbers; its code is one of METRICS.md."""
    output: bool = False
    """One of the model's outputs, which are judged by total error whoever is guilty."""
    first_non_finite: bool = False
    """Makes NaN or inf out of inputs that were fine, where the reference is finite."""
    ends_only: bool = False
    """Rests on the least and the greatest value of its tensors alone."""
    nearer_to_float64: bool = False
    """The target is known to be no further from float64 than the reference is."""
    verdict: Verdict = Verdict.NONE
    why: Reason = NO_REASON
    """Why the verdict is what it is; empty where there is nothing to explain."""
    introduced_verdict: Verdict = Verdict.NONE
    notes: tuple[str, ...] = field(default=())

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, as a sentence."""
        return str(self.why)

    @property
    def has_more_non_finite(self) -> bool:
        """Whether the target has NaN or inf that the reference does not have. An infinity that
        stands for a masked position on both sides is none."""
        numbers = self.numbers or {}
        return bool(numbers.get("mismatched")) and any(
            # A count of -1 is not known, but not zero.
            abs(numbers.get(f"target_{kind}") or 0) > abs(numbers.get(f"reference_{kind}") or 0)
            for kind in ("nan", "inf")
        )

    @property
    def guilty(self) -> bool:
        """Whether error is made here, as far as is known."""
        return self.introduced_verdict.severity > 0 or self.first_non_finite


def has_same_bytes(row: Row) -> bool:
    """Whether digests show that both sides of a row have the same bytes."""
    return row.basis != Kept.VALUES and bool((row.numbers or {}).get("same_bytes"))


def is_unproven(row: Row) -> bool:
    """Whether a row is close only as far as statistics tell."""
    close = row.verdict is Verdict.CLOSE
    return close and (row.ends_only or (row.basis == Kept.STATISTICS and not has_same_bytes(row)))


_RANK = {
    Verdict.LARGE: 0,
    Verdict.AMPLIFIED: 0,
    Verdict.MODERATE: 1,
    Verdict.INHERITED: 2,
    Verdict.CLOSE: 3,
    Verdict.NONE: 4,
}


def worst_first_key(row: Row, metric: str = "psnr") -> tuple[Any, ...]:
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


def is_computed(row: Row) -> bool:
    """Whether an op computed the tensor of this row, as against being given it."""
    return row.target.key.role is Role.OUTPUT
