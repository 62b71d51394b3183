"""A comparison -> its diagnosis: the symptom, then the findings in the order to look at them."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.findings import Diagnosis, Finding, Level, Symptom, failure_line
from syncpoint.diagnosis import budget
from syncpoint.diagnosis.budget import TimeUp
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.registry import CAUSES, causes
from syncpoint.diagnosis.symptom import symptom
from syncpoint.errors import SyncpointError, describe_error

_ORDER = (Level.CAUSE, Level.SUSPECT, Level.NOTE)
_MAX_SAMPLED_CONFIDENCE = 0.85
"""Confidence of a finding that rests on a sample of a tensor: likely, never sure."""
_MEASURED = frozenset({("processing", "input")})
"""Findings that say no more than what was measured over all elements: their cause and kind."""
_NAMED = 3
"""Tensors that are named where several are too large to be read."""
_MOST = 12
"""Findings that are kept; who has read these has other worries than the next."""


def diagnose(case: Case) -> Diagnosis:
    """Ask every cause, and rank what they say. A cause that fails is a line of the diagnosis."""
    with case.budget.active():
        return _diagnosed(case)


def _diagnosed(case: Case) -> Diagnosis:
    troubles: list[str] = []
    failures: list[str] = []
    late = []
    theirs = CAUSES.plugins()
    for cause in causes():
        try:
            for finding in cause.look(case):
                case.found.append(_hedged(case, finding))
        except TimeUp:
            late.append(cause.title)
        except SyncpointError as error:
            troubles.append(f"{cause.title}: {error}")
        except Exception as error:
            if cause in theirs:
                # What another package does wrong is no failure of the diagnosis.
                troubles.append(f"{cause.title}: {describe_error(error)}")
            else:
                failures.append(failure_line(error, cause.title))
                troubles.append(failures[-1])
    troubles += _left_out(case, late)
    what, summary = symptom(case.result)
    heavy = any(f.level is Level.CAUSE for f in case.found)
    if what is Symptom.NONE and "prepared" in case.asked and heavy:
        what = Symptom.AROUND
    return Diagnosis(
        symptom=what,
        summary=summary,
        findings=tuple(ranked(case.found)[:_MOST]),
        experiments=tuple(dict.fromkeys(case.experiments)),
        troubles=tuple(troubles),
        models=tuple(sorted(case.subjects)),
        absent=dict(case.absent),
        failures=tuple(failures),
    )


def _hedged(case: Case, finding: Finding) -> Finding:
    """A finding whose sync points were looked at through a sample says so, and is not sure."""
    keys = [case.rows[row].target.key for row in finding.rows]
    words = [case.budget.samples[key] for key in keys if key in case.budget.samples]
    if not words or (finding.cause, finding.kind) in _MEASURED:
        return finding
    return replace(
        finding,
        confidence=min(finding.confidence, _MAX_SAMPLED_CONFIDENCE),
        evidence=(words[0], *finding.evidence),
    )


def _left_out(case: Case, late: list[str]) -> list[str]:
    """What the budget kept the causes from, one line for each reason."""
    lines = []
    if late:
        lines.append(
            f"time is up after {case.seconds + budget.EXTRA_SECONDS:.0f} s: {'; '.join(late)};"
            " give more with: syncpoint diagnose --seconds"
        )
    large = case.budget.too_large
    if large:
        names = ", ".join(dict.fromkeys(str(key.op) for key in list(large)[:_NAMED]))
        more = f" and {len(large) - _NAMED} more" if len(large) > _NAMED else ""
        lines.append(
            f"values of tensors above {budget.MAX_ELEMENTS:,} elements, and ops that hold more than"
            f" {budget.MAX_REGION_ELEMENTS:,}: {names}{more}"
        )
    return lines


def ranked(found: list[Finding]) -> list[Finding]:
    """The surest first. A finding all of whose sync points a surer one explains says nothing new
    and is left out; one that names no sync point speaks of the whole and stays."""
    ordered = sorted(
        found, key=lambda f: (_ORDER.index(f.level), -f.confidence, f.rows[:1] or (1 << 62,))
    )
    kept: list[Finding] = []
    explained: set[int] = set()
    for finding in ordered:
        if finding.rows and finding.level is not Level.NOTE and explained.issuperset(finding.rows):
            continue
        kept.append(finding)
        if finding.level is Level.CAUSE:
            explained.update(finding.rows)
    return kept
