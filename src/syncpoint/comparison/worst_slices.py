"""What is measured only of pairs that are not close: which of their slices is worst.

One ruined channel among a thousand is a small error of the whole, and the first thing to know
about it. It warns and never decides: it is added after the verdict, from which it follows that
judging again needs no values.
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
    """Judged rows, those that are not close with their worst slice and a note that names it."""
    wanted = [at for at, row in enumerate(rows) if _needs_worst_slice(row)]
    places = iter(wanted)
    out = list(rows)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for batch in split_batches(sides, [rows[at] for at in wanted]):
            # Both sides are in memory only while their batch is measured.
            pairs = [(next(places), _read_pair(sides, row)) for row in batch]
            readable = [(at, pair) for at, pair in pairs if pair is not None]
            found = pool.map(worst_slices, [pair for _, pair in readable])
            for (at, _), slices in zip(readable, found, strict=True):
                out[at] = _add_slice(rows[at], slices)
    return out


def _needs_worst_slice(row: Row) -> bool:
    off = row.verdict not in (Verdict.CLOSE, Verdict.NONE)
    return off and row.basis == Kept.VALUES and row.numbers is not None


def _read_pair(sides: Sides, row: Row) -> Pair | None:
    try:
        # A slice of what is left when positions are masked is no slice of the tensor.
        return prepare_pair(sides, row)[1] if sides.counted_elements(row) is None else None
    except SyncpointError:
        return None  # it could be read a moment ago; what was measured then stands


def _add_slice(row: Row, slices: list[Slice]) -> Row:
    if not slices:
        return row
    worst = max(slices, key=lambda found: found.rel_l2)
    numbers = {
        **(row.numbers or {}),
        "worst_slice": worst.rel_l2,
        "worst_slice_axis": worst.axis,
        "worst_slice_index": worst.index,
    }
    note = f"worst slice: {worst.index} of axis {worst.axis}, rel_l2 {worst.rel_l2:.3g}"
    return replace(row, numbers=numbers, notes=(*row.notes, note))
