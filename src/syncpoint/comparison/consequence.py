"""Errors without consequence: large rows whose readers are all compared and close become moderate,
as do parameters if all outputs are; doubtful pairs.

If a tensor is off and everything computed from it agrees, then the pair is wrong, or the two sides
represent the value differently between its producer and its readers, or the error has no effect on
this input. None of these makes the model wrong, so such a row is at most moderate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from syncpoint.comparison.rows import Row
from syncpoint.metrics.verdict import Reason, Verdict
from syncpoint.run.model import OpKey, Part, Role

WITHOUT_CONSEQUENCE = "without consequence on this input"
"""How the reason of such a row starts."""
_MIN_DROP_DB = 30.0
"""The error relative to the signal must be so much smaller in the readers. An error that is only
attenuated, such as that of one of two summands, has a consequence."""
_MAX_OPS = 64
"""Maximum number of ops to pass on the way to the next compared readers."""

Edges = Mapping[OpKey, tuple[OpKey, ...]]
"""Target ops with the ops that they read."""


def settle_rows_without_consequence(
    rows: list[Row], edges: Edges, is_close: Callable[[Row], bool]
) -> list[Row]:
    """The rows, with those that are large without consequence as moderate.

    `is_close` judges the total error of a reader. Its introduced error counts for nothing here: it
    was measured with the doubtful tensor as an input.
    """
    suspects = [row for row in rows if _is_suspect(row) and not is_close(row)] if edges else []
    if not suspects:
        return _settle_parameters(rows)
    readers = _Readers(rows, edges)
    settled: dict[int, Row] = {}
    excused: set[int] = set()
    for row in suspects:
        next_rows = readers.next_rows(row.target.key.op, row.target.key.part)
        if next_rows and all(is_close(r) and _has_vanished(row, r) for r in next_rows):
            settled[id(row)] = _settle(row, len(next_rows))
            excused.update(id(reader) for reader in next_rows)
    judged = [settled.get(id(row)) or _excuse(row, id(row) in excused) for row in rows]
    return _settle_parameters(judged)


def _settle_parameters(rows: list[Row]) -> list[Row]:
    """The rows, with large parameters as moderate if nothing computed is large and every model
    output is close: a compiler may have folded something into them, or rounded them."""
    outputs = [row for row in rows if row.output]
    if not outputs or any(row.verdict is not Verdict.CLOSE for row in outputs):
        return rows
    large = [row for row in rows if row.verdict is Verdict.LARGE]
    if any(row.target.key.role is not Role.PARAMETER for row in large):
        return rows
    return [_settle_parameter(row) if row.verdict is Verdict.LARGE else row for row in rows]


def _settle_parameter(row: Row) -> Row:
    detail = f"{WITHOUT_CONSEQUENCE}: every model output is close; {row.why.detail}"
    return replace(row, verdict=Verdict.MODERATE, why=replace(row.why, detail=detail))


def is_without_consequence(row: Row) -> bool:
    """Whether a row was settled here: its pair is doubtful, or its error has no effect."""
    return row.why.detail.startswith(WITHOUT_CONSEQUENCE)


def is_doubtful(row: Row) -> bool:
    """Whether the pair of a row may be wrong, since its readers contradict it. The same op on both
    sides, by name and type, is a pair for certain."""
    same_op = row.target.key.op == row.reference.key.op and row.target.type == row.reference.type
    return is_without_consequence(row) and not same_op


def _is_suspect(row: Row) -> bool:
    """Whether a large row is inside the model, and not the first with NaN or inf."""
    is_inside = row.target.key.role is Role.OUTPUT and not row.output
    return is_inside and row.verdict is Verdict.LARGE and not row.first_non_finite


def _has_vanished(row: Row, reader: Row) -> bool:
    """Whether the error of a row does not show in a reader, beyond what attenuation explains."""
    sqnr, reader_sqnr = ((r.numbers or {}).get("sqnr") for r in (row, reader))
    if reader_sqnr is None:
        return not (reader.numbers or {}).get("mismatched") and reader.verdict is Verdict.CLOSE
    return sqnr is None or reader_sqnr >= sqnr + _MIN_DROP_DB


def _settle(row: Row, reader_count: int) -> Row:
    readers = f"all {reader_count} tensors computed" if reader_count > 1 else "the tensor computed"
    agree = "agree" if reader_count > 1 else "agrees"
    detail = f"{WITHOUT_CONSEQUENCE}: {readers} from it {agree}; {row.why.detail}"
    return replace(row, verdict=Verdict.MODERATE, why=replace(row.why, detail=detail))


def _excuse(row: Row, has_settled_input: bool) -> Row:
    """A close reader whose introduced error counts for nothing, as it reads a settled row."""
    if not has_settled_input or row.introduced is None or not row.introduced_verdict.severity:
        return row
    return replace(row, verdict=Verdict.CLOSE, why=Reason(), introduced_verdict=Verdict.NONE)


class _Readers:
    """The rows that are computed from a target op, through ops without a row of their own."""

    def __init__(self, rows: Iterable[Row], edges: Edges) -> None:
        self._rows: dict[tuple[OpKey, Part], list[Row]] = {}
        self._misled: set[tuple[OpKey, Part]] = set()
        """Ops with a recorded input that is off: they did read a wrong value."""
        for row in rows:
            if row.target.key.role is Role.INPUT and row.verdict.severity:
                self._misled.add((row.target.key.op, row.target.key.part))
            if row.target.key.role is Role.OUTPUT and row.verdict is not Verdict.NONE:
                self._rows.setdefault((row.target.key.op, row.target.key.part), []).append(row)
        self._consumers: dict[OpKey, list[OpKey]] = {}
        for op, inputs in edges.items():
            for producer in dict.fromkeys(inputs):
                self._consumers.setdefault(producer, []).append(op)

    def next_rows(self, op: OpKey, part: Part) -> list[Row]:
        """The next rows on every path; none if a path ends without one or is too long, or if a
        recorded input on it is off."""
        waiting = deque(self._consumers.get(op, ()))
        visited: set[OpKey] = set()
        next_rows: list[Row] = []
        while waiting:
            reader = waiting.popleft()
            if reader in visited:
                continue
            visited.add(reader)
            if (reader, part) in self._misled:
                return []
            rows = self._rows.get((reader, part))
            if rows:
                next_rows += rows
                continue
            further = self._consumers.get(reader)
            if not further or len(visited) > _MAX_OPS:
                return []
            waiting.extend(further)
        return next_rows
