"""What a comparison of two runs cannot know of itself: files that are not there or not whole."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.result import Lonely, Result
from syncpoint.comparison.rows import End, Row
from syncpoint.matching.ascend.plan import Entry
from syncpoint.metrics.verdict import Reason
from syncpoint.offline.opening import Case
from syncpoint.run.model import OpKey, Role, TensorKey

FIRST = "where the two part first"
GIVEN = "what it was given is off already: the error came in before it, where nothing is compared"


def completed(result: Result, case: Case) -> Result:
    """The result with damaged files as rows, absent ones in the coverage, and a note at the ops
    where the two part."""
    damaged = [e for e in case.plan.entries if e.reason is Reason.UNREADABLE]
    absent = [
        e for e in case.plan.entries if e.reason is Reason.NO_TARGET_VALUE and e.target is None
    ]
    taken = {_place(e) for e in damaged if e.target is not None}
    unmatched = [
        u for u in result.unmatched if u.side != "target" or (u.op, u.role, u.index) not in taken
    ]
    if not case.by_name:
        unmatched += [_lonely(e) for e in absent]
    rows = [*result.rows, *(_row(e, case) for e in damaged)]
    return _with_notes(replace(result, rows=rows, unmatched=unmatched))


def _with_notes(result: Result) -> Result:
    first = {row.target.key for row in result.first_divergence}
    given = {
        row.target.key.op
        for row in result.rows
        if row.target.key.role is Role.INPUT and row.verdict.severity
    }

    def noted(row: Row) -> Row:
        if row.target.key not in first:
            return row
        said = (FIRST, GIVEN) if row.target.key.op in given else (FIRST,)
        return replace(row, notes=(*row.notes, *said))

    said = [f"{row.target.label}: {GIVEN}" for row in result.first_divergence if _op(row) in given]
    return replace(
        result,
        rows=[noted(row) for row in result.rows],
        warnings=tuple(dict.fromkeys([*result.warnings, *said])),
    )


def _op(row: Row) -> OpKey:
    return row.target.key.op


def _place(entry: Entry) -> tuple[str, str, int]:
    assert entry.target is not None
    key = entry.target.key
    return str(key.op), str(key.role), key.index


def _lonely(entry: Entry) -> Lonely:
    return Lonely(
        "target",
        entry.op,
        Role.OUTPUT,
        0,
        entry.type,
        "",
        Reason.NO_TARGET_VALUE,
        "no dump file",
        entry.counted,
    )


def _row(entry: Entry, case: Case) -> Row:
    """A row for what is known to be there and cannot be read."""
    target = entry.target
    key = target.key if target is not None else TensorKey(OpKey(entry.op))
    name = entry.golden or ",".join(entry.reference_names) or entry.op
    why = f"{Reason.UNREADABLE}: {entry.words}"
    return Row(
        End(
            key,
            entry.type,
            target.dtype if target is not None else "",
            target.shape if target is not None else (),
        ),
        End(TensorKey(OpKey(name)), "", "", ()),
        case.plan.evidence,
        1.0,
        "",
        "",
        "exact",
        unmeasured=why,
        reason=why,
    )
