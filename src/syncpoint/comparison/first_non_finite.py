"""Mark the rows whose op turns finite inputs into NaN or inf where the reference is finite."""

from __future__ import annotations

from dataclasses import replace

from syncpoint.comparison.operands import operand_of
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.metrics import statistics
from syncpoint.run.model import Kept, Role, TensorKey


def mark_first_non_finite(sides: Sides, rows: list[Row]) -> list[Row]:
    """Mark the rows of ops that turn finite inputs into NaN or inf; the reference is finite."""
    non_finite: dict[TensorKey, bool] = {
        row.target.key: row.has_more_non_finite for row in rows if row.numbers is not None
    }
    if not any(non_finite.values()):
        return rows
    if not any(op.inputs for op in sides.target.ops):
        # A dump has no edges: only the recording order tells which op came first.
        first = min((r for r in rows if non_finite.get(r.target.key)), key=lambda r: r.target.order)
        return [replace(r, first_non_finite=r is first) for r in rows]
    marked_rows = []
    for row in rows:
        is_first = False
        if non_finite.get(row.target.key) and row.target.order >= 0:
            op = sides.target.ops[row.target.order]
            part = row.target.key.part
            is_first = row.target.key.role is Role.OUTPUT and not any(
                _is_non_finite(sides, TensorKey(edge.op, edge.role, edge.index, part), non_finite)
                for edge in op.inputs
            )
        marked_rows.append(replace(row, first_non_finite=is_first) if is_first else row)
    return marked_rows


def _is_non_finite(
    sides: Sides, key: TensorKey, non_finite: dict[TensorKey, bool], max_depth: int = 64
) -> bool:
    """Whether an input of an op has NaN or inf already.

    An input without a partner, such as a cast that only the target has, is read here. If its own
    inputs are finite, the NaN or inf counts as made by the compared op that reads it.
    """
    if key not in non_finite:
        tensor = sides.target.tensor(key)
        non_finite[key] = False
        if tensor is not None and tensor.key.role is Role.OUTPUT:
            summary = tensor.statistics
            if tensor.kept is Kept.VALUES:
                try:
                    summary = statistics(operand_of(sides.target, tensor))
                except SyncpointError:
                    return False
            non_finite[key] = summary is not None and (summary.nan != 0 or summary.inf != 0)
            op = sides.target.op(key.op)
            if non_finite[key] and op is not None and op.inputs and max_depth:
                non_finite[key] = any(
                    _is_non_finite(
                        sides,
                        TensorKey(edge.op, edge.role, edge.index, key.part),
                        non_finite,
                        max_depth - 1,
                    )
                    for edge in op.inputs
                )
    return non_finite[key]
