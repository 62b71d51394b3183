"""Which tensors of a comparison were checked against their checksums, and which are damaged.

Every read of values is checked where it happens (run/store.py). Here damage becomes a row without
a verdict, and the checks become the counts that the reports show. The counts depend on the rows
and on the runs alone, so that a comparison that was resumed has those of one that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from syncpoint.comparison.rows import Row
from syncpoint.errors import DamagedError, SyncpointError
from syncpoint.metrics.verdict import Reason
from syncpoint.run.model import Kept, Tensor, TensorKey
from syncpoint.run.reader import Run

if TYPE_CHECKING:
    from syncpoint.comparison.measuring import Sides

SIDES = ("target", "reference")
_CURE = "copy the file again or record the run again"

Counts = dict[str, dict[str, int]]
"""By side: tensors that were read, and how many are verified, unverified (they have no checksum)
and damaged."""


def is_damaged(row: Row) -> bool:
    """Whether a row has no verdict since a side of it is damaged."""
    return row.unmeasured.startswith(Reason.DAMAGED)


def damaged_row(sides: Sides, row: Row, error: DamagedError) -> Row:
    """The row without numbers; its reason names every side that is damaged."""
    places = []
    for side, run, tensor in _ends(sides, row):
        try:
            run.verify(tensor)
        except DamagedError as damage:
            label = (row.target if side == "target" else row.reference).label
            places.append(f"the {side}'s {label} in {damage.where}")
        except SyncpointError:
            continue  # that it cannot be read either is told by its own row, or after the cure
    what = str(error)
    if places:
        bytes_of = " and of ".join(places)
        what = f"the bytes of {bytes_of} are not those that were recorded; {_CURE}"
    return replace(row, numbers=None, unmeasured=f"{Reason.DAMAGED}: {what}")


class BackgroundChecks:
    """Checks large tensors while the kernel measures them: both go through the file in its order,
    so each page is read from the disk once."""

    def __init__(self, sides: Sides, threads: int) -> None:
        self._sides = sides
        self._pool = ThreadPoolExecutor(2) if threads != 1 else None
        self._waiting: dict[int, tuple[Row, list[Future[bool]]]] = {}

    def add(self, index: int, row: Row) -> None:
        """Begin to check both sides of a row."""
        futures = []
        for _, run, tensor in _ends(self._sides, row):
            if self._pool is not None:
                futures.append(self._pool.submit(run.verify, tensor))
        self._waiting[index] = (row, futures)

    def failures(self) -> dict[int, Row]:
        """Wait; the rows that cannot be judged, by their index."""
        failed = {}
        for index, (row, futures) in self._waiting.items():
            try:
                for future in futures:
                    future.result()
                for _, run, tensor in _ends(self._sides, row):
                    run.verify(tensor)  # known by now, unless there is one thread only
            except DamagedError as error:
                failed[index] = damaged_row(self._sides, row, error)
            except SyncpointError as error:
                failed[index] = replace(
                    row, numbers=None, unmeasured=f"{Reason.UNREADABLE}: {error}"
                )
        if self._pool is not None:
            self._pool.shutdown()
        return failed


def count_verified(
    sides: Sides, rows: Iterable[Row], unmatched: Sequence[tuple[str, TensorKey]] = ()
) -> Counts:
    """Count the tensors that the rows rest on; `unmatched` are damaged ones besides."""
    states: dict[str, dict[TensorKey, str]] = {side: {} for side in SIDES}
    for row in rows:
        if is_damaged(row):
            for side, run, tensor in _ends(sides, row):
                state = _state_of_damaged(run, tensor)
                if state:
                    states[side][tensor.key] = state
        elif row.numbers is not None and row.basis != Kept.DIGEST:
            for side, run, tensor in _ends(sides, row):
                if tensor.kept is Kept.VALUES:
                    verified = run.has_checksum(tensor)
                    states[side][tensor.key] = "verified" if verified else "unverified"
    for side, key in unmatched:
        states[side][key] = "damaged"
    counts: Counts = {}
    for side in SIDES:
        found = list(states[side].values())
        counts[side] = {
            "tensors": len(found),
            **{state: found.count(state) for state in ("verified", "unverified", "damaged")},
        }
    return counts


def damaged_unmatched(sides: Sides, rows: Iterable[Row]) -> list[tuple[str, TensorKey]]:
    """Tensors that matching looked at, that have no partner and are damaged: the damage may be
    why nothing equals them."""
    paired: dict[str, set[TensorKey]] = {side: set() for side in SIDES}
    for row in rows:
        paired["target"].add(row.target.key)
        paired["reference"].add(row.reference.key)
    damaged = []
    for side, run in zip(SIDES, (sides.target, sides.reference), strict=True):
        for key, tensor in run.sampled.items():
            if key not in paired[side] and _state_of_damaged(run, tensor) == "damaged":
                damaged.append((side, key))
    return damaged


def _ends(sides: Sides, row: Row) -> list[tuple[str, Run, Tensor]]:
    """Both tensors of a row with their runs."""
    ends = zip(SIDES, (sides.target, sides.reference), (row.target, row.reference), strict=True)
    return [
        (side, run, tensor)
        for side, run, end in ends
        if (tensor := run.tensor(end.key)) is not None
    ]


def _state_of_damaged(run: Run, tensor: Tensor) -> str:
    """What a check says of one end of a damaged row; "" where it has no values to read."""
    if tensor.kept is not Kept.VALUES:
        return ""
    try:
        return "verified" if run.verify(tensor) else "unverified"
    except DamagedError:
        return "damaged"
    except SyncpointError:
        return ""
