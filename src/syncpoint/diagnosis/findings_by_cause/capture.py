"""Findings about faulty recordings: recording changed the run, a tensor holds other values than the
op computed, pairs are doubtful, parts are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.execution.recording_faults import (
    describe_garbage,
    describe_lone_error,
    describe_unread,
    find_holder,
    was_read,
)
from syncpoint.diagnosis.finding_text import finding_at, name_target_op, of_norm
from syncpoint.diagnosis.weights.relations import distance
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role

Values = NDArray[np.float64]

_MIN_PAIR_CONFIDENCE = 0.9
"""Pairs below this confidence rest on values or order alone."""


class Capture:
    """Recordings that do not hold what was computed."""

    name = "capture"
    title = "what was recorded is not what was computed"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield findings about whole runs, then about single tensors."""
        yield from self._report_observer_effect(case)
        yield from self._report_incomplete(case)
        if case.is_off:
            yield from self._report_tensors(case)

    def _report_observer_effect(self, case: Case) -> Iterator[Finding]:
        for side, about in (("target", case.result.target), ("reference", case.result.reference)):
            observer = about.get("observer")
            if not observer or observer.get("equal", True):
                continue
            large = any(r.verdict is Verdict.LARGE for r in case.computed)
            is_output_off = any(r.verdict.severity for r in case.result.outputs)
            level = Level.CAUSE if large else Level.SUSPECT if is_output_off else Level.NOTE
            if observer.get("explained"):
                level = Level.NOTE  # what was recorded is the model without its fused path
            yield Finding(
                cause=self.name,
                kind="observer",
                title=f"recording the {side} changed its outputs; outputs must be identical with"
                " and without recording",
                level=level,
                confidence=0.75 if case.is_off else 0.9,
                evidence=(
                    observer.get("detail")
                    or "a run of the same model without recording gives other outputs",
                ),
                next=f"record fewer tensors of the {side}, or record it with fusion=as-executed if"
                " its runtime has this option; compare again",
            )

    def _report_incomplete(self, case: Case) -> Iterator[Finding]:
        for side, about in (("target", case.result.target), ("reference", case.result.reference)):
            if about.get("complete", True):
                continue
            missing = about.get("missing") or "its end is missing"
            yield Finding(
                cause=self.name,
                kind="incomplete",
                title=f"the recording of the {side} is incomplete",
                level=Level.SUSPECT if case.is_off else Level.NOTE,
                confidence=0.4,
                evidence=(str(missing)[:150],),
                next=f"record the {side} again, to its end",
                missing=(f"a complete recording of the {side}",),
            )

    def _report_tensors(self, case: Case) -> Iterator[Finding]:
        """Yield findings about guilty tensors whose op is not to blame."""
        reported: set[object] = set()
        swapped: set[object] = set()
        for row in case.guilty[:16]:
            target, reference = case.pair(row)
            if target is None or reference is None or row.target.key in reported | swapped:
                continue
            if row.preset in ("int8", "int4"):
                # Its readers read it through integers, and those may be wrong.
                continue
            proof = describe_unread(case, row)
            other = find_holder(case, row, target)
            if other is not None:
                finding = self._report_foreign_values(case, row, other, proof)
                if finding is None:
                    continue
                swapped |= {other.target.key} if finding.kind == "names-shuffled" else set()
                reported.add(row.target.key)
                yield finding
                continue
            kind = describe_garbage(target, reference)
            if kind or proof:
                reported.add(row.target.key)
                yield self._report_buffer(case, row, kind, proof)
            elif sign := describe_lone_error(case, row):
                yield self._report_lone_error(case, row, sign)

    def _report_lone_error(self, case: Case, row: Row, sign: str) -> Finding:
        return finding_at(
            case,
            row,
            self.name,
            "alone",
            f"{name_target_op(row)} may have been recorded wrongly: it is the only tensor that"
            " differs",
            0.55,
            (sign,),
            f"record {row.target.label} again, with a copy made when it is produced; if it still"
            " differs, no recorded op reads it",
        )

    def _report_foreign_values(
        self, case: Case, row: Row, other: Row, proof: str
    ) -> Finding | None:
        """Make the finding that a tensor holds the reference's values of another sync point.

        None if two tensors hold each other's values and the ops after them read them so: then the
        values were really swapped, as two weights may be.
        """
        other_target = case.values("target", other)
        reference = case.values("reference", row)
        crossed = (
            other_target is not None
            and reference is not None
            and distance(other_target, reference) < 1e-3
        )
        if crossed and (was_read(case, row) or was_read(case, other)):
            return None
        subject, label, elsewhere = name_target_op(row), row.target.label, other.reference.label
        doubtful = row.confidence < _MIN_PAIR_CONFIDENCE
        if crossed:
            kind, confidence = "names-shuffled", 0.98
            title = f"{subject} and {other.target.label} are swapped: each holds the other's values"
            after = f"pair {label} with {elsewhere} in a map file, or correct the names in the dump"
        elif doubtful and not proof:
            kind, confidence = "pairing", 0.75
            title = (
                f"{subject} is probably paired with the wrong tensor: it equals {elsewhere} of the"
                " reference"
            )
            after = f"pair {label} with {elsewhere} in a map file and compare again"
        else:
            kind, confidence = "stale-buffer", 0.98 if proof else 0.6
            title = f"{subject} was recorded with the values of {elsewhere} instead of its own"
            after = f"record a copy of {label} when it is produced, before its buffer is reused"
        rows = [row, other] if crossed else [row]
        return finding_at(
            case,
            row,
            self.name,
            kind,
            title,
            confidence,
            (
                f"the recorded values are equal to {elsewhere} of the reference",
                f"evidence for the pair: {row.evidence} (confidence {row.confidence:.2f})"
                if doubtful
                else "",
                proof,
            ),
            after,
            ops=[r.target.label for r in rows],
            reference_ops=[r.reference.label for r in rows],
            rows=_explained(case, rows, proof or crossed),
        )

    def _report_buffer(self, case: Case, row: Row, kind: str, proof: str) -> Finding:
        label = row.target.label
        words = (
            "its buffer holds uninitialized memory"
            if kind
            else "the recording holds other values than the op computed"
        )
        return finding_at(
            case,
            row,
            self.name,
            "uninitialised" if kind else "stale-buffer",
            f"{name_target_op(row)} was recorded wrongly: {words}",
            0.98 if proof else 0.65,
            (_describe_gap(row), proof, kind),
            f"record {label} again, with a copy made when it is produced",
            rows=_explained(case, [row], proof),
        )


def _describe_gap(row: Row) -> str:
    """Describe how far the recorded values are from the reference's."""
    gap = (row.numbers or {}).get("rel_l2")
    if gap is None or not isfinite(gap):
        return ""
    return "the recorded values differ from the reference's by " + of_norm(gap, "the reference's")


def _explained(case: Case, rows: list[Row], proven: object) -> list[Row]:
    """Return the rows, and if it is proven also the readers: they seem guilty only because the
    reference's ops were run on the wrongly recorded values."""
    explained = {row.target.key: row for row in rows}
    if proven:
        ops = {row.target.key.op for row in rows}
        for other in case.guilty:
            op = case.op("target", other.target.key.op)
            if op is not None and any(e.role is Role.OUTPUT and e.op in ops for e in op.inputs):
                explained.setdefault(other.target.key, other)
    return list(explained.values())
