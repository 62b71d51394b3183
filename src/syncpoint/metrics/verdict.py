"""The verdicts (`Verdict`: close, moderate, large and others), codes and texts of reasons; rules
are in judge_*.py here and in comparison/judge_rows.py."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from syncpoint.errors import SyncpointError


class Verdict(StrEnum):
    """The verdict on a sync point or on a whole comparison."""

    CLOSE = "close"
    MODERATE = "moderate"
    LARGE = "large"
    INHERITED = "inherited"
    """The total error is not close, but the op only passes on the error of its inputs."""
    AMPLIFIED = "amplified"
    """A model output with a large error although no op is guilty."""
    NONE = "none"
    """Not measured; the reason says why."""

    @property
    def glyph(self) -> str:
        """The symbol: its shape shows the severity, its filling the guilt."""
        return _GLYPHS[self]

    @property
    def severity(self) -> int:
        """0 close, 1 moderate, 2 large; inherited is 0, since its guilty op counts."""
        return _SEVERITY[self]


class ReasonCode(StrEnum):
    """Why there is no verdict: a fixed code for programs."""

    NO_TARGET_VALUE = "no target value"
    NO_COUNTERPART = "no counterpart"
    AMBIGUOUS = "ambiguous"
    SHAPE = "shape"
    EMPTY = "empty"
    ALL_NAN = "all NaN on both sides"
    ALL_INFINITE = "all infinite on both sides"
    NO_FINITE = "nothing finite on both sides"
    """Every element is NaN or infinite, the same on both sides."""
    ALL_MASKED = "all masked on both sides"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    """The bytes of a side do not match their checksum."""
    RANDOM = "random"
    EXCLUDED = "excluded"
    MASKED = "masked"
    """Every position is masked, or the mask does not fit."""
    INCOMPARABLE = "incomparable"
    """The kept forms cannot be compared, such as digests of different kinds."""
    UNFINISHED = "not measured yet"
    """The comparison is not finished."""


@dataclass(frozen=True)
class Reason:
    """Why a verdict is what it is, or why there is none; `str` gives a sentence."""

    code: ReasonCode | None = None
    """The kind of reason; None if there is a verdict, which the detail explains."""
    detail: str = ""
    """The explanation in words."""
    cure: str = ""
    """What to do about it."""

    @classmethod
    def of_error(cls, code: ReasonCode | None, error: SyncpointError) -> Reason:
        """The reason with the message and the cure of an error."""
        return cls(code, error.detail, error.cure)

    def __bool__(self) -> bool:
        """Whether there is a reason."""
        return bool(self.code or self.detail)

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.code, self.detail) if part)
        return f"{text}; {self.cure}" if self.cure else text


NO_REASON = Reason()
"""The empty reason."""

_GLYPHS = {
    Verdict.CLOSE: "●",
    Verdict.MODERATE: "▲",
    Verdict.LARGE: "■",
    Verdict.INHERITED: "□",
    Verdict.AMPLIFIED: "◪",
    Verdict.NONE: "–",
}
_SEVERITY = {
    Verdict.CLOSE: 0,
    Verdict.NONE: 0,
    Verdict.INHERITED: 0,
    Verdict.MODERATE: 1,
    Verdict.LARGE: 2,
    Verdict.AMPLIFIED: 2,
}

FAILING_REASONS = frozenset({ReasonCode.DAMAGED, ReasonCode.UNREADABLE, ReasonCode.SHAPE})
"""Rows without a verdict for one of these reasons count as a divergence."""


REASON_PARTS = ("code", "detail", "cure")
"""Fields of `Reason`; the columns of a reason in the table end with them."""
