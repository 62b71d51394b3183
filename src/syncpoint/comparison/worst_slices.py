"""The worst slice of pairs that are not close: one channel or token that is wrong.

One wrong channel of a thousand is a small error of the whole tensor. The slice is added after the
verdict and never changes it, so that judging again needs no values.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from syncpoint.comparison.measuring import prepare_pair, split_batches
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.errors import SyncpointError
from syncpoint.metrics import Pair, Slice, worst_slices
from syncpoint.metrics.verdict import Verdict
from syncpoint.run.model import Kept


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
