"""An op that computes something else than the reference's: introduced error far beyond what its
precision allows, with what explains it where a known variant gives the target's numbers."""

from __future__ import annotations

from collections.abc import Iterable

from syncpoint.comparison.findings import Finding, Level
from syncpoint.diagnosis.case import Case


class Implementation:
    """Operator implementation difference."""

    name = "implementation"
    title = "an op is implemented differently"

    def look(self, case: Case) -> Iterable[Finding]:
        """One finding an op that makes error."""
        for row in case.guilty[:8]:
            made = row.introduced
            ratio = f"{made.ratio:,.0f} times" if made is not None and made.ratio else ""
            yield Finding(
                cause=self.name,
                kind="unexplained",
                title=f"{row.target.label} computes something else",
                level=Level.CAUSE,
                confidence=0.5,
                ops=(row.target.label,),
                reference_ops=(row.reference.label,),
                module=row.target.module or row.reference.module,
                source=row.target.source or row.reference.source,
                evidence=(f"it introduces {ratio} what its precision allows",) if ratio else (),
                next=f"compare the attributes of {row.target.type} on both sides",
                rows=(case.place[row.target.key],),
            )
