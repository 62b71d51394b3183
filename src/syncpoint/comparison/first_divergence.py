"""Where two runs part: the first rows that are off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncpoint.metrics.verdict import ReasonCode, Verdict
from syncpoint.run.model import Role

if TYPE_CHECKING:
    from syncpoint.comparison.result import Result

from syncpoint.comparison.rows import Row
from syncpoint.run.model import OpKey, Part


def _may_have_inherited(row: Row, handed: set[tuple[OpKey, Part]]) -> bool:
    """Whether all that speaks against an op may be what it was given."""
    if row.introduced is not None or row.first_non_finite:
        return False
    return (row.target.key.op, row.target.key.part) in handed


def find_first_divergence(comparison: Result) -> list[Row]:
    """Where the runs part: several rows only if they lie on parallel branches.

    The earliest ops whose introduced error is large; without introduced error, those whose
    total is not close while everything they read is. A state may be where they part, if a
    step begins with or leaves what no op is guilty of. Where a run does not say where an op got
    what it was given, and that is off already, the op is not where they part if another was
    off before it.
    """
    off: dict[tuple[int, int], list[Row]] = {}
    unsure = _ops_after_damage(comparison)
    for row in sorted(comparison.rows, key=lambda r: r.target.order):
        if row.target.key.role in (Role.OUTPUT, Role.STATE):
            known = row.introduced is not None
            # Without introduced error an op may be to blame for what a step leaves.
            sure = known or row.target.key.role is Role.OUTPUT or row.target.key.index
            large = row.introduced_verdict is Verdict.LARGE if known else row.verdict.severity
            if (large and sure) or row.first_non_finite:
                part = row.target.key.part
                off.setdefault((part.sample, part.rank), []).append(row)
    found: dict[OpKey, Row] = {}
    for rows in off.values():
        # A step inherits from those before it, and never from one that follows.
        earliest = min(row.target.key.part.step for row in rows)
        for row in _first_rows(comparison, [r for r in rows if r.target.key.part.step == earliest]):
            if row.introduced is None and row.target.key.op in unsure:
                continue  # it is to blame, or the op whose tensor is damaged
            found.setdefault(row.target.key.op, row)
    return list(found.values())


def _ops_after_damage(comparison: Result) -> set[OpKey]:
    """Target ops that read a damaged tensor, directly or through ops without a verdict."""
    damaged = {r.target.key.op for r in comparison.rows if r.why.code is ReasonCode.DAMAGED}
    if not damaged:
        return set()
    judged = {row.target.key.op for row in comparison.rows if row.verdict is not Verdict.NONE}
    after: set[OpKey] = set()
    for op, inputs in comparison.edges.items():  # in execution order
        if any(i in damaged or (i in after and i not in judged) for i in inputs):
            after.add(op)
    return after


def _first_rows(comparison: Result, rows: list[Row]) -> list[Row]:
    """Those of the rows, all of one execution, that read nothing from the others."""
    left = [r for r in rows if r.target.key.role is Role.STATE and not r.target.key.index]
    ops: dict[OpKey, Row] = {}
    for row in rows:
        if row not in left:
            ops.setdefault(row.target.key.op, row)
    below: dict[OpKey, bool] = {}
    for op, inputs in comparison.edges.items():
        below[op] = any(below.get(i, False) or i in ops for i in inputs)
    first = [row for op, row in ops.items() if not below.get(op, False)]
    handed = {
        (row.target.key.op, row.target.key.part)
        for row in comparison.rows
        if row.target.key.role is Role.INPUT and row.verdict.severity
    }
    first = [row for at, row in enumerate(first) if not at or not _may_have_inherited(row, handed)]
    # A dump knows no edges: only the order then tells what came first.
    return [*first, *left] if any(comparison.edges.values()) else first[:1]
