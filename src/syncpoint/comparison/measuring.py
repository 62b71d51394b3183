"""Sync points -> numbers: reads both tensors, lays one over the other, calls the kernel.

Values are mapped, measured in place and let go, a batch at a time, so that memory does not grow
with the size of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from syncpoint.comparison.checksum_status import BackgroundChecks, failed_row, is_damaged
from syncpoint.comparison.digest_pairs import measure_by_digest
from syncpoint.comparison.events import BatchMeasured, RowsRestored
from syncpoint.comparison.index_outputs import select_scores
from syncpoint.comparison.masking import remove_masked, restore_indices
from syncpoint.comparison.operands import (
    fit_view,
    logical_shape,
    shapes_reason,
    view_reason,
)
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
from syncpoint.comparison.statistics_pairs import measure_by_statistics
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.matching.views import View
from syncpoint.metrics import Operand, Pair, measure_each
from syncpoint.metrics.limits import PRESETS, coarsest
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.model import Kept, Tensor, TensorKey

_MAX_BATCH_BYTES = 64 << 20
_MAX_BATCH_PAIRS = 4096
_MIN_FILE_REGION_BYTES = 16 << 20
"""Bytes from which a tensor is measured in pieces."""


def measure_rows(
    sides: Sides,
    made: list[Row],
    threads: int = 0,
    log: ProgressLog | None = None,
    same: Mapping[TensorKey, TensorKey] | None = None,
    events: EventSink = NULL_SINK,
) -> list[Row]:
    """The rows with their numbers. The result does not depend on the number of threads, nor on
    how much of it an earlier attempt has left in the log. `same` are target tensors that hold the
    very bytes of another one which has the same reference and view: it is measured for both."""
    same = same or {}
    done = [_find_logged_row(log, row) for row in made]
    left = [at for at, row in enumerate(done) if row is None and made[at].target.key not in same]
    places = iter(left)
    ready = len(made) - len(left)
    events.send(RowsRestored([row for row in done if row is not None]))
    for batch in split_batches(sides, [made[at] for at in left]):
        ready += len(batch)
        for row in _measure_and_report(sides, batch, threads, log, events, (ready, len(made))):
            done[next(places)] = row
    return _copy_repeated_rows(made, done, same)


def _copy_repeated_rows(
    made: list[Row], done: list[Row | None], same: Mapping[TensorKey, TensorKey]
) -> list[Row]:
    """All rows: one that was not measured has the numbers of the one with the same bytes."""
    known = {row.target.key: row for row in done if row is not None} if same else {}
    rows = []
    for row, measured_row in zip(made, done, strict=True):
        if measured_row is None:
            other = known[same[row.target.key]]
            measured_row = replace(
                row, numbers=other.numbers, unmeasured=other.unmeasured, view=other.view
            )
        rows.append(measured_row)
    return rows


def _measure_and_report(
    sides: Sides,
    batch: list[Row],
    threads: int,
    log: ProgressLog | None,
    events: EventSink,
    progress: tuple[int, int],
) -> list[Row]:
    """Measure a batch, log it and report it. The values of its pairs are released on return,
    before those of the next batch are read."""
    rows, pairs = _measure_batch(sides, batch, threads)
    if log is not None:
        log.add_measured(rows)
    events.send(BatchMeasured(rows, pairs, *progress))
    return rows


def _find_logged_row(log: ProgressLog | None, row: Row) -> Row | None:
    """The row as an earlier attempt measured it. A damaged one is read again: its file may have
    been replaced since."""
    logged = log.measured_row(row) if log is not None else None
    return None if logged is not None and is_damaged(logged) else logged


def split_batches(sides: Sides, made: list[Row]) -> Iterator[list[Row]]:
    """The rows in lots whose values may be held at the same time."""
    batch: list[Row] = []
    size = 0
    for row in made:
        tensors = (
            sides.target.tensor(row.target.key),
            sides.reference.tensor(row.reference.key),
        )
        nbytes = sum(t.nbytes for t in tensors if t)
        if batch and (size + nbytes > _MAX_BATCH_BYTES or len(batch) == _MAX_BATCH_PAIRS):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += nbytes
    if batch:
        yield batch


def _measure_batch(
    sides: Sides, batch: list[Row], threads: int
) -> tuple[list[Row], list[tuple[Row, Pair]]]:
    """The rows of a batch with their numbers, and the pairs that were measured by values."""
    out: list[Row] = []
    waiting: list[tuple[int, Pair]] = []
    checks = BackgroundChecks(sides, threads)
    for row in batch:
        if row.unmeasured or not row.basis:
            out.append(row)
            continue
        try:
            row, pair = remove_masked(sides.masks, *prepare_pair(sides, row, checks))
        except SyncpointError as error:
            row, pair = failed_row(sides, row, error), None
        if pair is not None:
            waiting.append((len(out), pair))
            checks.assign(len(out))
        checks.discard()
        out.append(row)
    pairs = [pair for _, pair in waiting]
    found, failures = checks.run_beside(lambda: measure_each(pairs, threads=threads))
    for (at, _), measurement in zip(waiting, found, strict=True):
        if at in failures:
            out[at] = failed_row(sides, out[at], failures[at])
        elif isinstance(measurement, FormatError):
            out[at] = failed_row(sides, out[at], measurement)
        else:
            out[at] = replace(out[at], numbers=measurement.as_dict())
            kept = sides.counted_elements(out[at])
            if kept is not None:
                out[at] = restore_indices(out[at], kept)
    return out, [(out[at], pair) for at, pair in waiting if at not in failures]


def prepare_pair(
    sides: Sides, row: Row, checks: BackgroundChecks | None = None
) -> tuple[Row, Pair | None]:
    """Either numbers that need no kernel call, or the pair to measure. Large tensors are left to
    `checks` to verify."""
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None:
        raise KeyError(row)
    if row.basis == Kept.DIGEST:
        return measure_by_digest(sides, row, target, reference), None
    if row.basis == Kept.STATISTICS:
        return measure_by_statistics(sides, row, target, reference), None
    in_pieces = None
    if sides.masks is None:
        in_pieces = _pair_of_file_regions(sides, row, target, reference, checks)
    if in_pieces is not None:
        return row, in_pieces
    operands = (sides.operand(0, target, checks), sides.operand(1, reference, checks))
    return build_pair(sides, row, *operands)


def build_pair(sides: Sides, row: Row, t: Operand, r: Operand) -> tuple[Row, Pair | None]:
    """The pair to measure, whoever gave the target's values; None where the row says why not."""
    try:
        t, view = fit_view(t, View(row.view), logical_shape(r))
    except ValueError:
        return replace(row, unmeasured=view_reason(row.view, logical_shape(t))), None
    row = replace(row, view=str(view))
    if logical_shape(t) != logical_shape(r):
        return replace(row, unmeasured=shapes_reason(logical_shape(t), logical_shape(r))), None
    scores = select_scores(sides.reference, sides.computed_key(row.reference.key), t.array, r.array)
    if scores is not None:
        note = "indices judged by the reference's scores at the places they choose"
        ways = [
            precisions.through(end.key.op)
            for precisions, end in zip(sides.precisions, (row.target, row.reference), strict=True)
        ]
        agreed = scores.as_operands(PRESETS[coarsest([scores.preset, *ways])])
        return replace(row, notes=(*row.notes, note)), Pair(*agreed)
    return row, Pair(t, r)


def _pair_of_file_regions(
    sides: Sides, row: Row, target: Tensor, reference: Tensor, checks: BackgroundChecks | None
) -> Pair | None:
    """Large tensors that need no view are left to the kernel, which maps them a window at a
    time; mapped whole they would count as memory of this process."""
    both = (target, reference)
    if (
        row.view
        or target.shape != reference.shape
        or min(t.nbytes for t in both) < _MIN_FILE_REGION_BYTES
    ):
        return None
    if any(t.quantization or DTYPES[t.dtype].kind is not Kind.FLOAT for t in both):
        return None
    mine = sides.target.dense_file(target, verify=checks is None)
    theirs = sides.reference.dense_file(reference, verify=checks is None)
    if mine is None or theirs is None:
        return None
    if checks is not None:
        checks.defer(sides.target, target)
        checks.defer(sides.reference, reference)
    return Pair(sides.file_operand(0, mine, target), sides.file_operand(1, theirs, reference))
