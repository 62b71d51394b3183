"""What a diagnosis found, as it is kept with the comparison.

The data alone: how it is found is the business of `syncpoint.diagnosis`, how it is shown that of
the reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from syncpoint.errors import describe_error

NOT_DIAGNOSED = "not diagnosed: nobody looked for causes"
"""What reports say of a comparison without a diagnosis."""
_FAILED = "diagnosis failed: "
"""How a line about a diagnosis that failed begins, in `Diagnosis.troubles` and in every report."""


def failure_line(error: Exception, cause: str = "") -> str:
    """The line of the report that says why there is no diagnosis, or not all of it: what went
    wrong, and while which cause was looked for."""
    name, text = type(error).__name__, describe_error(error)
    words = text if text.startswith(name) else f"{name}: {text}"
    if isinstance(error, MemoryError):
        words = "out of memory"
    return f"{_FAILED}{cause}: {words}" if cause else f"{_FAILED}{words}"


class Level(StrEnum):
    """How much a finding weighs."""

    CAUSE = "cause"
    """Explains an error that is there."""
    SUSPECT = "suspect"
    """May explain one; what would prove it is named."""
    NOTE = "note"
    """Worth knowing, and no reason to stop."""


class Symptom(StrEnum):
    """What the person who asks sees."""

    GREATLY = "the output differs greatly"
    SLIGHTLY = "the output differs slightly"
    INSIDE = "the output agrees, what is inside does not"
    AROUND = "the models agree, what is done around them does not"
    UPGRADE = "the output differs after a change of environment"
    PARTLY = "what could be compared agrees, not all could"
    NONE = "nothing differs"
    UNKNOWN = "no output was compared"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One diagnosed cause, with its evidence and what to do about it."""

    cause: str
    """The class of cause: `overflow`, `implementation`, `weights` ..."""
    kind: str
    """Which of that class, for programs: `bias-missing`, `gelu-tanh`."""
    title: str
    """One line that names the op and what happened to it."""
    level: Level
    confidence: float
    """From 0 to 1: 0.9 and more where the cause gives the target's very numbers."""
    ops: tuple[str, ...] = ()
    """Labels of the target's ops, the one to look at first in front."""
    reference_ops: tuple[str, ...] = ()
    module: str = ""
    """The module that the ops share."""
    source: str = ""
    """`file.py:12`"""
    evidence: tuple[str, ...] = ()
    """Sentences with numbers in them."""
    next: str = ""
    """What to do now."""
    missing: tuple[str, ...] = ()
    """Experiments that would make it surer and could not be run, with what they need."""
    rows: tuple[int, ...] = ()
    """The sync points that it explains, by their place in the comparison."""

    @property
    def text(self) -> str:
        """Title and evidence in one paragraph."""
        return ". ".join((self.title, *self.evidence)) + "."

    @property
    def certainty(self) -> str:
        """The confidence in a word."""
        if self.confidence >= 0.9:
            return "sure"
        return "likely" if self.confidence >= 0.6 else "possible"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the form of INTERFACE.md."""
        return {**asdict(self), "text": self.text}

    @classmethod
    def of_dict(cls, said: Mapping[str, Any]) -> Finding:
        """Read back; keys that are not known are those of a newer version."""
        known: dict[str, Any] = {k: said[k] for k in cls.__dataclass_fields__ if k in said}
        for name, value in known.items():
            if isinstance(value, list):
                known[name] = tuple(value)
        return cls(**{**known, "level": Level(known["level"])})


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The symptom, and the findings in the order in which to look at them."""

    symptom: Symptom
    summary: str
    """What is known of the symptom in one sentence."""
    findings: tuple[Finding, ...] = ()
    experiments: tuple[str, ...] = ()
    """What was run to find out."""
    troubles: tuple[str, ...] = field(default=())
    """What could not be looked at, and why; where the diagnosis failed, the lines of `failures`."""
    models: tuple[str, ...] = ()
    """The sides whose models could be run again."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Side -> why its run could not be read, where it was not at hand."""
    failures: tuple[str, ...] = ()
    """Those of the troubles that say that the diagnosis, or a part of it, failed."""

    @property
    def trouble_lines(self) -> list[str]:
        """The troubles as lines of a report."""
        return [
            text if text in self.failures else f"not looked at: {text}" for text in self.troubles
        ]

    @property
    def has_failed(self) -> bool:
        """Whether it failed, or a part of it did."""
        return bool(self.failures)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the findings are kept beside it."""
        return {
            "symptom": self.symptom.value,
            "summary": self.summary,
            "experiments": list(self.experiments),
            "troubles": list(self.troubles),
            "failures": list(self.failures),
            "models": list(self.models),
            "absent": dict(self.absent),
        }

    @classmethod
    def of_dict(cls, said: Mapping[str, Any], findings: list[Mapping[str, Any]]) -> Diagnosis:
        """Read back."""
        return cls(
            symptom=Symptom(said["symptom"]),
            summary=str(said["summary"]),
            findings=tuple(Finding.of_dict(one) for one in findings),
            experiments=tuple(said["experiments"]),
            troubles=tuple(said["troubles"]),
            models=tuple(said["models"]),
            absent=dict(said.get("absent", {})),
            failures=tuple(said["failures"]),
        )
