"""Data classes of a bisection's result (each cut, each first bad op, the runs), with reasons as
sentences, exit code and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics.verdict import FAILING_REASONS, Reason, Verdict


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One run of the target, cut or whole."""

    op: str
    type: str
    state: str
    psnr: float | None
    verdict: str
    why: Reason
    """Why the verdict is what it is, or why there is none."""
    model: str = ""
    """Path of the saved model; "" where it was not saved."""

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, as a sentence."""
        return str(self.why)


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The first bad op of a branch."""

    op: str
    type: str
    reference: str
    module: str
    source: str
    before: float | None
    """The worst psnr of the judged tensors nearest before it, in dB; None where there is none."""
    after: float | None
    verdict: str
    why: Reason
    """Why the verdict is what it is; empty where there is nothing to explain."""
    outputs: tuple[str, ...]
    """The bad outputs of the model that depend on it."""
    suspects: tuple[str, ...] = ()
    """Ops right before it that could not be tested: the culprit may be one of them."""
    notes: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, as a sentence."""
        return str(self.why)


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """The result of cutting the target."""

    target: str
    reference: str
    culprits: tuple[Culprit, ...]
    cuts: tuple[Cut, ...]
    """Every run of the target in order; the first is the whole model."""
    outputs: Mapping[str, str]
    """The verdict on each output of the model that has a counterpart."""
    ops: int
    notes: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> int:
        """How often the target was run."""
        return len(self.cuts)

    def exit_code(self, fail_on: str = "large") -> int:
        """0 nothing large, 1 divergence, 3 nothing to compare."""
        bad = {Verdict.LARGE, Verdict.MODERATE} if fail_on == "moderate" else {Verdict.LARGE}
        verdicts = set(self.outputs.values())
        # An output of another shape has no verdict; it diverges, as in a comparison.
        is_failing = any(culprit.why.code in FAILING_REASONS for culprit in self.culprits)
        if verdicts & bad or is_failing:
            return EXIT_DIVERGED
        is_judged = bool(verdicts) and Verdict.NONE not in verdicts
        return EXIT_CLOSE if is_judged else EXIT_UNCOVERED

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "schema": 1,
            **asdict(self),
            "culprits": [_with_reason(culprit) for culprit in self.culprits],
            "cuts": [_with_reason(cut) for cut in self.cuts],
            "runs": self.runs,
            "exit_code": self.exit_code(),
        }


def _with_reason(judged: Cut | Culprit) -> dict[str, Any]:
    """A cut or culprit as JSON, with its reason as a sentence and in parts, like the rows of a
    comparison."""
    json_fields: dict[str, Any] = {}
    for name, value in asdict(judged).items():
        if name != "why":
            json_fields[name] = value
            continue
        parts = {"code": judged.why.code, "detail": judged.why.detail, "cure": judged.why.cure}
        json_fields["reason"] = judged.reason
        json_fields |= {f"reason_{part}": text or None for part, text in parts.items()}
    return json_fields
