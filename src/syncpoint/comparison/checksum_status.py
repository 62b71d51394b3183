"""Checksums during a comparison: verify tensors in a thread while others are measured, mark rows of
damaged tensors, count verified and damaged ones.

Values are verified when they are read (run/value_store.py). Here damage becomes a row without a
verdict, and the checks become the counts in the reports. The counts depend only on the rows and the
runs, so that a resumed comparison has the same counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from syncpoint.comparison.rows import Row
from syncpoint.errors import DamagedError, FormatError, SyncpointError
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.model import Kept, Tensor, TensorKey
from syncpoint.run.reader import Run

if TYPE_CHECKING:
    from syncpoint.comparison.sides import Sides

SIDES = ("target", "reference")
_CURE = "copy the file again or record the run again"

_DEFERRED_BYTES = 256 << 10
"""Minimum size from which a tensor is verified in a background thread."""
_MAX_THREADS = 4
"""More threads would wait for memory bandwidth."""

Array = NDArray[Any]
Results = TypeVar("Results")
_Check = tuple[Run, Tensor, Array | None]
Counts = dict[str, dict[str, int]]
"""By side: tensors that were read, and how many are verified, unverified (without a checksum) and
damaged."""


def is_damaged(row: Row) -> bool:
    """Whether a row has no verdict because one of its tensors is damaged."""
    return row.unmeasured.code is ReasonCode.DAMAGED


def failed_row(sides: Sides, row: Row, error: SyncpointError) -> Row:
    """The row without numbers, because a tensor is damaged or cannot be read."""
    if isinstance(error, DamagedError):
        return _damaged_row(sides, row, error)
    return replace(row, numbers=None, unmeasured=Reason.of_error(ReasonCode.UNREADABLE, error))


def _damaged_row(sides: Sides, row: Row, error: DamagedError) -> Row:
    """The row with a reason that names every damaged tensor."""
    descriptions = []
    for side, run, tensor in _row_tensors(sides, row):
        try:
            run.verify(tensor)
        except DamagedError as damage:
            label = (row.target if side == "target" else row.reference).label
            descriptions.append(f"the {side}'s {label} in {damage.where}")
        except SyncpointError:
            continue  # an unreadable tensor is reported by its own row
    reason = Reason.of_error(ReasonCode.DAMAGED, error)
    if descriptions:
        detail = f"checksum mismatch: the bytes of {' and of '.join(descriptions)} have changed"
        reason = Reason(ReasonCode.DAMAGED, detail, _CURE)
    return replace(row, numbers=None, unmeasured=reason)


class BackgroundChecks:
    """Verifies tensors of a batch in threads while the kernel measures them.

    Large tensors stay in their files. The check and the kernel read a file in the same order, so
    that each page is read from disk once. Small tensors are verified when they are read, because a
    thread would cost more.
    """

    def __init__(self, sides: Sides, threads: int) -> None:
        self._sides = sides
        self._threads = threads or min(os.cpu_count() or 1, _MAX_THREADS)
        self._pending: list[_Check] = []
        self._checks: list[tuple[int, _Check]] = []

    def is_deferred(self, run: Run, tensor: Tensor) -> bool:
        """Whether a tensor is verified here and not when it is read."""
        return tensor.nbytes >= _DEFERRED_BYTES and run.checksum(tensor) is not None

    def defer(self, run: Run, tensor: Tensor, values: Array | None = None) -> None:
        """Verify a tensor later; `values` are its elements if they are mapped already."""
        self._pending.append((run, tensor, values))

    def assign(self, index: int) -> None:
        """Assign the tensors that were deferred last to a row of the batch."""
        self._checks += [(index, check) for check in self._pending]
        self.discard()

    def discard(self) -> None:
        """Drop the tensors that were deferred last, because their row has no numbers."""
        self._pending = []

    def run_beside(self, measure: Callable[[], Results]) -> tuple[Results, dict[int, FormatError]]:
        """Call `measure` while verifying: its results, and the errors by row."""
        errors: list[FormatError | None] = [None] * len(self._checks)
        # Threads share the iterator, so that each check runs once.
        waiting = iter(list(enumerate(check for _, check in self._checks)))
        if not self._checks or self._threads == 1:
            results = measure()
            _check_all(waiting, errors)
        else:
            workers = min(self._threads, len(self._checks))
            with ThreadPoolExecutor(workers) as pool:
                futures = [pool.submit(_check_all, waiting, errors) for _ in range(workers)]
                results = measure()
            for future in futures:
                future.result()
        failures: dict[int, FormatError] = {}
        for (index, _), error in zip(self._checks, errors, strict=True):
            # Report the damaged side of a row, else the first error.
            if isinstance(error, DamagedError) or (error is not None and index not in failures):
                failures[index] = error
        return results, failures


def _check_all(waiting: Iterator[tuple[int, _Check]], errors: list[FormatError | None]) -> None:
    for number, (run, tensor, values) in waiting:
        try:
            run.verify(tensor, values)
        except FormatError as error:
            errors[number] = error


def count_verified(
    sides: Sides, rows: Iterable[Row], unmatched: Sequence[tuple[str, TensorKey]] = ()
) -> Counts:
    """Count the tensors of the rows by state; `unmatched` are further damaged tensors."""
    states: dict[str, dict[TensorKey, str]] = {side: {} for side in SIDES}
    for row in rows:
        if is_damaged(row):
            for side, run, tensor in _row_tensors(sides, row):
                state = _state_of_damaged(run, tensor)
                if state:
                    states[side][tensor.key] = state
        elif row.numbers is not None and row.basis != Kept.DIGEST:
            for side, run, tensor in _row_tensors(sides, row):
                if tensor.kept is Kept.VALUES:
                    verified = run.has_checksum(tensor)
                    states[side][tensor.key] = "verified" if verified else "unverified"
    for side, key in unmatched:
        states[side][key] = "damaged"
    counts: Counts = {}
    for side in SIDES:
        side_states = list(states[side].values())
        counts[side] = {
            "tensors": len(side_states),
            **{state: side_states.count(state) for state in ("verified", "unverified", "damaged")},
        }
    return counts


def damaged_unmatched(sides: Sides, rows: Iterable[Row]) -> list[tuple[str, TensorKey]]:
    """Damaged tensors that matching has read and that have no partner.

    The damage may be the reason why no tensor equals them.
    """
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


def _row_tensors(sides: Sides, row: Row) -> list[tuple[str, Run, Tensor]]:
    """Both tensors of a row with their runs."""
    ends = zip(SIDES, (sides.target, sides.reference), (row.target, row.reference), strict=True)
    return [
        (side, run, tensor)
        for side, run, end in ends
        if (tensor := run.tensor(end.key)) is not None
    ]


def _state_of_damaged(run: Run, tensor: Tensor) -> str:
    """The state of one tensor of a damaged row; "" if it has no values or cannot be read."""
    if tensor.kept is not Kept.VALUES:
        return ""
    try:
        return "verified" if run.verify(tensor) else "unverified"
    except DamagedError:
        return "damaged"
    except SyncpointError:
        return ""
