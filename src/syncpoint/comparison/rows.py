"""Data classes of one row: both ends of a sync point, its numbers, its introduced error and its
verdict; sort key, worst first; computes no numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syncpoint.metrics import Measurement
from syncpoint.metrics.verdict import FAILING_REASONS, NO_REASON, Reason, Verdict
from syncpoint.run.model import Role, TensorKey


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of a sync point: its tensor, its op and where to find it."""

    key: TensorKey
    type: str
    dtype: str
    shape: tuple[int, ...]
    module: str = ""
    source: str = ""
    """`file.py:12`: the innermost line of the user's code."""
    name: str = ""
    """Name of a model input or output, as the user knows it."""
    order: int = -1
    """Position in the execution order of its run."""

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
    """The error that an op, or the region it belongs to, adds to the error of its inputs."""

    rmse: float
    psnr: float | None
    sqnr: float | None
    rel_l2: float | None
    max_abs: float | None
    expected: float | None
    """Root mean square error that the precision of the op allows."""
    ratio: float | None
    """Introduced / expected; 0 if nothing was introduced, inf if nothing is allowed."""
    preset: str
    """Precision of the op itself, which decides the limits of the ratio."""
    region: tuple[str, ...] = ()
    """Reference ops that were run together, if there are several."""
    terms_error: float | None = None
    """Total error relative to the terms that the op adds up; None unless they cancel."""

    @classmethod
    def of_measurement(
        cls,
        measurement: Measurement,
        *,
        expected: float | None,
        ratio: float | None,
        precision: str,
        region: tuple[str, ...] = (),
    ) -> Introduced:
        """The record of a measurement against the true values; `precision` is that of the op."""
        return cls(
            rmse=measurement.rmse or 0.0,
            psnr=measurement.psnr,
            sqnr=measurement.sqnr,
            rel_l2=measurement.rel_l2,
            max_abs=measurement.max_abs,
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
    """Why introduced error is unknown, where it could be expected."""
    unmeasured: Reason = NO_REASON
    """Why there are no numbers; its code is one of METRICS.md."""
    output: bool = False
    """Whether it is a model output; these are always judged by total error."""
    first_non_finite: bool = False
    """Whether its op turns finite inputs into NaN or inf where the reference is finite."""
    ends_only: bool = False
    """Whether only the minimum and the maximum of its tensors are known."""
    nearer_to_float64: bool = False
    """Whether the target is known to be at least as close to float64 as the reference."""
    verdict: Verdict = Verdict.NONE
    why: Reason = NO_REASON
    """The reason of the verdict; empty where there is nothing to explain."""
    introduced_verdict: Verdict = Verdict.NONE
    notes: tuple[str, ...] = field(default=())

    @property
    def reason(self) -> str:
        """The reason of the verdict as a sentence."""
        return str(self.why)

    @property
    def has_more_non_finite(self) -> bool:
        """Whether the target has NaN or inf that the reference lacks.

        Infinities at positions that are masked on both sides do not count.
        """
        numbers = self.numbers or {}
        return bool(numbers.get("mismatched")) and any(
            # A count of -1 means unknown, but not zero.
            abs(numbers.get(f"target_{kind}") or 0) > abs(numbers.get(f"reference_{kind}") or 0)
            for kind in ("nan", "inf")
        )

    @property
    def guilty(self) -> bool:
        """Whether the op is known to introduce an error."""
        return self.introduced_verdict.severity > 0 or self.first_non_finite


_VERDICT_RANK = {
    Verdict.LARGE: 0,
    Verdict.AMPLIFIED: 0,
    Verdict.MODERATE: 1,
    Verdict.INHERITED: 2,
    Verdict.CLOSE: 3,
    Verdict.NONE: 4,
}


def worst_first_key(row: Row, metric: str = "psnr") -> tuple[Any, ...]:
    """Sort key, worst rows first: failed rows, then by verdict, guilt and metric."""
    from syncpoint.metrics import CATALOGUE

    failing = row.verdict is Verdict.NONE and row.why.code in FAILING_REASONS
    value = (row.numbers or {}).get(metric)
    direction = CATALOGUE[metric].better if metric in CATALOGUE else None
    if value is None or value != value:
        value = float("inf")
    elif direction == "one":
        value = -abs(value - 1)
    elif direction != "higher":
        value = -value
    return (-1 if failing else _VERDICT_RANK[row.verdict], not row.guilty, value, row.target.order)


def is_computed(row: Row) -> bool:
    """Whether the tensor of this row is the output of an op."""
    return row.target.key.role is Role.OUTPUT
