"""Ops that are right one by one and wrong together: what a runtime fused, run unfused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import inf

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.unfused_target import (
    can_be_unfused,
    counterpart,
    culprit,
    fusing_runtime,
    unfused,
    unfused_run,
)
from syncpoint.diagnosis.finding_text import number
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Role, TensorKey
from syncpoint.run.reader import Run

_MOST = 8
_DOMAINS = ("com.microsoft.",)
"""Of ops that a converter or optimizer put in place of several."""
_FUSED = ("fused", "skip", "bias", "embed", "attention", "quick", "fast")
_NEAR = 0.1
"""Unfused, at most this much of the error may be left."""


class Fusion:
    """Fusion."""

    name = "fusion"
    title = "ops that were fused compute something else than one by one"

    def look(self, case: Case) -> Iterable[Finding]:
        """One finding a fused op that is guilty as executed and right unfused."""
        if case.sure:
            return
        rows = [row for row in case.guilty if row.target.key.role is Role.OUTPUT][:_MOST]
        found = unfused(case) if rows and can_be_unfused(case) else None
        told: dict[TensorKey, Finding] = {}
        stays = found is not None and _stays(case, found)
        for row in rows:
            if found is None:
                if can_be_unfused(case) and _region(case, row):
                    yield self._suspected(case, row)
                elif not can_be_unfused(case) and _is_fused_by_converter(row):
                    yield self._converted(case, row)
                continue
            to_blame = culprit(found, row)
            alone = counterpart(found, row)
            if to_blame is not None and _is_fused_by_converter(to_blame):
                # It is fused in the file already.
                key = to_blame.target.key
                joined = self._joined(told.get(key), self._converted(case, row), to_blame)
                if _has_same_parameters(unfused_run(case), found.rows, to_blame):
                    joined = replace(joined, confidence=0.98)
                told[key] = joined
            elif to_blame is None and alone is not None and _is_right(row, alone) and not stays:
                yield self._proven(case, row, alone)
        yield from told.values()

    def _joined(self, known: Finding | None, new: Finding, to_blame: Row) -> Finding:
        """One finding for all rows that an op of the file is behind."""
        region = to_blame.introduced.region if to_blame.introduced is not None else ()
        first = known or replace(
            new,
            title=f"{to_blame.target.label} is fused, and computes something else than its parts",
            evidence=(
                f"{to_blame.target.type} stands for {', '.join(region) or new.reference_ops[0]}",
                *new.evidence[-1:],
            ),
        )
        return replace(
            first,
            confidence=max(first.confidence, new.confidence),
            ops=tuple(dict.fromkeys((*first.ops, *new.ops, to_blame.target.label))),
            reference_ops=tuple(
                dict.fromkeys((*region, to_blame.reference.label, *first.reference_ops))
            ),
            rows=tuple(dict.fromkeys((*first.rows, *new.rows))),
            next=f"compare the attributes of {to_blame.target.type} with the ops it stands for,"
            " or convert without this fusion",
        )

    def _proven(self, case: Case, row: Row, alone: Row) -> Finding:
        before, after = row.introduced, alone.introduced
        told = f"op by op, {alone.target.label} is {alone.verdict} at the same place"
        if before is not None and after is not None:
            told = (
                f"op by op it introduces {number(after.rmse)} at the same place, as executed"
                f" {number(before.rmse)}"
            )
        runtime = fusing_runtime(case)
        advice = runtime.fusion_advice if runtime is not None else ""
        return self._finding(case, row, "fused", 0.93, Level.CAUSE, (told,), advice)

    def _suspected(self, case: Case, row: Row) -> Finding:
        return self._finding(
            case,
            row,
            "fused",
            0.4,
            Level.SUSPECT if row.verdict.severity else Level.NOTE,
            (),
            "compare the target op by op with the reference",
            ("the target run op by op: name its model",),
        )

    def _converted(self, case: Case, row: Row) -> Finding:
        """The model itself has the fused op: the reference's ops on its inputs are right."""
        said = "the ops that it stands for, run in float64 on its own inputs, give other numbers"
        return self._finding(
            case,
            row,
            "converted",
            0.98 if _has_same_parameters(case.target, case.rows, row) else 0.7,
            Level.CAUSE,
            (said,),
            f"compare the attributes of {row.target.type} with the ops it stands for, or convert"
            " without this fusion",
        )

    def _finding(
        self,
        case: Case,
        row: Row,
        kind: str,
        confidence: float,
        level: Level,
        evidence: Iterable[str],
        next: str,
        missing: tuple[str, ...] = (),
    ) -> Finding:
        region = _region(case, row)
        said = [f"{row.target.type} stands for {', '.join(region)}"] if region else []
        if row.introduced is not None and row.introduced.ratio:
            said.append(f"it introduces {number(row.introduced.ratio)} times what is allowed")
        return Finding(
            cause=self.name,
            kind=kind,
            title=f"{row.target.label} is fused, and computes something else than its parts",
            level=level,
            confidence=confidence,
            ops=(row.target.label,),
            reference_ops=tuple(dict.fromkeys((row.reference.label, *region))),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=(*said, *evidence),
            next=next,
            missing=missing,
            rows=(case.place[row.target.key],),
        )


def _region(case: Case, row: Row) -> tuple[str, ...]:
    """The reference's ops that a target op stands for, where there are several that compute."""
    names = row.introduced.region if row.introduced is not None else ()
    if len(names) > 1:
        return names
    op = case.op("target", row.target.key.op)
    if op is not None and len(op.origins) > 1:
        return op.origins
    return (row.reference.label,) if _is_fused_by_converter(row) else ()


def _is_fused_by_converter(row: Row) -> bool:
    kind = row.target.type
    if not kind.startswith(_DOMAINS):
        return False
    name = kind.rpartition(".")[2].lower()
    return any(word in name for word in _FUSED) or op_class(kind) == "attention"


def _stays(case: Case, found: Result) -> bool:
    """Whether an output is as far off op by op as it is as executed: then no fusion did it,
    whatever a tensor inside says that is paired with another one."""
    unfused_rows = {r.reference.key: r for r in found.outputs}
    for row in case.result.outputs:
        alone = unfused_rows.get(row.reference.key)
        if not row.verdict.severity or alone is None:
            continue
        if row.has_more_non_finite or alone.has_more_non_finite:
            if row.has_more_non_finite and alone.has_more_non_finite:
                return True
        elif _rmse(alone, 0.0) >= 0.5 * _rmse(row, inf):
            return True
    return False


def _rmse(row: Row, default: float) -> float:
    """The error of a row; the default where it has none."""
    return (row.numbers or {}).get("rmse") or default


def _is_right(row: Row, alone: Row) -> bool:
    """Whether the error is gone op by op. There integers are computed in floats: that something
    else comes out of those proves nothing."""
    if row.preset in ("int8", "int4"):
        return False
    if alone.introduced is not None and row.introduced is not None:
        close = alone.introduced_verdict is Verdict.CLOSE
        return close and alone.introduced.rmse <= _NEAR * row.introduced.rmse
    if alone.verdict not in (Verdict.CLOSE, Verdict.INHERITED):
        return False
    mine, theirs = ((r.numbers or {}).get("rmse") for r in (alone, row))
    return mine is not None and theirs is not None and theirs > 0 and mine <= _NEAR * theirs


def _has_same_parameters(run: Run | None, rows: Iterable[Row], row: Row) -> bool:
    """Whether all that the op reads besides values is known to be the reference's."""
    op = run.op(row.target.key.op) if run is not None else None
    edges = [e for e in op.inputs if e.role is Role.PARAMETER] if op is not None else []
    keys = {TensorKey(e.op, e.role, e.index) for e in edges}
    close = {r.target.key for r in rows if r.verdict is Verdict.CLOSE}
    return bool(keys) and keys <= close
