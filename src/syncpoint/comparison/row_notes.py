"""A pair that holds the same numbers in another order: permuted channels and their like.

No view is made of that, since a permutation at one op is a fault until somebody says otherwise;
but it is the first thing to know about such a pair.
"""

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
"""Elements up to which two sorted tensors of one distribution are still told apart."""
_MAX_REL_L2 = 1e-5


def note_reordered(sides: Sides, rows: list[Row]) -> list[Row]:
    """Judged rows, with a note at guilty ones whose two tensors are permutations."""
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
        mine = np.sort(dequantize(operand_of(sides.target, target)), axis=None)
        theirs = np.sort(dequantize(operand_of(sides.reference, reference)), axis=None)
    except (SyncpointError, TypeError, ValueError):
        return False
    with np.errstate(invalid="ignore"):
        size = np.linalg.norm(theirs)
        return bool(np.isfinite(size) and np.linalg.norm(mine - theirs) <= _MAX_REL_L2 * size)


_MIN_COMPARED_SHARE = 0.1
"""Below this share of its elements a row says how few of them its verdict rests on."""


def note_few_compared(rows: Sequence[Row]) -> list[Row]:
    """The rows with a note where the verdict rests on few of the elements."""
    return [_note_if_few_compared(row) for row in rows]


def _note_if_few_compared(row: Row) -> Row:
    numbers = row.numbers or {}
    compared, count = numbers.get("compared"), numbers.get("count")
    if not compared or not count or compared >= _MIN_COMPARED_SHARE * count:
        return row
    note = (
        f"only {compared:,} of {count:,} elements were compared: the others are NaN, infinite or"
        " masked on both sides"
    )
    return replace(row, notes=(*row.notes, note))
