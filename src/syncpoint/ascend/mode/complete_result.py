"""Add missing and damaged files as rows to a mode's result; notes at the first divergence on ops
and wrong inputs; warnings that name ops."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace

from syncpoint.ascend.matching.plan import ComparisonPlan, PlanEntry
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.unmatched import UnmatchedTensor
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey, Role, TensorKey

FIRST = "first op whose output differs"
WRONG_INPUT = (
    "what it was given is off already: the error came in before it, where nothing is compared"
)

_MAX_LISTED = 5
"""Names in a warning before it says how many more."""


def complete_result(result: Result, plan: ComparisonPlan, counts_missing: bool = False) -> Result:
    """Add damaged files as rows, and notes at the first divergence. With `counts_missing`, ops of
    the plan that the dump does not have lower the coverage."""
    damaged = [entry for entry in plan.entries if entry.reason is ReasonCode.UNREADABLE]
    # The counterpart of a damaged tensor is unmatched for this reason; its row says so.
    in_rows = {_tensor_name(entry) for entry in damaged if entry.target is not None}
    unmatched = [
        tensor
        for tensor in result.unmatched
        if (tensor.side, tensor.why.code) != ("target", ReasonCode.UNREADABLE)
        or (tensor.op, tensor.role, tensor.index) not in in_rows
    ]
    if counts_missing:
        unmatched += [
            _unmatched_tensor(entry)
            for entry in plan.entries
            if entry.reason is ReasonCode.NO_TARGET_VALUE and entry.target is None
        ]
    rows = list(result.rows)
    used_keys = {entry.target.key for entry in plan.entries if entry.target is not None}
    for entry in damaged:
        rows.append(_damaged_row(entry, _damaged_key(entry, used_keys), plan.evidence))
        used_keys.add(rows[-1].target.key)
    return note_first_divergence(replace(result, rows=rows, unmatched=unmatched))


def _damaged_key(entry: PlanEntry, used_keys: Container[TensorKey]) -> TensorKey:
    """A key for the damaged tensor. If only one tensor of a file is damaged, it has no key yet."""
    if entry.target is not None:
        return entry.target.key
    key = TensorKey(entry.key, part=entry.part)
    if key in used_keys and entry.unreadable is not None:
        role, index = entry.unreadable
        key = replace(key, role=role, index=index)
    while key in used_keys:
        key = replace(key, index=key.index + 1)
    return key


def _tensor_name(entry: PlanEntry) -> tuple[str, str, int]:
    assert entry.target is not None
    key = entry.target.key
    return str(key.op), str(key.role), key.index


def _unmatched_tensor(entry: PlanEntry) -> UnmatchedTensor:
    return UnmatchedTensor(
        side="target",
        op=entry.op,
        role=Role.OUTPUT,
        index=0,
        type=entry.type,
        module="",
        why=Reason(ReasonCode.NO_TARGET_VALUE, "no dump file"),
        counted=entry.counted,
    )


def _damaged_row(entry: PlanEntry, key: TensorKey, evidence: str) -> Row:
    """A row for a tensor that exists and cannot be read."""
    target = entry.target
    name = entry.golden_op or ",".join(entry.reference_names) or entry.op
    why = Reason(ReasonCode.UNREADABLE, entry.report_text)
    return Row(
        target=End(
            key=key,
            type=entry.type,
            dtype=target.dtype if target is not None else "",
            shape=target.shape if target is not None else (),
        ),
        reference=End(
            key=TensorKey(OpKey(name, graph=key.op.graph), part=key.part),
            type="",
            dtype="",
            shape=(),
        ),
        evidence=evidence,
        confidence=1.0,
        view="",
        basis="",
        preset="exact",
        unmeasured=why,
        why=why,
    )


def note_first_divergence(result: Result) -> Result:
    """Note the ops where the two runs diverge first, and whether their inputs are wrong already."""
    first = {row.target.key for row in result.first_divergence}
    wrong_inputs = {
        row.target.key.op
        for row in result.rows
        if row.target.key.role is Role.INPUT and row.verdict.severity
    }

    def add_notes(row: Row) -> Row:
        if row.target.key not in first:
            return row
        notes = (FIRST, WRONG_INPUT) if row.target.key.op in wrong_inputs else (FIRST,)
        return replace(row, notes=(*row.notes, *notes))

    warnings = [
        f"{row.target.label}: {WRONG_INPUT}"
        for row in result.first_divergence
        if row.target.key.op in wrong_inputs
    ]
    return replace(
        result,
        rows=[add_notes(row) for row in result.rows],
        warnings=tuple(dict.fromkeys([*result.warnings, *warnings])),
    )


def warn_of_ops(statement: str, names: Iterable[str]) -> Iterator[str]:
    """One warning on the named ops, with the first names; none if there are no names."""
    unique = list(dict.fromkeys(name for name in names if name))
    if unique:
        remaining = len(unique) - _MAX_LISTED
        more = f" and {remaining} more" if remaining > 0 else ""
        yield f"{len(unique)} ops {statement}: {', '.join(unique[:_MAX_LISTED])}{more}"
