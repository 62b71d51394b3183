"""A comparison -> its diagnosis: the symptom, then the findings in the order to look at them."""

from __future__ import annotations

from syncpoint.comparison.findings import Diagnosis, Finding, Level, Symptom
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.registry import causes, foreign
from syncpoint.diagnosis.symptom import symptom
from syncpoint.errors import SyncpointError
from syncpoint.run.files import one_line

_ORDER = (Level.CAUSE, Level.SUSPECT, Level.NOTE)
_MOST = 12
"""Findings that are kept; who has read these has other worries than the next."""


def diagnose(case: Case) -> Diagnosis:
    """Ask every cause, and rank what they say."""
    troubles = []
    theirs = foreign()
    for cause in causes():
        try:
            case.found.extend(cause.look(case))
        except SyncpointError as error:
            troubles.append(f"{cause.title}: {error}")
        except Exception as error:
            if cause not in theirs:
                raise
            troubles.append(f"{cause.title}: {one_line(error)}")
    what, summary = symptom(case.result)
    heavy = any(f.level is Level.CAUSE for f in case.found)
    if what is Symptom.NONE and "prepared" in case.asked and heavy:
        what = Symptom.AROUND
    return Diagnosis(
        what,
        summary,
        tuple(ranked(case.found)[:_MOST]),
        tuple(dict.fromkeys(case.experiments)),
        tuple(troubles),
        tuple(sorted(case.subjects)),
        dict(case.absent),
    )


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
