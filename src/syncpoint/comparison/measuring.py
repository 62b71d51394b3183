"""Sync points -> numbers: reads both tensors, lays one over the other, calls the kernel.

Values are mapped, measured in place and let go, a batch at a time, so that memory does not grow
with the size of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.indices import chosen_scores
from syncpoint.comparison.precision import Precisions
from syncpoint.comparison.rows import End, Row
from syncpoint.errors import SyncpointError
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics import Operand, Pair, measure, statistics
from syncpoint.metrics.coarse import compare_statistics
from syncpoint.metrics.limits import coarsest
from syncpoint.metrics.verdict import Reason
from syncpoint.run.model import Kept, OpKey, Role, Statistics, Tensor
from syncpoint.run.reader import Run

_BATCH_BYTES = 64 << 20
_BATCH_PAIRS = 4096

Progress = Callable[[int, int], None]
"""Told of how many of how many sync points are done."""


@dataclass
class Sides:
    """Both runs with what is looked up in them for every row."""

    target: Run
    reference: Run

    def __post_init__(self) -> None:
        self.precisions = (Precisions(self.target), Precisions(self.reference))
        self._order = tuple(
            {op.key: i for i, op in enumerate(run.ops)} for run in (self.target, self.reference)
        )

    def order(self, side: int, op: OpKey) -> int:
        """Place of an op in the execution order of its run, or -1."""
        return self._order[side].get(op, -1)

    def end(self, side: int, tensor: Tensor) -> End:
        """One end of a row."""
        run = (self.target, self.reference)[side]
        order = self.order(side, tensor.key.op)
        op = run.ops[order] if order >= 0 else None
        return End(
            tensor.key,
            op.type if op else tensor.key.role,
            tensor.dtype,
            tensor.shape,
            op.module if op else "",
            str(op.source[-1]) if op and op.source else "",
            tensor.name,
            order,
        )


def rows(sides: Sides, points: Iterable[SyncPoint]) -> list[Row]:
    """Rows without numbers yet; those that cannot be measured say why."""
    made = []
    for point in points:
        target = sides.target.tensor(point.target)
        reference = sides.reference.tensor(point.reference)
        if target is None or reference is None:
            raise KeyError(point)
        basis = _basis(target, reference)
        presets = [p.of(t) for p, t in zip(sides.precisions, (target, reference), strict=True)]
        row = Row(
            sides.end(0, target),
            sides.end(1, reference),
            point.evidence,
            point.confidence,
            str(point.view),
            basis,
            coarsest(presets),
        )
        if not basis:
            row = replace(
                row,
                unmeasured=f"{Reason.NO_TARGET_VALUE}: {target.kept} against {reference.kept}"
                " of unlike kind",
            )
        order = row.target.order
        if order >= 0 and sides.target.ops[order].random:
            row = replace(row, unmeasured=f"{Reason.RANDOM}: draws random numbers")
        made.append(row)
    return made


def _basis(target: Tensor, reference: Tensor) -> str:
    """The best form that both sides can be brought to; "" if there is none."""
    kept = {target.kept, reference.kept}
    if kept == {Kept.VALUES}:
        return Kept.VALUES
    if Kept.DIGEST in kept:
        same_kind = target.digest and target.digest_kind == reference.digest_kind
        return Kept.DIGEST if same_kind and target.dtype == reference.dtype else ""
    return Kept.STATISTICS


def measured(
    sides: Sides, made: list[Row], threads: int = 0, progress: Progress | None = None
) -> list[Row]:
    """The rows with their numbers. The result does not depend on the number of threads."""
    done: list[Row] = []
    for batch in _batches(sides, made):
        done.extend(_measure_batch(sides, batch, threads))
        if progress:
            progress(len(done), len(made))
    return done


def _batches(sides: Sides, made: list[Row]) -> Iterator[list[Row]]:
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


def _measure_batch(sides: Sides, batch: list[Row], threads: int) -> list[Row]:
    out: list[Row] = []
    waiting: list[tuple[int, Pair]] = []
    for row in batch:
        if row.unmeasured or not row.basis:
            out.append(row)
            continue
        try:
            row, pair = _prepare(sides, row)
        except SyncpointError as error:
            row, pair = replace(row, unmeasured=f"{Reason.UNREADABLE}: {error}"), None
        if pair is not None:
            waiting.append((len(out), pair))
        out.append(row)
    for (at, _), measurement in zip(
        waiting, measure([pair for _, pair in waiting], threads=threads), strict=True
    ):
        out[at] = replace(out[at], numbers=measurement.as_dict())
    return out


def _prepare(sides: Sides, row: Row) -> tuple[Row, Pair | None]:
    """Either numbers that need no kernel call, or the pair to measure."""
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None:
        raise KeyError(row)
    if row.basis == Kept.DIGEST:
        same = target.digest == reference.digest and target.shape == reference.shape
        return replace(row, numbers={"count": target.count, "same_bytes": same}), None
    if row.basis == Kept.STATISTICS:
        if not row.view and target.count != reference.count:
            return replace(row, unmeasured=_shapes(target.shape, reference.shape)), None
        both = (_statistics(sides.target, target), _statistics(sides.reference, reference))
        return replace(row, numbers=compare_statistics(*both)), None
    t, r = operand_of(sides.target, target), operand_of(sides.reference, reference)
    t, view = fitted(t, View(row.view), logical_shape(r))
    row = replace(row, view=str(view))
    if logical_shape(t) != logical_shape(r):
        return replace(row, unmeasured=_shapes(logical_shape(t), logical_shape(r))), None
    scores = chosen_scores(sides.reference, row.reference, t.array, r.array)
    if scores is not None:
        note = "indices judged by the reference's scores at the places they choose"
        ways = [
            p.through(e.key.op)
            for p, e in zip(sides.precisions, (row.target, row.reference), strict=True)
        ]
        preset = coarsest([scores.preset, *ways])
        row = replace(row, notes=(*row.notes, note), preset=preset)
        return row, Pair(scores.target, scores.reference)
    return row, Pair(t, r)


def _shapes(target: tuple[int, ...], reference: tuple[int, ...]) -> str:
    return f"{Reason.SHAPE}: {_text(target)} against {_text(reference)}"


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape) or "scalar"


def operand_of(run: Run, tensor: Tensor) -> Operand:
    """A recorded tensor as the kernel reads it."""
    return Operand(run.values(tensor), tensor.dtype, tensor.quantization)


def logical_shape(operand: Operand) -> tuple[int, ...]:
    """The shape of the numbers an operand stands for."""
    return operand.shape if operand.shape is not None else operand.array.shape


def fitted(operand: Operand, view: View, shape: tuple[int, ...]) -> tuple[Operand, View]:
    """The target seen through its view; axes of length one may come and go on their own, since
    they change neither the order nor the meaning of any value."""
    data = operand.array
    try:
        if view:
            operand = as_real(operand)
            operand = replace(operand, data=view.apply(operand.array))
        elif data.shape != shape and [n for n in data.shape if n != 1] == [
            n for n in shape if n != 1
        ]:
            view = View(f"reshape({','.join(map(str, shape))})")
            operand = as_real(operand)
            operand = replace(operand, data=operand.array.reshape(shape))
    except ValueError:
        # The view does not fit this shape: the row then says both shapes.
        return operand, view
    return operand, view


def as_real(operand: Operand) -> Operand:
    """The operand with its quantization undone, for the few places that need plain numbers."""
    if operand.quantization is None:
        return operand
    return Operand(dequantized(operand), "f64")


def dequantized(operand: Operand) -> NDArray[Any]:
    """The real numbers, in float64, that an operand stands for."""
    stored = operand.array
    quantization = operand.quantization
    if quantization is None:
        return stored.astype(np.float64)
    scale = np.asarray(quantization.scale, np.float64)
    zero = np.asarray(quantization.zero_point, np.float64)
    if quantization.axis is not None:
        scale, zero = (
            _along(x, quantization.axis, quantization.block, stored) for x in (scale, zero)
        )
    if quantization.table:
        return np.asarray(quantization.table, np.float64)[stored.astype(np.int64)] * scale
    return (stored.astype(np.float64) - zero) * scale


def _along(values: NDArray[Any], axis: int, block: int, stored: NDArray[Any]) -> NDArray[Any]:
    if values.size == 1:
        return values
    if block:
        values = np.repeat(values, block)[: stored.shape[axis]]
    shape = [1] * stored.ndim
    shape[axis] = -1
    return values.reshape(shape)


def _statistics(run: Run, tensor: Tensor) -> Statistics:
    if tensor.statistics is not None:
        return tensor.statistics
    return statistics(operand_of(run, tensor))


def is_computed(row: Row) -> bool:
    """Whether an op computed the tensor of this row, as against being given it."""
    return row.target.key.role is Role.OUTPUT
