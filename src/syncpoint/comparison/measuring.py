"""Sync points -> numbers: reads both tensors, lays one over the other, calls the kernel.

Values are mapped, measured in place and let go, a batch at a time, so that memory does not grow
with the size of the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.indices import chosen_scores
from syncpoint.comparison.masking import Masks, told, without_masked
from syncpoint.comparison.precision import Precisions
from syncpoint.comparison.progress_log import ProgressLog
from syncpoint.comparison.rows import End, Row
from syncpoint.errors import FormatError, SyncpointError
from syncpoint.matching.protocol import SyncPoint
from syncpoint.matching.views import View
from syncpoint.metrics import FileRegion, Operand, Pair, measure_each, statistics
from syncpoint.metrics.coarse import compare_statistics, incomparable, scaled
from syncpoint.metrics.limits import PRESETS, coarsest
from syncpoint.metrics.verdict import Reason
from syncpoint.run.dtypes import DTYPES, Kind
from syncpoint.run.model import Kept, OpKey, Role, Statistics, Tensor, TensorKey
from syncpoint.run.reader import Run

_BATCH_BYTES = 64 << 20
_BATCH_PAIRS = 4096
_LARGE = 16 << 20
"""Bytes from which a tensor is measured in pieces."""

_WIDENED_MASK = -65504.0 * (1 - 2**-8)
"""A mask of float16 that went on in a wider type: its lowest number with a score added to it."""

Progress = Callable[[int, int], None]
"""Told of how many of how many sync points are done."""

Beside = Callable[[list[tuple[Row, Pair]]], None]
"""Given the pairs of a batch while their values are at hand, for numbers of another kind."""


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

    def operand(self, side: int, tensor: Tensor) -> Operand:
        """A tensor as the kernel reads it, with what marks a masked position there."""
        return self._masking(side, tensor, operand_of((self.target, self.reference)[side], tensor))

    def region(self, side: int, path: Path, tensor: Tensor) -> Operand:
        """The same of a tensor that stays in its file."""
        region = FileRegion(str(path), tensor.offset, tensor.nbytes)
        return self._masking(side, tensor, Operand(region, tensor.dtype, shape=tensor.shape))

    def _masking(self, side: int, tensor: Tensor, found: Operand) -> Operand:
        wide = tensor.dtype in ("f32", "f64") and tensor.quantization is None
        if not wide or self.precisions[side].of(tensor) != "f16":
            return found
        return replace(found, mask_below=_WIDENED_MASK)

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
            tensor.key,
            kind,
            tensor.dtype,
            tensor.shape,
            op.module if op else "",
            str(op.source[-1]) if op and op.source else "",
            tensor.name,
            order,
        )


def rows(sides: Sides, points: Iterable[SyncPoint], outputs: set[TensorKey]) -> list[Row]:
    """Rows without numbers yet; those that cannot be measured say why. `outputs` are target
    tensors that stand for a model output, besides those recorded as one."""
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
            output=point.target.role is Role.MODEL_OUTPUT or point.target in outputs,
            notes=(point.note,) if point.note else (),
            unmeasured=point.unmeasured,
        )
        if not basis and not row.unmeasured:
            row = replace(
                row,
                unmeasured=f"{Reason.NO_TARGET_VALUE}: {target.kept} against {reference.kept}"
                " of unlike kind",
            )
        if _is_random(sides.target, row.target) and _is_random(sides.reference, row.reference):
            row = replace(row, unmeasured=f"{Reason.RANDOM}: draws random numbers")
        made.append(row)
    return made


def _is_random(run: Run, end: End) -> bool:
    """Whether an op draws random numbers. On one side only, as when a target was left in
    training mode, it is measured like any other."""
    return end.order >= 0 and run.ops[end.order].random


def _basis(target: Tensor, reference: Tensor) -> str:
    """The best form that both sides can be brought to; "" if there is none."""
    kept = {target.kept, reference.kept}
    if kept == {Kept.VALUES}:
        return Kept.VALUES
    if Kept.DIGEST in kept:
        if _digests_comparable(target, reference):
            return Kept.DIGEST
        # Tools that keep digests may keep a few figures beside them.
        told = all(t.statistics or t.kept is Kept.VALUES for t in (target, reference))
        return Kept.STATISTICS if told else ""
    return Kept.STATISTICS


def _digests_comparable(target: Tensor, reference: Tensor) -> bool:
    """Whether equal bytes would mean equal numbers."""
    return bool(target.digest) and (
        (target.digest_kind, target.dtype, target.quantization)
        == (reference.digest_kind, reference.dtype, reference.quantization)
    )


def measured(
    sides: Sides,
    made: list[Row],
    threads: int = 0,
    progress: Progress | None = None,
    log: ProgressLog | None = None,
    beside: Beside | None = None,
    same: Mapping[TensorKey, TensorKey] | None = None,
    seen: Callable[[list[Row]], None] | None = None,
) -> list[Row]:
    """The rows with their numbers. The result does not depend on the number of threads, nor on
    how much of it an earlier attempt has left in the log. `same` are target tensors that hold the
    very bytes of another one which has the same reference and view: it is measured for both.
    `seen` is shown the rows as they come."""
    same = same or {}
    done = [log.measured(row) if log is not None else None for row in made]
    left = [at for at, row in enumerate(done) if row is None and made[at].target.key not in same]
    places = iter(left)
    ready = len(made) - len(left)
    if seen is not None:
        seen([row for row in done if row is not None])
    for batch in batches(sides, [made[at] for at in left]):
        found = _measure_batch(sides, batch, threads, beside)
        if log is not None:
            log.add_measured(found)
        for row in found:
            done[next(places)] = row
        ready += len(found)
        if seen is not None:
            seen(found)
        if progress:
            progress(ready, len(made))
    known = {row.target.key: row for row in done if row is not None} if same else {}
    for at, row in enumerate(made):
        if done[at] is None:
            other = known[same[row.target.key]]
            done[at] = replace(
                row, numbers=other.numbers, unmeasured=other.unmeasured, view=other.view
            )
    return [row for row in done if row is not None]


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
    sides: Sides, batch: list[Row], threads: int, beside: Beside | None
) -> list[Row]:
    out: list[Row] = []
    waiting: list[tuple[int, Pair]] = []
    for row in batch:
        if row.unmeasured or not row.basis:
            out.append(row)
            continue
        try:
            row, pair = without_masked(sides.masks, *prepared(sides, row))
        except SyncpointError as error:
            row, pair = replace(row, unmeasured=f"{Reason.UNREADABLE}: {error}"), None
        if pair is not None:
            waiting.append((len(out), pair))
        out.append(row)
    found = measure_each([pair for _, pair in waiting], threads=threads)
    for (at, _), measurement in zip(waiting, found, strict=True):
        if isinstance(measurement, FormatError):
            out[at] = replace(out[at], unmeasured=f"{Reason.UNREADABLE}: {measurement}")
        else:
            out[at] = replace(out[at], numbers=measurement.as_dict())
            kept = sides.kept(out[at])
            if kept is not None:
                out[at] = told(out[at], kept)
    if beside is not None:
        beside([(out[at], pair) for at, pair in waiting])
    return out


def prepared(sides: Sides, row: Row) -> tuple[Row, Pair | None]:
    """Either numbers that need no kernel call, or the pair to measure."""
    target = sides.target.tensor(row.target.key)
    reference = sides.reference.tensor(row.reference.key)
    if target is None or reference is None:
        raise KeyError(row)
    if row.basis == Kept.DIGEST:
        same = target.digest == reference.digest and target.shape == reference.shape
        return replace(row, numbers={"count": target.count, "same_bytes": same}), None
    if row.basis == Kept.STATISTICS:
        if not row.view and _without_ones(target.shape) != _without_ones(reference.shape):
            return replace(row, unmeasured=_shapes(target.shape, reference.shape)), None
        both = (_statistics(sides.target, target), _statistics(sides.reference, reference))
        if both[0] is None or both[1] is None:
            none = target.statistics is None or reference.statistics is None
            why = "no statistics" if none else "statistics of values with several scales"
            return replace(row, unmeasured=f"{Reason.NO_TARGET_VALUE}: {why}"), None
        numbers = compare_statistics(both[0], both[1])
        why = "" if numbers["mismatched"] else incomparable(both[0], both[1])
        if why:
            return replace(row, unmeasured=f"{Reason.NO_TARGET_VALUE}: {why}"), None
        if not row.view and _digests_comparable(target, reference):
            numbers["same_bytes"] = target.digest == reference.digest
        return replace(row, numbers=numbers), None
    in_pieces = _in_pieces(sides, row, target, reference) if sides.masks is None else None
    if in_pieces is not None:
        return row, in_pieces
    t, r = sides.operand(0, target), sides.operand(1, reference)
    try:
        t, view = fitted(t, View(row.view), logical_shape(r))
    except ValueError:
        why = f"the view {row.view} does not fit {_text(logical_shape(t))}"
        return replace(row, unmeasured=f"{Reason.SHAPE}: {why}"), None
    row = replace(row, view=str(view))
    if logical_shape(t) != logical_shape(r):
        return replace(row, unmeasured=_shapes(logical_shape(t), logical_shape(r))), None
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


def _in_pieces(sides: Sides, row: Row, target: Tensor, reference: Tensor) -> Pair | None:
    """Large tensors that need no view are left to the kernel, which maps them a window at a
    time; mapped whole they would count as memory of this process."""
    both = (target, reference)
    if row.view or target.shape != reference.shape or min(t.nbytes for t in both) < _LARGE:
        return None
    if any(t.quantization or DTYPES[t.dtype].kind is not Kind.FLOAT for t in both):
        return None
    mine, theirs = sides.target.place(target), sides.reference.place(reference)
    if mine is None or theirs is None:
        return None
    return Pair(sides.region(0, mine, target), sides.region(1, theirs, reference))


def _shapes(target: tuple[int, ...], reference: tuple[int, ...]) -> str:
    return f"{Reason.SHAPE}: {_text(target)} against {_text(reference)}"


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape) or "scalar"


def operand_of(run: Run, tensor: Tensor) -> Operand:
    """A recorded tensor as the kernel reads it."""
    if tensor.quantization is not None:
        wrong = tensor.quantization.misfit(tensor.shape)
        if wrong:
            raise FormatError(f"quantization of {tensor.key} that fits its shape", wrong)
    return Operand(run.values(tensor), tensor.dtype, tensor.quantization)


def logical_shape(operand: Operand) -> tuple[int, ...]:
    """The shape of the numbers an operand stands for."""
    return operand.shape if operand.shape is not None else operand.array.shape


def fitted(operand: Operand, view: View, shape: tuple[int, ...]) -> tuple[Operand, View]:
    """The target seen through its view; axes of length one may come and go on their own, since
    they change neither the order nor the meaning of any value.

    Raises ValueError where the view does not fit the target.
    """
    data = operand.array
    if view:
        operand = as_real(operand)
        return replace(operand, data=view.apply(operand.array)), view
    if data.shape != shape and _without_ones(data.shape) == _without_ones(shape):
        operand = as_real(operand)
        view = View(f"reshape({','.join(map(str, shape))})")
        return replace(operand, data=operand.array.reshape(shape)), view
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
        table = np.asarray([*quantization.table, np.nan], np.float64)
        index = stored.astype(np.int64) - zero.astype(np.int64)
        outside = (index < 0) | (index >= len(quantization.table))
        return table[np.where(outside, len(quantization.table), index)] * scale
    return (stored.astype(np.float64) - zero) * scale


def steps_of(operand: Operand) -> NDArray[Any]:
    """The quantization step at every element."""
    quantization = operand.quantization
    if quantization is None:
        return np.zeros(operand.array.shape)
    ones = replace(operand, data=np.ones(operand.array.shape), dtype="f64")
    plain = replace(quantization, zero_point=(0,), table=())
    return dequantized(replace(ones, quantization=plain))


def _along(values: NDArray[Any], axis: int, block: int, stored: NDArray[Any]) -> NDArray[Any]:
    if values.size == 1:
        return values
    if block:
        values = np.repeat(values, block)[: stored.shape[axis]]
    shape = [1] * stored.ndim
    shape[axis] = -1
    return values.reshape(shape)


def _statistics(run: Run, tensor: Tensor) -> Statistics | None:
    """The statistics of the real numbers; those of stored integers are scaled where one scale
    holds for all of them."""
    if tensor.kept is Kept.VALUES:
        return statistics(operand_of(run, tensor))
    found, quantization = tensor.statistics, tensor.quantization
    if found is None or quantization is None:
        return found
    if len(quantization.scale) != 1 or len(quantization.zero_point) != 1 or quantization.table:
        return None
    return scaled(found, quantization.scale[0], quantization.zero_point[0])


def is_computed(row: Row) -> bool:
    """Whether an op computed the tensor of this row, as against being given it."""
    return row.target.key.role is Role.OUTPUT
