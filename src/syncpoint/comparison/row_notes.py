"""Notes of rows: few elements compared, or the same numbers in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Kept

REORDERED_NOTE = "the same numbers in another order"
_MAX_SORTED_ELEMENTS = 1 << 16
"""Maximum size: sorted tensors of one distribution that are larger look equal."""
_MAX_REL_L2 = 1e-5


def note_reordered(sides: Sides, rows: list[Row]) -> list[Row]:
    """Judged rows, with a note at guilty ones whose tensors are permutations of each other.

    No view is derived from that: a permutation at one op is an error until the map declares it.
    """
    return [
        replace(row, notes=(*row.notes, REORDERED_NOTE)) if _is_reordered(sides, row) else row
        for row in rows
    ]


def _is_reordered(sides: Sides, row: Row) -> bool:
    if row.verdict is not Verdict.LARGE or row.preset != "f32" or row.basis != Kept.VALUES:
        return False
    if row.numbers is None or not (row.guilty or row.introduced is None):
        return False
    target, reference = (
        sides.target.tensor(row.target.key),
        sides.reference.tensor(row.reference.key),
    )
    if target is None or reference is None or target.count != reference.count:
        return False
    if not 1 < target.count <= _MAX_SORTED_ELEMENTS:
        return False
    try:
        sorted_target = np.sort(dequantize(operand_of(sides.target, target)), axis=None)
        sorted_reference = np.sort(dequantize(operand_of(sides.reference, reference)), axis=None)
    except (SyncpointError, TypeError, ValueError):
        return False
    with np.errstate(invalid="ignore"):
        reference_norm = np.linalg.norm(sorted_reference)
        return bool(
            np.isfinite(reference_norm)
            and np.linalg.norm(sorted_target - sorted_reference) <= _MAX_REL_L2 * reference_norm
        )


_MIN_COMPARED_SHARE = 0.1
"""Share of compared elements below which a row gets a note."""


def note_few_compared(rows: Sequence[Row]) -> list[Row]:
    """The rows, with a note where the verdict is based on few of the elements."""
    return [_note_if_few_compared(row) for row in rows]


def _note_if_few_compared(row: Row) -> Row:
    numbers = row.numbers or {}
    compared, count = numbers.get("compared"), numbers.get("count")
    if not compared or not count or compared >= _MIN_COMPARED_SHARE * count:
        return row
    note = (
        f"only {compared:,} of {count:,} elements were compared; the others are NaN, infinite or"
        " masked on both sides"
    )
    return replace(row, notes=(*row.notes, note))
