"""Ops that make NaN or inf where the reference is finite, from inputs that are fine."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.operands import operand_of
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.metrics import statistics
from syncpoint.run.model import Kept, Role, TensorKey


def mark_first_non_finite(sides: Sides, made: list[Row]) -> list[Row]:
    """Mark ops that make NaN or inf where the reference is finite, from inputs that are fine."""
    bad: dict[TensorKey, bool] = {
        row.target.key: row.has_more_non_finite for row in made if row.numbers is not None
    }
    if not any(bad.values()):
        return made
    if not any(op.inputs for op in sides.target.ops):
        # A dump knows no edges: the first in its order is all that can be said.
        first = min((r for r in made if bad.get(r.target.key)), key=lambda r: r.target.order)
        return [replace(r, first_non_finite=r is first) for r in made]
    out = []
    for row in made:
        mark = False
        if bad.get(row.target.key) and row.target.order >= 0:
            op = sides.target.ops[row.target.order]
            part = row.target.key.part
            mark = row.target.key.role is Role.OUTPUT and not any(
                _is_non_finite(sides, TensorKey(edge.op, edge.role, edge.index, part), bad)
                for edge in op.inputs
            )
        out.append(replace(row, first_non_finite=mark) if mark else row)
    return out


def _is_non_finite(
    sides: Sides, key: TensorKey, bad: dict[TensorKey, bool], deep: int = 64
) -> bool:
    """Whether an input of an op is already broken; one without a partner, such as a cast that
    only the target has, is looked at by itself. If it broke on inputs that are fine, it did so on
    behalf of the op that is compared."""
    if key not in bad:
        tensor = sides.target.tensor(key)
        bad[key] = False
        if tensor is not None and tensor.key.role is Role.OUTPUT:
            found = tensor.statistics
            if tensor.kept is Kept.VALUES:
                try:
                    found = statistics(operand_of(sides.target, tensor))
                except SyncpointError:
                    return False
            bad[key] = found is not None and (found.nan != 0 or found.inf != 0)
            op = sides.target.op(key.op)
            if bad[key] and op is not None and op.inputs and deep:
                bad[key] = any(
                    _is_non_finite(sides, TensorKey(e.op, e.role, e.index, key.part), bad, deep - 1)
                    for e in op.inputs
                )
    return bad[key]
