"""The tool suspects itself first: looking that changed the run, doubtful pairs, buffers that hold
something else than what was computed, runs of which a part is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.recording_faults import alone, garbage, holder, unread, was_read
from syncpoint.diagnosis.finding_text import finding_at
from syncpoint.diagnosis.weights.relations import distance
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

Values = NDArray[np.float64]

_DOUBTFUL = 0.9
"""Pairs of less confidence than this rest on values or order alone."""


class Capture:
    """Capture artefacts."""

    name = "capture"
    title = "what was recorded is not what was computed"

    def look(self, case: Case) -> Iterable[Finding]:
        """Of the runs as a whole, then of single tensors."""
        yield from self._observer(case)
        yield from self._incomplete(case)
        if case.is_off:
            yield from self._tensors(case)

    def _observer(self, case: Case) -> Iterator[Finding]:
        for side, about in (("target", case.result.target), ("reference", case.result.reference)):
            seen = about.get("observer")
            if not seen or seen.get("equal", True):
                continue
            large = any(r.verdict is Verdict.LARGE for r in case.computed)
            level = Level.CAUSE if large else Level.SUSPECT if case.is_off else Level.NOTE
            yield Finding(
                cause=self.name,
                kind="observer",
                title=f"recording the {side} changed its outputs",
                level=level,
                confidence=0.75 if case.is_off else 0.9,
                evidence=(
                    "a plain run of the same model gave other bits than the recorded one",
                    *((seen["detail"],) if seen.get("detail") else ()),
                ),
                next=f"record the {side} as executed, or fewer of its tensors, and compare again",
            )

    def _incomplete(self, case: Case) -> Iterator[Finding]:
        for side, about in (("target", case.result.target), ("reference", case.result.reference)):
            if about.get("complete", True):
                continue
            missing = about.get("missing") or "its end is not there"
            yield Finding(
                cause=self.name,
                kind="incomplete",
                title=f"the recording of the {side} is not whole",
                level=Level.SUSPECT if case.is_off else Level.NOTE,
                confidence=0.4,
                evidence=(str(missing)[:150],),
                next=f"record the {side} once more to its end",
            )

    def _tensors(self, case: Case) -> Iterator[Finding]:
        """Guilty tensors that something else than their op explains."""
        named: set[object] = set()
        swapped: set[object] = set()
        for row in case.guilty[:16]:
            ours, theirs = case.pair(row)
            if ours is None or theirs is None or row.target.key in named | swapped:
                continue
            if row.preset in ("int8", "int4"):
                # What reads it reads it through integers, and those may be what is wrong.
                continue
            proof = unread(case, row)
            other = holder(case, row, ours)
            if other is not None:
                found = self._held(case, row, other, proof)
                if found is None:
                    continue
                swapped |= {other.target.key} if found.kind == "names-shuffled" else set()
                named.add(row.target.key)
                yield found
                continue
            kind = garbage(ours, theirs)
            if kind or proof:
                named.add(row.target.key)
                yield self._buffer(case, row, kind, proof)
            elif sign := alone(case, row):
                yield self._alone(case, row, sign)

    def _alone(self, case: Case, row: Row, sign: str) -> Finding:
        return finding_at(
            case,
            row,
            self.name,
            "alone",
            f"{row.target.label} may have been recorded wrongly: nothing after it is off",
            0.55,
            (sign,),
            f"record {row.target.label} again, copied when it is produced; if it stays as it is,"
            " nothing that was recorded reads it",
        )

    def _held(self, case: Case, row: Row, other: Row, proof: str) -> Finding | None:
        """The target's tensor is what the reference has at another sync point. None where two have
        each other's and what follows read them so: then they were exchanged in truth, as two
        weights may be."""
        theirs = case.values("target", other)
        wanted = case.values("reference", row)
        crossed = theirs is not None and wanted is not None and distance(theirs, wanted) < 1e-3
        if crossed and (was_read(case, row) or was_read(case, other)):
            return None
        label, elsewhere = row.target.label, other.reference.label
        doubtful = row.confidence < _DOUBTFUL
        if crossed:
            kind, confidence = "names-shuffled", 0.98
            title = f"{label} and {other.target.label} hold each other's values"
            after = f"pair {label} with {elsewhere} in a map file, or mend the names of the dump"
        elif doubtful and not proof:
            kind, confidence = "pairing", 0.75
            title = f"{label} is likely paired with the wrong tensor: it equals {elsewhere}"
            after = f"pair {label} with {elsewhere} in a map file and compare again"
        else:
            kind, confidence = "stale-buffer", 0.98 if proof else 0.6
            title = f"{label} was recorded with the values of {elsewhere}"
            after = f"copy {label} when it is produced, before its buffer is used again"
        rows = [row, other] if crossed else [row]
        return finding_at(
            case,
            row,
            self.name,
            kind,
            title,
            confidence,
            (
                f"its values are those of the reference's {elsewhere}",
                f"the pair rests on: {row.evidence} ({row.confidence:.2f})" if doubtful else "",
                proof,
            ),
            after,
            ops=[r.target.label for r in rows],
            reference_ops=[r.reference.label for r in rows],
            rows=_explained(case, rows, proof or crossed),
        )

    def _buffer(self, case: Case, row: Row, kind: str, proof: str) -> Finding:
        label = row.target.label
        words = "holds what no op gives" if kind else "is not what its readers read"
        return finding_at(
            case,
            row,
            self.name,
            "uninitialised" if kind else "stale-buffer",
            f"{label} was recorded wrongly: it {words}",
            0.98 if proof else 0.65,
            (proof, kind),
            f"record {label} again, copied when it is produced",
            rows=_explained(case, [row], proof),
        )


def _explained(case: Case, rows: list[Row], proven: object) -> list[Row]:
    """The rows, and where it is proven also the ops that seem guilty only because the wrong
    values were fed to the reference's."""
    explained = {row.target.key: row for row in rows}
    if proven:
        ops = {row.target.key.op for row in rows}
        for other in case.guilty:
            op = case.op("target", other.target.key.op)
            if op is not None and any(e.role is Role.OUTPUT and e.op in ops for e in op.inputs):
                explained.setdefault(other.target.key, other)
    return list(explained.values())
