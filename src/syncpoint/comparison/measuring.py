"""Sync points -> numbers: reads both tensors, lays one over the other, calls the kernel.

Values are mapped, measured in place and let go, a batch at a time, so that memory does not grow
with the size of the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.checksum_status import BackgroundChecks, failed_row, is_damaged
from syncpoint.comparison.events import BatchMeasured, RowsRestored
from syncpoint.comparison.index_outputs import chosen_scores
from syncpoint.comparison.masking import Masks, told, without_masked
from syncpoint.comparison.operands import (
    WIDENED_MASK,
    fitted,
    logical_shape,
    operand_of,
    shapes_reason,
    view_reason,
)
from syncpoint.comparison.rows import End, Row
from syncpoint.comparison.storage.progress_log import ProgressLog
from syncpoint.comparison.tensor_precision import Precisions
from syncpoint.comparison.without_values import basis_of, by_digest, by_statistics, unlike_bytes
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.matching.masks import Mask
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics import FileRegion, Operand, Pair, measure_each
from syncpoint.metrics.limits import PRESETS, coarsest
from syncpoint.metrics.verdict import Reason, ReasonCode
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.events import NULL_SINK, EventSink
from syncpoint.run.model import Kept, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run

_BATCH_BYTES = 64 << 20
_BATCH_PAIRS = 4096
_RANDOM = Reason(ReasonCode.RANDOM, "draws random numbers")
_LARGE = 16 << 20
"""Bytes from which a tensor is measured in pieces."""


@dataclass
class Sides:
    """Both runs with what is looked up in them for every row."""

    target: Run
    reference: Run
    masks: Masks | None = None
    """What the user leaves out of the measurement."""

    def __post_init__(self) -> None:
        self.precisions = (
            Precisions(self.target, self.reference),
            Precisions(self.reference, self.target),
        )
        self._aliases: dict[int, dict[str, TensorKey]] = {}
        self._order = tuple(
            {op.key: i for i, op in enumerate(run.ops)} for run in (self.target, self.reference)
        )

    def operand(self, side: int, tensor: Tensor, checks: BackgroundChecks | None = None) -> Operand:
        """A tensor as the kernel reads it, with what marks a masked position there. It is verified
        when it is read, or by `checks` where those take it."""
        run = (self.target, self.reference)[side]
        if checks is not None and checks.is_deferred(run, tensor):
            found = operand_of(run, tensor, verify=False)
            checks.defer(run, tensor, found.array)
        else:
            found = operand_of(run, tensor)
        return self.masking(side, tensor, found)

    def region(self, side: int, path: Path, tensor: Tensor) -> Operand:
        """The same of a tensor that stays in its file."""
        region = FileRegion(str(path), tensor.offset, tensor.nbytes)
        return self.masking(side, tensor, Operand(region, tensor.dtype, shape=tensor.shape))

    def masking(self, side: int, tensor: Tensor, found: Operand) -> Operand:
        """Values that stand for a tensor, with what marks a masked position there."""
        wide = tensor.dtype in ("f32", "f64") and tensor.quantization is None
        if not wide or self.precisions[side].of(tensor) != "f16":
            return found
        return replace(found, mask_below=WIDENED_MASK)

    def kept(self, row: Row) -> NDArray[np.bool_] | None:
        """Which elements of a row count; None where all do. ValueError where a mask does not
        fit."""
        return self.masks.kept(row) if self.masks is not None else None

    def made_by(self, key: TensorKey) -> TensorKey:
        """Where a tensor of the reference was computed: for a model output, its op's output."""
        tensor = self.reference.tensor(key) if key.role is Role.MODEL_OUTPUT else None
        return self._made(1).get(tensor.alias_of, key) if tensor else key

    def _made(self, side: int) -> dict[str, TensorKey]:
        if side not in self._aliases:
            tensors = (self.target, self.reference)[side].tensors
            outputs = (t.key for t in tensors if t.key.role is Role.OUTPUT)
            self._aliases[side] = {str(k): k for k in outputs}
        return self._aliases[side]

    def order(self, side: int, op: OpKey) -> int:
        """Place of an op in the execution order of its run, or -1."""
        return self._order[side].get(op, -1)

    def end(self, side: int, tensor: Tensor) -> End:
        """One end of a row."""
        run = (self.target, self.reference)[side]
        computed = tensor.key.role in (Role.OUTPUT, Role.INPUT, Role.MODEL_OUTPUT)
        order = self.order(side, tensor.key.op) if computed else -1
        op = run.ops[order] if order >= 0 else None
        kind = op.type if op else tensor.key.role
        if tensor.key.role is Role.STATE and tensor.alias_of in self._made(side):
            # What wrote the state tells where to look.
            op = run.ops[self.order(side, self._made(side)[tensor.alias_of].op)]
        return End(
            key=tensor.key,
            type=kind,
            dtype=tensor.dtype,
            shape=tensor.shape,
            module=op.module if op else "",
            source=str(op.source[-1]) if op and op.source else "",
            name=tensor.name,
            order=order,
        )


def build_sides(target: Run, reference: Run, masks: Sequence[Mask] = ()) -> Sides:
    """Both runs with the masks of a map: what a comparison and its diagnosis read through."""
    return Sides(target, reference, Masks(masks, target, reference) if masks else None)


def rows(sides: Sides, points: Iterable[SyncPoint], outputs: set[TensorKey]) -> list[Row]:
    """Rows without numbers yet; those that cannot be measured say why. `outputs` are target
    tensors that stand for a model output, besides those recorded as one."""
    made = []
    for point in points:
        target = sides.target.tensor(point.target)
        reference = sides.reference.tensor(point.reference)
        if target is None or reference is None:
            raise KeyError(point)
        basis = basis_of(target, reference, point.view)
        presets = [p.of(t) for p, t in zip(sides.precisions, (target, reference), strict=True)]
        row = Row(
            target=sides.end(0, target),
            reference=sides.end(1, reference),
            evidence=point.evidence,
            confidence=point.confidence,
            view=str(point.view),
            basis=basis,
            preset=coarsest(presets),
            output=point.target.role is Role.MODEL_OUTPUT or point.target in outputs,
            ends_only=point.ends_only,
            notes=(point.note,) if point.note else (),
            unmeasured=point.unmeasured,
        )
        if not basis and not row.unmeasured:
            why = unlike_bytes(target, reference, point.view)
            row = replace(row, unmeasured=Reason(ReasonCode.INCOMPARABLE, why))
        if _is_random(sides.target, row.target) and _is_random(sides.reference, row.reference):
            row = replace(row, unmeasured=_RANDOM)
        made.append(row)
    return made


def _is_random(run: Run, end: End) -> bool:
    """Whether an op draws random numbers. On one side only, as when a target was left in
    training mode, it is measured like any other."""
    return end.order >= 0 and run.ops[end.order].random


def measured(
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
    done = [_logged(log, row) for row in made]
    left = [at for at, row in enumerate(done) if row is None and made[at].target.key not in same]
    places = iter(left)
    ready = len(made) - len(left)
    events.send(RowsRestored([row for row in done if row is not None]))
    for batch in batches(sides, [made[at] for at in left]):
        ready += len(batch)
        for row in _measure_and_report(sides, batch, threads, log, events, (ready, len(made))):
            done[next(places)] = row
    return _with_repeated(made, done, same)


def _with_repeated(
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


def _logged(log: ProgressLog | None, row: Row) -> Row | None:
    """The row as an earlier attempt measured it. A damaged one is read again: its file may have
    been replaced since."""
    logged = log.measured(row) if log is not None else None
    return None if logged is not None and is_damaged(logged) else logged


def batches(sides: Sides, made: list[Row]) -> Iterator[list[Row]]:
    """The rows in lots whose values may be held at the same time."""
    batch: list[Row] = []
    size = 0
    for row in made:
        tensors = (
            sides.target.tensor(row.target.key),
            sides.reference.tensor(row.reference.key),
        )
        nbytes = sum(t.nbytes for t in tensors if t)
        if batch and (size + nbytes > _BATCH_BYTES or len(batch) == _BATCH_PAIRS):
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
            row, pair = without_masked(sides.masks, *prepared(sides, row, checks))
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
            kept = sides.kept(out[at])
            if kept is not None:
                out[at] = told(out[at], kept)
    return out, [(out[at], pair) for at, pair in waiting if at not in failures]


def prepared(
    sides: Sides, row: Row, checks: BackgroundChecks | None = None
) -> tuple[Row, Pair | None]:
    """Either numbers that need no kernel call, or the pair to measure. Large tensors are left to
    `checks` to verify."""
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None:
        raise KeyError(row)
    if row.basis == Kept.DIGEST:
        return by_digest(sides, row, target, reference), None
    if row.basis == Kept.STATISTICS:
        return by_statistics(sides, row, target, reference), None
    in_pieces = None
    if sides.masks is None:
        in_pieces = _in_pieces(sides, row, target, reference, checks)
    if in_pieces is not None:
        return row, in_pieces
    operands = (sides.operand(0, target, checks), sides.operand(1, reference, checks))
    return paired(sides, row, *operands)


def paired(sides: Sides, row: Row, t: Operand, r: Operand) -> tuple[Row, Pair | None]:
    """The pair to measure, whoever gave the target's values; None where the row says why not."""
    try:
        t, view = fitted(t, View(row.view), logical_shape(r))
    except ValueError:
        return replace(row, unmeasured=view_reason(row.view, logical_shape(t))), None
    row = replace(row, view=str(view))
    if logical_shape(t) != logical_shape(r):
        return replace(row, unmeasured=shapes_reason(logical_shape(t), logical_shape(r))), None
    scores = chosen_scores(sides.reference, sides.made_by(row.reference.key), t.array, r.array)
    if scores is not None:
        note = "indices judged by the reference's scores at the places they choose"
        ways = [
            precisions.through(end.key.op)
            for precisions, end in zip(sides.precisions, (row.target, row.reference), strict=True)
        ]
        agreed = scores.agreed(PRESETS[coarsest([scores.preset, *ways])])
        return replace(row, notes=(*row.notes, note)), Pair(*agreed)
    return row, Pair(t, r)


def _in_pieces(
    sides: Sides, row: Row, target: Tensor, reference: Tensor, checks: BackgroundChecks | None
) -> Pair | None:
    """Large tensors that need no view are left to the kernel, which maps them a window at a
    time; mapped whole they would count as memory of this process."""
    both = (target, reference)
    if row.view or target.shape != reference.shape or min(t.nbytes for t in both) < _LARGE:
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
    return Pair(sides.region(0, mine, target), sides.region(1, theirs, reference))


def is_computed(row: Row) -> bool:
    """Whether an op computed the tensor of this row, as against being given it."""
    return row.target.key.role is Role.OUTPUT
