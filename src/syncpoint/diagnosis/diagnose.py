"""Run all causes on a comparison, lower the confidence of doubtful or sampled findings, rank them;
list causes that failed or skipped large tensors."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.consequence import is_doubtful
from syncpoint.comparison.findings import Diagnosis, Finding, Level, Symptom, failure_line
from syncpoint.diagnosis import budget
from syncpoint.diagnosis.budget import TimeUp
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.registry import CAUSES, causes
from syncpoint.diagnosis.symptom import describe_symptom
from syncpoint.errors import SyncpointError, describe_error

_LEVEL_ORDER = (Level.CAUSE, Level.SUSPECT, Level.NOTE)
_MAX_SAMPLED_CONFIDENCE = 0.85
"""Maximum confidence of a finding that rests on a sample of a tensor."""
_FULLY_MEASURED = frozenset({("processing", "input")})
"""Cause and kind of findings that rest on measurements over all elements."""
_MAX_NAMED_TENSORS = 3
"""Maximum number of too large tensors to name."""
_MAX_FINDINGS = 12
"""Maximum number of findings to keep."""
_MAX_DOUBTFUL_CONFIDENCE = 0.5
"""Confidence of a finding that rests on pairs which their readers contradict."""


def diagnose(case: Case) -> Diagnosis:
    """Ask every cause and rank the findings. A cause that fails becomes a line of the diagnosis."""
    with case.budget.active():
        return _run_causes(case)


def _run_causes(case: Case) -> Diagnosis:
    troubles: list[str] = []
    failures: list[str] = []
    timed_out = []
    plugins = CAUSES.plugins()
    for cause in causes():
        try:
            for finding in cause.look(case):
                weighed = _weigh_consequence(case, finding)
                case.findings.append(_limit_confidence(case, weighed))
        except TimeUp:
            timed_out.append(cause.title)
        except SyncpointError as error:
            troubles.append(f"{cause.title}: {error}")
        except Exception as error:
            if cause in plugins:
                # An error of another package is no failure of the diagnosis.
                troubles.append(f"{cause.title}: {describe_error(error)}")
            else:
                failures.append(failure_line(error, cause.title))
                troubles.append(failures[-1])
    troubles += _list_skipped(case, timed_out)
    what, summary = describe_symptom(case.result)
    has_cause = any(f.level is Level.CAUSE for f in case.findings)
    if what is Symptom.NONE and "prepared" in case.extras and has_cause:
        what = Symptom.AROUND
    return Diagnosis(
        symptom=what,
        summary=summary,
        findings=tuple(rank_findings(case.findings)[:_MAX_FINDINGS]),
        experiments=tuple(dict.fromkeys(case.experiments)),
        troubles=tuple(troubles),
        models=tuple(sorted(case.subjects)),
        absent=dict(case.absent),
        failures=tuple(failures),
    )


def _weigh_consequence(case: Case, finding: Finding) -> Finding:
    """Return the finding as possible only if the readers of all its sync points contradict their
    pairs. It is a note if the outputs agree."""
    rows = [case.rows[row] for row in finding.rows]
    if not rows or not all(is_doubtful(row) for row in rows):
        return finding
    is_wrong = any(row.output and row.verdict.severity for row in case.rows)
    return replace(
        finding,
        level=max(finding.level, Level.SUSPECT if is_wrong else Level.NOTE, key=_LEVEL_ORDER.index),
        confidence=min(finding.confidence, _MAX_DOUBTFUL_CONFIDENCE),
        evidence=(*finding.evidence, "everything computed from it agrees on this input"),
    )


def _limit_confidence(case: Case, finding: Finding) -> Finding:
    """Return the finding with lower confidence if its tensors were only sampled."""
    keys = [case.rows[row].target.key for row in finding.rows]
    samples = [case.budget.samples[key] for key in keys if key in case.budget.samples]
    if not samples or (finding.cause, finding.kind) in _FULLY_MEASURED:
        return finding
    return replace(
        finding,
        confidence=min(finding.confidence, _MAX_SAMPLED_CONFIDENCE),
        evidence=(samples[0], *finding.evidence),
    )


def _list_skipped(case: Case, timed_out: list[str]) -> list[str]:
    """List what the causes skipped because of the budget, one line for each reason."""
    lines = []
    if timed_out:
        lines.append(
            f"time limit of {case.seconds + budget.EXTRA_SECONDS:.0f} s reached:"
            f" {'; '.join(timed_out)}; give more time with: syncpoint diagnose --seconds"
        )
    large = case.budget.too_large
    if large:
        names = ", ".join(dict.fromkeys(str(key.op) for key in list(large)[:_MAX_NAMED_TENSORS]))
        more = (
            f" and {len(large) - _MAX_NAMED_TENSORS} more"
            if len(large) > _MAX_NAMED_TENSORS
            else ""
        )
        lines.append(
            f"values of tensors above {budget.MAX_ELEMENTS:,} elements, and ops with more than"
            f" {budget.MAX_REGION_ELEMENTS:,}: {names}{more}"
        )
    return lines


def rank_findings(findings: list[Finding]) -> list[Finding]:
    """Return the findings, the most confident first.

    A finding is dropped if a more confident one explains all of its sync points. One without sync
    points is about the whole run and stays.
    """
    ordered = sorted(
        findings,
        key=lambda f: (_LEVEL_ORDER.index(f.level), -f.confidence, f.rows[:1] or (1 << 62,)),
    )
    ranked: list[Finding] = []
    explained: set[int] = set()
    for finding in ordered:
        if finding.rows and finding.level is not Level.NOTE and explained.issuperset(finding.rows):
            continue
        ranked.append(finding)
        if finding.level is Level.CAUSE:
            explained.update(finding.rows)
    return ranked
