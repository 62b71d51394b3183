"""The words of a judgement: how bad, and where there is no verdict, why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from syncpoint.errors import SyncpointError


class Verdict(StrEnum):
    """How bad one sync point, or a whole comparison, is."""

    CLOSE = "close"
    MODERATE = "moderate"
    LARGE = "large"
    INHERITED = "inherited"
    """Off, but this op only passed on what it was given."""
    AMPLIFIED = "amplified"
    """A model output that is off although no op is guilty."""
    NONE = "none"
    """Not measured; the reason says why."""

    @property
    def glyph(self) -> str:
        """Shape says how bad, filling says whose fault; colour only repeats it."""
        return _GLYPHS[self]

    @property
    def severity(self) -> int:
        """0 close, 1 moderate, 2 large; what is passed on counts with its guilty op."""
        return _SEVERITY[self]


class ReasonCode(StrEnum):
    """Why there is no verdict, in one word for programs."""

    NO_TARGET_VALUE = "no target value"
    NO_COUNTERPART = "no counterpart"
    AMBIGUOUS = "ambiguous"
    SHAPE = "shape"
    EMPTY = "empty"
    ALL_NAN = "all NaN on both sides"
    ALL_INFINITE = "all infinite on both sides"
    NO_FINITE = "nothing finite on both sides"
    """NaN here and infinite there, in the same places of both."""
    ALL_MASKED = "all masked on both sides"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"
    """The bytes of a side are not those that its checksum was taken of."""
    RANDOM = "random"
    EXCLUDED = "excluded"
    MASKED = "masked"
    """Every position is masked, or a mask cannot be laid over it."""
    INCOMPARABLE = "incomparable"
    """What was kept of the two says nothing of each other, as digests of unlike kind."""
    UNFINISHED = "not measured yet"
    """In a comparison that is looked at before it is finished."""


@dataclass(frozen=True)
class Reason:
    """Why a verdict is what it is, or why there is none; `str` renders it as a sentence."""

    code: ReasonCode | None = None
    """The kind of reason; None where there is a verdict, which the detail explains."""
    detail: str = ""
    """What was found, in words."""
    cure: str = ""
    """What to do about it."""

    @classmethod
    def of_error(cls, code: ReasonCode | None, error: SyncpointError) -> Reason:
        """The reason that an error is, with the cure that it names."""
        return cls(code, error.detail, error.cure)

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.code or self.detail)

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.code, self.detail) if part)
        return f"{text}; {self.cure}" if self.cure else text


NO_REASON = Reason()
"""Nothing to explain."""

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
"""No verdict for these reasons is a divergence all the same."""


REASON_PARTS = ("code", "detail", "cure")
"""Ends of the names of the columns that hold the parts of a reason."""
