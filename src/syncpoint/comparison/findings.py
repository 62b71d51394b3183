"""Data classes of a diagnosis as a comparison stores it: symptom, findings with level and evidence,
failures, their JSON and text.

`syncpoint.diagnosis` computes them, the reports show them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from syncpoint.errors import describe_error

NOT_DIAGNOSED = "not diagnosed: causes were not searched"
"""Text in reports of a comparison without a diagnosis."""
_FAILED = "diagnosis failed: "
"""Start of the line about a failed diagnosis, in `Diagnosis.troubles` and in every report."""


def failure_line(error: Exception, cause: str = "") -> str:
    """The line in reports about a failed diagnosis: the error, and the cause that was checked."""
    name, text = type(error).__name__, describe_error(error)
    message = text if text.startswith(name) else f"{name}: {text}"
    if isinstance(error, MemoryError):
        message = "out of memory"
    return f"{_FAILED}{cause}: {message}" if cause else f"{_FAILED}{message}"


class Level(StrEnum):
    """How important a finding is."""

    CAUSE = "cause"
    """Explains an observed error."""
    SUSPECT = "suspect"
    """May explain an observed error; `missing` names the experiments that would prove it."""
    NOTE = "note"
    """Worth knowing, but not an error."""


class Symptom(StrEnum):
    """What the user observes."""

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
    """The kind within the class, for programs: `bias-missing`, `gelu-tanh`."""
    title: str
    """One line: the op, what it does wrong, what it should do."""
    level: Level
    confidence: float
    """From 0 to 1; 0.9 or more if the cause reproduces the numbers of the target."""
    ops: tuple[str, ...] = ()
    """Labels of the target ops, the most important first."""
    reference_ops: tuple[str, ...] = ()
    module: str = ""
    """The module that the ops share."""
    source: str = ""
    """`file.py:12`"""
    evidence: tuple[str, ...] = ()
    """Sentences with numbers."""
    next: str = ""
    """The next step for the user."""
    missing: tuple[str, ...] = ()
    """Experiments that would raise the confidence but could not be run, with what they need."""
    rows: tuple[int, ...] = ()
    """Indices of the sync points that it explains."""

    @property
    def text(self) -> str:
        """Title and evidence in one paragraph."""
        return ". ".join((self.title, *self.evidence)) + "."

    @property
    def certainty(self) -> str:
        """The confidence in one word."""
        if self.confidence >= 0.9:
            return "sure"
        return "likely" if self.confidence >= 0.6 else "possible"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the form of INTERFACE.md."""
        return {**asdict(self), "text": self.text}

    @classmethod
    def of_dict(cls, document: Mapping[str, Any]) -> Finding:
        """Read a finding; unknown keys of newer versions are ignored."""
        fields: dict[str, Any] = {k: document[k] for k in cls.__dataclass_fields__ if k in document}
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = tuple(value)
        return cls(**{**fields, "level": Level(fields["level"])})


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The symptom, and the findings, the most important first."""

    symptom: Symptom
    summary: str
    """The symptom with its numbers, in one sentence."""
    findings: tuple[Finding, ...] = ()
    experiments: tuple[str, ...] = ()
    """Experiments that were run."""
    troubles: tuple[str, ...] = field(default=())
    """What could not be examined, and why; includes the lines of `failures`."""
    models: tuple[str, ...] = ()
    """Sides whose models could be run again."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Sides whose run could not be read, with the reason."""
    failures: tuple[str, ...] = ()
    """The troubles that say that the diagnosis, or a part of it, failed."""

    @property
    def trouble_lines(self) -> list[str]:
        """The troubles as lines of a report."""
        return [
            text if text in self.failures else f"not examined: {text}" for text in self.troubles
        ]

    @property
    def has_failed(self) -> bool:
        """Whether the diagnosis, or a part of it, failed."""
        return bool(self.failures)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the findings, which are stored beside it."""
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
    def of_dict(cls, document: Mapping[str, Any], findings: list[Mapping[str, Any]]) -> Diagnosis:
        """Read a diagnosis and its findings."""
        return cls(
            symptom=Symptom(document["symptom"]),
            summary=str(document["summary"]),
            findings=tuple(Finding.of_dict(finding) for finding in findings),
            experiments=tuple(document["experiments"]),
            troubles=tuple(document["troubles"]),
            models=tuple(document["models"]),
            absent=dict(document.get("absent", {})),
            failures=tuple(document["failures"]),
        )
