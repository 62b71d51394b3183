"""Compares a case and holds what the diagnosis says against what was planted."""

from dataclasses import asdict, dataclass
from time import monotonic

import syncpoint as sp
from syncpoint.comparison.findings import Level
from syncpoint.run.model import Role
from zoo.programs import OUTPUT


@dataclass
class Outcome:
    """What became of one case."""

    entry: str
    seed: int
    classes: tuple[str, ...]
    """The right answers; none for a clean pair."""
    runtime: str = ""
    dtype: str = ""
    fusion: str = ""
    net: str = ""
    planted: str = ""
    sites: tuple[str, ...] = ()
    unfit: int = 0
    too_small: int = 0
    too_coarse: int = 0
    right_class: bool = False
    right_op: bool = False
    counts_op: bool = True
    said: str = ""
    """The first finding in words; what went wrong where there is none."""
    others: tuple[str, ...] = ()
    verdict: str = ""
    symptom: str = ""
    seconds: float = 0.0
    error: str = ""
    findings: tuple[dict[str, object], ...] = ()
    """Every finding: cause, kind, level, op, title, evidence, next step."""

    def as_dict(self):
        return asdict(self)


def judged(outcome, work):
    """The outcome with what the diagnosis says of the case."""
    begun = monotonic()
    comparison = compared(work)
    outcome.seconds = round(monotonic() - begun, 1)
    outcome.verdict = str(comparison.verdict)
    diagnosis = comparison.diagnosis
    if diagnosis is not None and diagnosis.has_failed:
        raise RuntimeError("; ".join(diagnosis.troubles))
    outcome.symptom = str(diagnosis.symptom) if diagnosis else ""
    outcome.findings = tuple(_texts(f) for f in comparison.findings)
    heavy = [f for f in comparison.findings if f.level is not Level.NOTE]
    outcome.others = tuple(_words(f) for f in comparison.findings[1:5])
    if not outcome.classes:
        outcome.right_class = outcome.right_op = not heavy
        outcome.said = _words(heavy[0]) if heavy else "nothing above note"
        return outcome
    first = comparison.findings[0] if comparison.findings else None
    if first is None or first.level is Level.NOTE:
        outcome.said = f"nothing; {_words(first)}" if first else "nothing"
        return outcome
    outcome.said = _words(first)
    outcome.right_class = first.cause in outcome.classes
    outcome.right_op = not outcome.counts_op or bool(blamed(comparison, first) & set(outcome.sites))
    return outcome


def compared(work):
    """Target against reference, both at hand where they are models."""
    return sp.compare(
        work.target,
        work.net.model,
        inputs=work.net.inputs,
        target_options=work.options,
        reference_options=work.reference_options,
    )


def blamed(comparison, finding):
    """Reference ops and parameters that a finding points at first, a fused group as a whole."""
    names = {*finding.ops[:1], *finding.reference_ops[:1]}
    rows = [comparison.rows[at] for at in finding.rows[:1]]
    rows += [row for row in comparison.rows if finding.ops and row.target.label == finding.ops[0]]
    for row in rows:
        names |= {row.reference.label, str(row.reference.key.op)}
        if row.output or row.reference.key.role is Role.MODEL_OUTPUT:
            names.add(OUTPUT)
        if row.introduced is not None:
            names.update(row.introduced.region)
    return names


def _texts(finding):
    return {
        "cause": finding.cause,
        "kind": finding.kind,
        "level": str(finding.level),
        "ops": list(finding.ops[:2]),
        "module": finding.module,
        "source": finding.source,
        "title": finding.title,
        "evidence": list(finding.evidence),
        "next": finding.next,
        "missing": list(finding.missing),
    }


def _words(finding):
    where = ", ".join(finding.ops[:2])
    sure = f"{finding.level} {finding.confidence:.2f}"
    return f"{finding.cause}/{finding.kind} at {where or 'no op'} ({sure}): {finding.title}"
