"""Add to judged rows their worst slice (channel or token), and notes on permuted tensors and on few
compared elements.

The worst slice of a pair that is not close is one channel or token that is wrong: one wrong channel
of a thousand is a small error of the whole tensor. Notes say that few elements were compared, or
that both sides have the same numbers in another order. Nothing here changes a verdict, so that
judging again needs no values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from syncpoint.comparison.measuring.measure_rows import prepare_pair, split_batches
from syncpoint.comparison.operands import dequantize, operand_of
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.metrics import Pair, Slice, worst_slices
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Kept

REORDERED_NOTE = "the same numbers in another order"
_MAX_SORTED_ELEMENTS = 1 << 16
"""Maximum size: sorted tensors of one distribution that are larger look equal."""
_MAX_REL_L2 = 1e-5


def add_worst_slices(sides: Sides, rows: list[Row], threads: int = 0) -> list[Row]:
    """Judged rows; those that are not close get their worst slice and a note about it."""
    indices = [index for index, row in enumerate(rows) if _needs_worst_slice(row)]
    next_index = iter(indices)
    complete_rows = list(rows)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for batch in split_batches(sides, [rows[index] for index in indices]):
            # The values of a batch are in memory only while it is measured.
            pairs = [(next(next_index), _read_pair(sides, row)) for row in batch]
            readable = [(index, pair) for index, pair in pairs if pair is not None]
            slices_of_pairs = pool.map(worst_slices, [pair for _, pair in readable])
            for (index, _), slices in zip(readable, slices_of_pairs, strict=True):
                complete_rows[index] = _add_slice(rows[index], slices)
    return complete_rows


def _needs_worst_slice(row: Row) -> bool:
    is_judged_off = row.verdict not in (Verdict.CLOSE, Verdict.NONE)
    return is_judged_off and row.basis == Kept.VALUES and row.numbers is not None


def _read_pair(sides: Sides, row: Row) -> Pair | None:
    try:
        # Without the masked positions, a slice is not a slice of the tensor.
        return prepare_pair(sides, row)[1] if sides.counted_elements(row) is None else None
    except SyncpointError:
        return None  # the file was readable before; the measured numbers stay valid


def _add_slice(row: Row, slices: list[Slice]) -> Row:
    if not slices:
        return row
    worst = max(slices, key=lambda candidate: candidate.rel_l2)
    numbers = {
        **(row.numbers or {}),
        "worst_slice": worst.rel_l2,
        "worst_slice_axis": worst.axis,
        "worst_slice_index": worst.index,
    }
    note = f"worst slice: {worst.index} of axis {worst.axis}, rel_l2 {worst.rel_l2:.3g}"
    return replace(row, numbers=numbers, notes=(*row.notes, note))


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
