"""The text of findings: what they say of one sync point, and how they write numbers."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row

if TYPE_CHECKING:
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
    *,
    ops: Iterable[str] | None = None,
    reference_ops: Iterable[str] | None = None,
    rows: Iterable[Row] | None = None,
) -> Finding:
    """A finding about one sync point; its ops and rows are those of the sync point by default."""
    return Finding(
        cause=cause,
        kind=kind,
        title=title,
        level=level,
        confidence=confidence,
        ops=(row.target.label,) if ops is None else tuple(ops),
        reference_ops=(row.reference.label,) if reference_ops is None else tuple(reference_ops),
        module=row.target.module or row.reference.module,
        source=row.target.source or row.reference.source,
        evidence=tuple(said for said in evidence if said),
        next=next,
        missing=tuple(missing),
        rows=tuple(case.place[r.target.key] for r in rows or (row,)),
    )


def number(value: float) -> str:
    """Three digits, and separators where it is long."""
    size = abs(value)
    if size == inf or value != value:
        return str(value)
    if size and (size >= 1e7 or size < 1e-3):
        return f"{value:.2e}"
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"


def share(count: float, total: float) -> str:
    """A part of a whole in percent; a small one is never 0."""
    percent = 100 * count / total if total else 0.0
    if count and percent < 0.1:
        return f"{percent:.1g} %"
    return f"{percent:.1f} %" if percent < 99.95 or count == total else "99.9 %"


def of_norm(ratio: float, whose: str = "its") -> str:
    """How large something is beside a norm."""
    return f"{ratio:.2%} of {whose} norm" if ratio < 2 else f"{number(ratio)} times {whose} norm"
