"""What most findings say of one sync point: its op on both sides, its module, its source line."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case


def finding_at(
    case: Case,
    row: Row,
    cause: str,
    kind: str,
    title: str,
    confidence: float,
    evidence: Iterable[str] = (),
    next: str = "",
    missing: Iterable[str] = (),
    level: Level = Level.CAUSE,
) -> Finding:
    """A finding about one sync point."""
    return Finding(
        cause=cause,
        kind=kind,
        title=title,
        level=level,
        confidence=confidence,
        ops=(row.target.label,),
        reference_ops=(row.reference.label,),
        module=row.target.module or row.reference.module,
        source=row.target.source or row.reference.source,
        evidence=tuple(said for said in evidence if said),
        next=next,
        missing=tuple(missing),
        rows=(case.place[row.target.key],),
    )
