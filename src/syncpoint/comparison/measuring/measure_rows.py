"""Measure the rows in batches that fit memory: prepare each pair (view, file region), call the
kernel, log and report; copy rows of equal or logged pairs.

Values are memory-mapped, measured in place and released, one batch at a time, so that memory does
not grow with the size of the runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from syncpoint.comparison.checksum_status import BackgroundChecks, failed_row, is_damaged
from syncpoint.comparison.events import BatchMeasured, RowsRestored
from syncpoint.comparison.measuring.digest_and_statistics_pairs import (
    measure_by_digest,
    measure_by_statistics,
)
from syncpoint.comparison.measuring.index_outputs import (
    select_scores,
    sort_along,
    unordered_axis,
)
from syncpoint.comparison.measuring.masking import remove_masked, restore_indices
from syncpoint.comparison.operands import fit_view, logical_shape, shapes_reason, view_reason
from syncpoint.comparison.rows import Row
from syncpoint.comparison.sides import Sides
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
"""Minimum size from which a tensor is left in its file and measured in windows."""


def measure_rows(
    sides: Sides,
    rows: list[Row],
    threads: int = 0,
    log: ProgressLog | None = None,
    same: Mapping[TensorKey, TensorKey] | None = None,
    events: EventSink = NULL_SINK,
) -> list[Row]:
    """The rows with their numbers.

    They do not depend on the number of threads, nor on how many rows an earlier attempt logged.
    `same` are target tensors with the bytes, the reference and the view of another one, which is
    measured for both.
    """
    same = same or {}
    measured_rows = [_find_logged_row(log, row) for row in rows]
    open_indices = [
        index
        for index, row in enumerate(measured_rows)
        if row is None and rows[index].target.key not in same
    ]
    next_index = iter(open_indices)
    done_count = len(rows) - len(open_indices)
    events.send(RowsRestored([row for row in measured_rows if row is not None]))
    for batch in split_batches(sides, [rows[index] for index in open_indices]):
        done_count += len(batch)
        for row in _measure_and_report(sides, batch, threads, log, events, (done_count, len(rows))):
            measured_rows[next(next_index)] = row
    return _copy_repeated_rows(rows, measured_rows, same)


def _copy_repeated_rows(
    rows: list[Row], measured_rows: list[Row | None], same: Mapping[TensorKey, TensorKey]
) -> list[Row]:
    """All rows; a row that was not measured gets the numbers of the row with the same bytes."""
    row_by_target = (
        {row.target.key: row for row in measured_rows if row is not None} if same else {}
    )
    complete_rows = []
    for row, complete_row in zip(rows, measured_rows, strict=True):
        if complete_row is None:
            other = row_by_target[same[row.target.key]]
            complete_row = replace(
                row, numbers=other.numbers, unmeasured=other.unmeasured, view=other.view
            )
        complete_rows.append(complete_row)
    return complete_rows


def _measure_and_report(
    sides: Sides,
    batch: list[Row],
    threads: int,
    log: ProgressLog | None,
    events: EventSink,
    progress: tuple[int, int],
) -> list[Row]:
    """Measure a batch, log it and report it.

    The values of its pairs are released on return, before the next batch is read.
    """
    rows, pairs = _measure_batch(sides, batch, threads)
    if log is not None:
        log.add_measured(rows)
    events.send(BatchMeasured(rows, pairs, *progress))
    return rows


def _find_logged_row(log: ProgressLog | None, row: Row) -> Row | None:
    """The row as an earlier attempt measured it.

    A damaged row is read again, since its file may have been replaced.
    """
    logged = log.measured_row(row) if log is not None else None
    return None if logged is not None and is_damaged(logged) else logged


def split_batches(sides: Sides, rows: list[Row]) -> Iterator[list[Row]]:
    """The rows in batches whose values fit into memory together."""
    batch: list[Row] = []
    size = 0
    for row in rows:
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
    measured_rows: list[Row] = []
    waiting: list[tuple[int, Pair]] = []
    checks = BackgroundChecks(sides, threads)
    for row in batch:
        if row.unmeasured or not row.basis:
            measured_rows.append(row)
            continue
        try:
            row, pair = remove_masked(sides.masks, *prepare_pair(sides, row, checks))
        except SyncpointError as error:
            row, pair = failed_row(sides, row, error), None
        if pair is not None:
            waiting.append((len(measured_rows), pair))
            checks.assign(len(measured_rows))
        checks.discard()
        measured_rows.append(row)
    pairs = [pair for _, pair in waiting]
    measurements, failures = checks.run_beside(lambda: measure_each(pairs, threads=threads))
    for (index, _), measurement in zip(waiting, measurements, strict=True):
        if index in failures:
            measured_rows[index] = failed_row(sides, measured_rows[index], failures[index])
        elif isinstance(measurement, FormatError):
            measured_rows[index] = failed_row(sides, measured_rows[index], measurement)
        else:
            measured_rows[index] = replace(measured_rows[index], numbers=measurement.as_dict())
            counted = sides.counted_elements(measured_rows[index])
            if counted is not None:
                measured_rows[index] = restore_indices(measured_rows[index], counted)
    return measured_rows, [
        (measured_rows[index], pair) for index, pair in waiting if index not in failures
    ]


def prepare_pair(
    sides: Sides, row: Row, checks: BackgroundChecks | None = None
) -> tuple[Row, Pair | None]:
    """The row with numbers that need no kernel call, or the pair to measure.

    `checks` verify large tensors in the background.
    """
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None:
        raise KeyError(row)
    if row.basis == Kept.DIGEST:
        return measure_by_digest(sides, row, target, reference), None
    if row.basis == Kept.STATISTICS:
        return measure_by_statistics(sides, row, target, reference), None
    file_pair = None
    if sides.masks is None:
        file_pair = _pair_of_file_regions(sides, row, target, reference, checks)
    if file_pair is not None:
        return row, file_pair
    operands = (sides.operand(0, target, checks), sides.operand(1, reference, checks))
    return build_pair(sides, row, *operands)


def build_pair(sides: Sides, row: Row, t: Operand, r: Operand) -> tuple[Row, Pair | None]:
    """The pair to measure; None where the row has the reason why it cannot be measured."""
    try:
        t, view = fit_view(t, View(row.view), logical_shape(r))
    except ValueError:
        return replace(row, unmeasured=view_reason(row.view, logical_shape(t))), None
    row = replace(row, view=str(view))
    if logical_shape(t) != logical_shape(r):
        return replace(row, unmeasured=shapes_reason(logical_shape(t), logical_shape(r))), None
    computed_key = sides.computed_key(row.reference.key)
    scores = select_scores(sides.reference, computed_key, t.array, r.array)
    axis = unordered_axis(sides.reference, computed_key)
    if scores is None and axis is not None:
        note = f"in ascending order along axis {axis}: the op returns them in any order"
        pair = Pair(sort_along(t, axis), sort_along(r, axis))
        return replace(row, notes=(*row.notes, note)), pair
    if scores is not None:
        note = "indices are judged by the scores of the reference at these indices"
        upstream_presets = [
            precisions.through(end.key.op)
            for precisions, end in zip(sides.precisions, (row.target, row.reference), strict=True)
        ]
        operands = scores.as_operands(PRESETS[coarsest([scores.preset, *upstream_presets])])
        return replace(row, notes=(*row.notes, note)), Pair(*operands)
    return row, Pair(t, r)


def _pair_of_file_regions(
    sides: Sides, row: Row, target: Tensor, reference: Tensor, checks: BackgroundChecks | None
) -> Pair | None:
    """Large tensors that need no view, as regions of their files; None for other tensors.

    The kernel maps one window of a region at a time. Mapped whole, the tensors would count as
    memory of this process.
    """
    tensors = (target, reference)
    if (
        row.view
        or target.shape != reference.shape
        or min(t.nbytes for t in tensors) < _MIN_FILE_REGION_BYTES
    ):
        return None
    if any(t.quantization or DTYPES[t.dtype].kind is not Kind.FLOAT for t in tensors):
        return None
    if unordered_axis(sides.reference, sides.computed_key(row.reference.key)) is not None:
        return None
    target_path = sides.target.dense_file(target, verify=checks is None)
    reference_path = sides.reference.dense_file(reference, verify=checks is None)
    if target_path is None or reference_path is None:
        return None
    if checks is not None:
        checks.defer(sides.target, target)
        checks.defer(sides.reference, reference)
    return Pair(
        sides.file_operand(0, target_path, target), sides.file_operand(1, reference_path, reference)
    )
