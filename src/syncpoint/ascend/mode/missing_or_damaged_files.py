"""What a comparison of two runs cannot know of itself: files that are not there or not whole."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from syncpoint.ascend.matching.plan import Entry, Plan
from syncpoint.ascend.mode.first_divergence_notes import note_first_divergence
from syncpoint.comparison.result import Result
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.unmatched import UnmatchedTensor
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import OpKey, Role, TensorKey


def completed(result: Result, plan: Plan, counts_absent: bool = False) -> Result:
    """The result with damaged files as rows and a note at the ops where the two part;
    `counts_absent`: ops that the plan knows and the dump does not have lower the coverage."""
    damaged = [e for e in plan.entries if e.reason is ReasonCode.UNREADABLE]
    # A tensor whose partner is damaged is there, and was left without one for that reason.
    taken = {_place(e) for e in damaged if e.target is not None}
    unmatched = [
        u
        for u in result.unmatched
        if (u.side, u.why.code) != ("target", ReasonCode.UNREADABLE)
        or (u.op, u.role, u.index) not in taken
    ]
    if counts_absent:
        unmatched += [
            _lonely(e)
            for e in plan.entries
            if e.reason is ReasonCode.NO_TARGET_VALUE and e.target is None
        ]
    rows = list(result.rows)
    known = {e.target.key for e in plan.entries if e.target is not None}
    for entry in damaged:
        rows.append(_row(entry, _key(entry, known), plan.evidence))
        known.add(rows[-1].target.key)
    return note_first_divergence(replace(result, rows=rows, unmatched=unmatched))


def _key(entry: Entry, known: Container[TensorKey]) -> TensorKey:
    """The tensor that is damaged. A file may be whole but for one of its tensors, which then has
    no key of its own."""
    if entry.target is not None:
        return entry.target.key
    key = TensorKey(entry.key, part=entry.part)
    if key in known and entry.unreadable is not None:
        role, index = entry.unreadable
        key = replace(key, role=role, index=index)
    while key in known:
        key = replace(key, index=key.index + 1)
    return key


def _place(entry: Entry) -> tuple[str, str, int]:
    assert entry.target is not None
    key = entry.target.key
    return str(key.op), str(key.role), key.index


def _lonely(entry: Entry) -> UnmatchedTensor:
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


def _row(entry: Entry, key: TensorKey, evidence: str) -> Row:
    """A row for what is known to be there and cannot be read."""
    target = entry.target
    name = entry.golden or ",".join(entry.reference_names) or entry.op
    why = Reason(ReasonCode.UNREADABLE, entry.words)
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
