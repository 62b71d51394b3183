"""What bisecting a model found, as it is reported and kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from syncpoint.errors import EXIT_CLOSE, EXIT_DIVERGED, EXIT_UNCOVERED
from syncpoint.metrics.verdict import Reason, Verdict


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
    """Where the cut model is kept."""

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
    """The worst psnr among the tensors right before it, in dB; None where none was measured."""
    after: float | None
    verdict: str
    why: Reason
    """Why the verdict is what it is; empty where there is nothing to explain."""
    outputs: tuple[str, ...]
    """The model's outputs that are bad because of it, as far as can be told."""
    suspects: tuple[str, ...] = ()
    """Ops right before it that could not be tested: it may be one of these."""
    notes: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why the verdict is what it is, as a sentence."""
        return str(self.why)


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """What was found by cutting."""

    target: str
    reference: str
    culprits: tuple[Culprit, ...]
    cuts: tuple[Cut, ...]
    """Every run of the target, in the order in which they were made; the first was whole."""
    outputs: Mapping[str, str]
    """Verdict on each of the model's outputs that has a counterpart."""
    ops: int
    notes: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> int:
        """How often the target was run."""
        return len(self.cuts)

    def exit_code(self, fail_on: str = "large") -> int:
        """0 nothing large, 1 divergence, 3 nothing to compare."""
        bad = {Verdict.LARGE, Verdict.MODERATE} if fail_on == "moderate" else {Verdict.LARGE}
        found = set(self.outputs.values())
        if found & bad:
            return EXIT_DIVERGED
        judged = bool(found) and Verdict.NONE not in found
        return EXIT_CLOSE if judged else EXIT_UNCOVERED

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": 1,
            **asdict(self),
            "culprits": [_with_reason(culprit) for culprit in self.culprits],
            "cuts": [_with_reason(cut) for cut in self.cuts],
            "runs": self.runs,
            "exit_code": self.exit_code(),
        }


def _with_reason(judged: Cut | Culprit) -> dict[str, Any]:
    """For JSON: the reason as a sentence and its parts, as the rows of a comparison have them."""
    said: dict[str, Any] = {}
    for name, value in asdict(judged).items():
        if name != "why":
            said[name] = value
            continue
        parts = {"code": judged.why.code, "detail": judged.why.detail, "cure": judged.why.cure}
        said["reason"] = judged.reason
        said |= {f"reason_{part}": text or None for part, text in parts.items()}
    return said
