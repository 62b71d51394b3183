"""Findings about fused ops that are wrong although their parts, run one by one, are right; titles,
next steps, whether the error stays unfused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

from syncpoint.comparison.findings import Finding, Level
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.unfused_target import (
    can_be_unfused,
    compare_unfused,
    find_counterpart,
    find_culprit,
    find_fusing_runtime,
    run_unfused,
)
from syncpoint.diagnosis.finding_text import name_op, number
from syncpoint.matching.op_kinds import op_class
from syncpoint.metrics.ratio_text import ratio_text
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.dtypes import long_name
from syncpoint.run.model import Role, TensorKey
from syncpoint.run.reader import Run

_MAX_GUILTY_OPS = 8
_MAX_OPS_IN_TITLE = 3
_DOMAINS = ("com.microsoft.",)
"""Domains of ops that a converter or optimizer put in place of several."""
_FUSED = ("fused", "skip", "bias", "embed", "attention", "quick", "fast")
_ADVICE = "compare the target with its ops run one by one"
_OTHER_VALUES = "the ops that it replaces give other values in float64 on the same inputs"
_DIFFERS = " differs from the ops that it replaces"
_MAX_UNFUSED_SHARE = 0.1
"""Share of the error that may remain when the ops run one by one."""


class Fusion:
    """Fused ops that compute something else than their parts."""

    name = "fusion"
    title = "ops that were fused compute something else than one by one"

    def look(self, case: Case) -> Iterable[Finding]:
        """Yield one finding for each fused op that is guilty as executed and right unfused."""
        if case.is_explained:
            return
        rows = [row for row in case.guilty if row.target.key.role is Role.OUTPUT][:_MAX_GUILTY_OPS]
        unfused_result = compare_unfused(case) if rows and can_be_unfused(case) else None
        converted: dict[TensorKey, Finding] = {}
        persists = unfused_result is not None and _persists(case, unfused_result)
        for row in rows:
            if unfused_result is None:
                if can_be_unfused(case) and _region(case, row):
                    yield self._report_suspect(case, row)
                elif not can_be_unfused(case) and _is_fused_by_converter(row):
                    yield self._report_converted(case, row)
                continue
            to_blame = find_culprit(unfused_result, row)
            unfused_row = find_counterpart(unfused_result, row)
            if to_blame is not None and _is_fused_by_converter(to_blame):
                # The op is fused in the file already.
                key = to_blame.target.key
                joined = self._join(converted.get(key), self._report_converted(case, row), to_blame)
                if _has_same_parameters(run_unfused(case), unfused_result.rows, to_blame):
                    joined = replace(joined, confidence=0.98)
                converted[key] = joined
            elif (
                to_blame is None
                and unfused_row is not None
                and _is_right(row, unfused_row)
                and not persists
            ):
                yield self._report_fused(case, row, unfused_row)
        yield from converted.values()

    def _join(self, earlier: Finding | None, new: Finding, to_blame: Row) -> Finding:
        """Make one finding for all rows behind one fused op of the file."""
        region = to_blame.introduced.region if to_blame.introduced is not None else ()
        first = earlier or replace(
            new,
            title=_title(name_op(to_blame), to_blame.target.type, region),
            evidence=(
                f"{to_blame.target.type} replaces {', '.join(region) or new.reference_ops[0]}",
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
            next=_advise(to_blame.target.type),
        )

    def _report_fused(self, case: Case, row: Row, unfused_row: Row) -> Finding:
        before, after = row.introduced, unfused_row.introduced
        line = f"with ops run one by one, {unfused_row.target.label} is {unfused_row.verdict} here"
        if before is not None and after is not None:
            line = (
                "given the target's inputs, the reference's ops give a result that differs from"
                f" the target's by {number(before.rmse)} with the op fused and by"
                f" {number(after.rmse)} with ops run one by one (RMS)"
            )
        runtime = find_fusing_runtime(case)
        advice = (runtime.fusion_advice if runtime is not None else "") or _ADVICE
        return self._finding(case, row, "fused", 0.93, Level.CAUSE, (line,), advice)

    def _report_suspect(self, case: Case, row: Row) -> Finding:
        return self._finding(
            case,
            row,
            "fused",
            0.4,
            Level.SUSPECT if row.verdict.severity else Level.NOTE,
            (),
            _ADVICE,
            ("a run of the target with its ops one by one (give its model)",),
        )

    def _report_converted(self, case: Case, row: Row) -> Finding:
        """Make the finding about a fused op that the model file itself contains."""
        return self._finding(
            case,
            row,
            "converted",
            0.98 if _has_same_parameters(case.target, case.rows, row) else 0.7,
            Level.CAUSE,
            (_OTHER_VALUES,),
            _advise(row.target.type),
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
        lines = [f"{row.target.type} replaces {', '.join(region)}"] if region else []
        if row.introduced is not None and row.introduced.ratio:
            ratio = ratio_text(row.introduced.ratio).removesuffix("×")
            lines.append(
                "given the target's inputs, the reference's ops give a result that differs from"
                f" the target's by {ratio} times what {long_name(row.introduced.preset)} rounding"
                " explains"
            )
        return Finding(
            cause=self.name,
            kind=kind,
            title=_title(name_op(row), row.target.type, region),
            level=level,
            confidence=confidence,
            ops=(row.target.label,),
            reference_ops=tuple(dict.fromkeys((row.reference.label, *region))),
            module=row.target.module or row.reference.module,
            source=row.target.source or row.reference.source,
            evidence=(*lines, *evidence),
            next=next,
            missing=missing,
            rows=(case.place[row.target.key],),
        )


def _title(subject: str, kind: str, region: Sequence[str]) -> str:
    """Return the title of a finding about a fused op."""
    fused = f"fused op {kind} at {subject}" if kind else f"fused op {subject}"
    parts = f" ({' + '.join(region)})" if 1 < len(region) <= _MAX_OPS_IN_TITLE else ""
    return f"the target's {fused}{_DIFFERS}{parts}"


def name_fault_in_fused_op(finding: Finding, op: str, fault: str) -> tuple[str, tuple[str, ...]]:
    """Return title and evidence of a finding about a fused op whose fault is known: the first one
    becomes the title. `fault` is the end of a sentence that begins with the op."""
    subject, is_open, _ = finding.title.partition(_DIFFERS)
    if not is_open:
        line = f"{op} inside it {fault}"
        return finding.title, tuple(dict.fromkeys((*finding.evidence, line)))
    evidence = tuple(line for line in finding.evidence if line != _OTHER_VALUES)
    return f"{op} inside {subject} {fault}", evidence


def _advise(kind: str) -> str:
    """Return the next step for a fused op that the model file itself contains."""
    return (
        f"convert without the fusion that makes {kind}, or set its attributes to those of the ops"
        " that it replaces"
    )


def _region(case: Case, row: Row) -> tuple[str, ...]:
    """Return the reference's ops that a target op replaces, if there are several."""
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


def _persists(case: Case, unfused_result: Result) -> bool:
    """Whether an output is as far off with ops run one by one: then fusion is not the cause, even
    if a tensor inside, paired with another one, suggests it."""
    unfused_rows = {r.reference.key: r for r in unfused_result.outputs}
    for row in case.result.outputs:
        unfused_row = unfused_rows.get(row.reference.key)
        if not row.verdict.severity or unfused_row is None:
            continue
        if row.has_more_non_finite or unfused_row.has_more_non_finite:
            if row.has_more_non_finite and unfused_row.has_more_non_finite:
                return True
        elif _rmse(unfused_row, 0.0) >= 0.5 * _rmse(row, inf):
            return True
    return False


def _rmse(row: Row, default: float) -> float:
    """Return the error of a row, or the default if it has none."""
    return (row.numbers or {}).get("rmse") or default


def _is_right(row: Row, unfused_row: Row) -> bool:
    """Whether the error is gone with ops run one by one. Quantized ops then compute in floats, so
    for them the run proves nothing."""
    if row.preset in ("int8", "int4"):
        return False
    if unfused_row.introduced is not None and row.introduced is not None:
        close = unfused_row.introduced_verdict is Verdict.CLOSE
        return close and unfused_row.introduced.rmse <= _MAX_UNFUSED_SHARE * row.introduced.rmse
    if unfused_row.verdict not in (Verdict.CLOSE, Verdict.INHERITED):
        return False
    after, before = ((r.numbers or {}).get("rmse") for r in (unfused_row, row))
    if after is None or before is None:
        return False
    return bool(before > 0 and after <= _MAX_UNFUSED_SHARE * before)


def _has_same_parameters(run: Run | None, rows: Iterable[Row], row: Row) -> bool:
    """Whether all parameters of the op are known to be the reference's."""
    op = run.op(row.target.key.op) if run is not None else None
    edges = [e for e in op.inputs if e.role is Role.PARAMETER] if op is not None else []
    keys = {TensorKey(e.op, e.role, e.index) for e in edges}
    close = {r.target.key for r in rows if r.verdict is Verdict.CLOSE}
    return bool(keys) and keys <= close
