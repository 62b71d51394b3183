"""Integers that end too early: what a target's grid of integers cannot hold, and whether cutting
it off gives the target's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.grids_between_sync_points import (
    IntegerGrids,
    find_grids_behind,
    grid_range,
)
from syncpoint.comparison.rows import Row
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.weights.clipped import cut_weight
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge, Op, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]
_EXPLAINED = 0.2
"""Of the square of the error at most this is left where clipping explains it."""
_FAR_MORE = 3.0
"""Cutting off costs so many times what rounding does, or it is how ranges are chosen."""


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """Values beyond the ends of a grid, and what is left of the op's error once they are cut."""

    tensor: Tensor
    """The integers."""
    what: str
    """Which values of the op: `output`, `input` or `weight`."""
    low: float
    high: float
    share: float
    """Of the values are beyond them."""
    greatest: float
    """Size of the value furthest out."""
    left: float
    """Root mean square error that stays when the values are cut."""
    error: float
    """The same before."""
    due: bool = True
    """Whether the reference's own values are beyond the ends as well: if not, they were wrong
    before, and the grid is not to blame."""

    @property
    def explains(self) -> bool:
        """Whether cutting gives most of what the target has."""
        return self.left**2 <= _EXPLAINED * self.error**2


def grids_of(case: Case, row: Row) -> IntegerGrids:
    """The integers between an op of the target and the sync points before it; its own too."""
    run = case.target
    if run is None:
        return IntegerGrids()
    paired = {r.target.key for r in case.rows if r.target.key.role is not Role.PARAMETER}
    found = find_grids_behind(run, row.target.key, paired - {row.target.key})
    own = run.tensor(row.target.key)
    if own is not None and own.quantization is not None:
        found.between.append(own)
    return found


def clipped(case: Case, experiment: RegionExperiment) -> Clipped | None:
    """The grid whose ends explain the op's error best."""
    found = [c for c in _clipped(case, experiment) if c.share > 0 and c.explains and c.due]
    return min(found, key=lambda c: c.left, default=None)


def _clipped(case: Case, experiment: RegionExperiment) -> Iterator[Clipped]:
    grids = grids_of(case, experiment.row)
    error = finite_rms(experiment.counted(experiment.error))
    for tensor in grids.between:
        ends = grid_range(tensor, experiment.truth.shape)
        if ends is None or int(np.prod(tensor.shape)) != experiment.truth.size:
            continue
        cut = np.clip(experiment.truth, *ends)
        low, before = ends[0], error
        if _begins_at_zero(tensor, ends):
            # It stands for a ReLU that was taken into the grid: only the upper end may cut.
            rectified = experiment.target - np.maximum(experiment.truth, low)
            before = min(error, finite_rms(experiment.counted(rectified)))
            low = np.full_like(low, -np.inf)
        left = finite_rms(experiment.counted(experiment.target - cut))
        output = (low, ends[1])
        found = _found(tensor, "output", output, experiment.truth, left, before, experiment.kept)
        found = replace(found, low=float(ends[0].min()))
        own = case.values("reference", experiment.row)
        yield replace(found, due=_is_due(found, ends, experiment.truth, own))
    for edge, value in experiment.inputs.items():
        if edge.role is Role.PARAMETER:
            yield from _weights(case, experiment, grids, edge, value, error)
            continue
        for tensor, what in _grids_at(case, experiment, grids, edge):
            ends = grid_range(tensor, value.shape)
            if ends is None or value.dtype.kind != "f":
                continue
            made = experiment.run_with({edge: np.clip(value, *ends).astype(value.dtype)})
            if made is not None and made.shape == experiment.target.shape:
                left = finite_rms(experiment.counted(experiment.target - made))
                found = _found(tensor, what, ends, value, left, error)
                row = case.by_reference.get(_key(edge, experiment))
                own = case.values("reference", row) if row is not None else None
                yield replace(found, due=_is_due(found, ends, value, own))


def _weights(
    case: Case,
    experiment: RegionExperiment,
    grids: IntegerGrids,
    edge: Edge,
    value: Array,
    error: float,
) -> Iterator[Clipped]:
    for tensor in grids.parameters:
        if tensor.count != value.size or value.dtype.kind != "f" or case.target is None:
            continue
        cut = cut_weight(case.target, tensor, value)
        made = experiment.run_with({edge: cut.value}) if cut is not None else None
        if cut is None or made is None or made.shape != experiment.target.shape:
            continue
        yield Clipped(
            tensor=tensor,
            what="weight",
            low=cut.low,
            high=cut.high,
            share=cut.share,
            greatest=cut.greatest,
            left=finite_rms(experiment.counted(experiment.target - made)),
            error=error,
        )


def _grids_at(
    case: Case, experiment: RegionExperiment, grids: IntegerGrids, edge: Edge
) -> Iterator[tuple[Tensor, str]]:
    row = case.by_reference.get(_key(edge, experiment))
    tensor_in = grids.inputs.get(row.target.key) if row is not None else None
    if tensor_in is not None:
        yield tensor_in, "input"


def _key(edge: Edge, experiment: RegionExperiment) -> TensorKey:
    return TensorKey(edge.op, edge.role, edge.index, experiment.region.part)


def _is_due(found: Clipped, ends: tuple[Array, Array], values: Array, own: Array | None) -> bool:
    """Whether the reference's own values are cut off too, and not only what the target has in
    their place: ranges are calibrated on the former."""
    if own is None:
        return True
    lost, theirs = (finite_rms(v - np.clip(v, *ends)) for v in (values, own))
    return theirs >= 0.25 * lost


def tensors_with_one_scale(run: Run | None, role: Role) -> Iterator[tuple[Tensor, float]]:
    """The quantized tensors of a role that have one scale for all, with it."""
    for tensor in run.tensors if run is not None else ():
        known = tensor.quantization
        if tensor.key.role is role and known is not None and len(known.scale) == 1:
            yield tensor, known.scale[0]


def cut_short(case: Case) -> list[tuple[Row, Clipped]]:
    """Where the target rounds to integers and cuts off far more than it rounds, the worst first.
    For runs that are off with nobody guilty: what rounding to integers costs, ends included, is
    allowed to an op that comes after."""
    found = []
    for tensor, scale in tensors_with_one_scale(case.target, Role.OUTPUT):
        op = case.op("target", tensor.key.op)
        if op is None or op_class(op.attributes.get("part_of") or op.type) != "quantize":
            continue
        ends = grid_range(tensor, (1,))
        sync = sync_point(case, op, tensor)
        own = case.values("reference", sync) if sync is not None else None
        if ends is None or sync is None or own is None:
            continue
        low = np.full(1, -np.inf) if _begins_at_zero(tensor, ends) else ends[0]
        error = finite_rms(own - np.clip(own, low, ends[1]))
        rounding = scale / np.sqrt(12)
        if error >= _FAR_MORE * rounding:
            one = _found(tensor, "output", (low, ends[1]), own, rounding, error)
            found.append((sync, replace(one, low=float(ends[0][0]))))
    return sorted(found, key=lambda one: -one[1].error / one[1].left)


def _begins_at_zero(tensor: Tensor, ends: tuple[Array, Array]) -> bool:
    """Whether a grid holds nothing below zero, as one that a ReLU was taken into."""
    known = tensor.quantization
    return known is not None and bool((np.abs(ends[0]) < np.min(known.scale) / 2).all())


def sync_point(case: Case, op: Op, tensor: Tensor) -> Row | None:
    """The row that tells what should have been rounded: the integers' own, that of what is made
    of them, or that of what they were made of."""
    part = tensor.key.part
    keys = [tensor.key]
    for reader in case.target.ops if case.target is not None else ():
        if any(e.op == op.key for e in reader.inputs) and op_class(reader.type) == "dequantize":
            keys.append(TensorKey(reader.key, Role.OUTPUT, 0, part))
    keys += [TensorKey(e.op, e.role, e.index, part) for e in op.inputs]
    rows = (case.rows[case.place[key]] for key in keys if key in case.place)
    return next((row for row in rows if row.target.key.role is not Role.PARAMETER), None)


def _found(
    tensor: Tensor,
    what: str,
    ends: tuple[Array, Array],
    values: Array,
    left: float,
    error: float,
    kept: NDArray[np.bool_] | None = None,
) -> Clipped:
    low, high = ends
    # A value that rounds to the last integer is not cut.
    known = tensor.quantization
    half = 0.5 * np.max(np.abs(known.scale)) if known is not None else 0.0
    beyond = (values < low - half) | (values > high + half)
    if kept is not None:
        beyond, values = beyond[kept], values[kept]
    furthest = float(np.abs(values[beyond]).max(initial=0.0))
    return Clipped(
        tensor=tensor,
        what=what,
        low=float(low.min()),
        high=float(high.max()),
        share=float(np.mean(beyond)) if values.size else 0.0,
        greatest=furthest,
        left=left,
        error=error,
    )
