"""Wrong scales and zero points: by which factor or shift of a grid of integers the reference's ops
give the target's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.introduced_error.grids_between_sync_points import IntegerGrids, grid_range
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.numerics.clipping import grids_of
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge, Kept, Role, Tensor, TensorKey
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]
_EXPLAINED = 0.25
"""Of the error at most this may be left."""
_SAME = 0.02
"""Factors this close to one are none."""
_ROUND = 0.1
"""A weight of the right size is this close to it, rounding and all."""


@dataclass(frozen=True, kw_only=True)
class Misread:
    """Integers that stand for other numbers than they should."""

    what: str
    """`output`, `input`, `weight`"""
    factor: float
    """What the target has over what it should have."""
    shift: float
    """In real numbers."""
    tensor: Tensor | None
    """The integers, where one grid is known to be meant."""
    left: float
    error: float

    @property
    def step(self) -> float:
        """The declared scale; 0 where it is not known or there are several."""
        known = self.tensor.quantization if self.tensor is not None else None
        return known.scale[0] if known is not None and len(known.scale) == 1 else 0.0


def misread(case: Case, experiment: RegionExperiment) -> Misread | None:
    """The factor or shift that explains an op's error best; None where none does."""
    grids = grids_of(case, experiment.row)
    if not grids and not any(_input_grid(case, experiment, grids, e) for e in experiment.inputs):
        return None
    error = finite_rms(experiment.counted(experiment.error))
    allowed = max(_EXPLAINED * error, 3 * experiment.noise)
    fitting = [
        one
        for one in _candidates(case, experiment, grids, error)
        if one.left <= min(allowed, 0.6 * error) and _is_wrong(one)
    ]
    best = min(fitting, key=lambda one: one.left, default=None)
    if best is None or best.shift:
        return best
    # In a product the two factors cannot be told apart by its result: the weight itself can.
    if best.what == "weight":
        return best if _is_weight(case, best, experiment) else _of_either(best)
    return _weight_or_input(case, experiment, best, fitting) if best.what == "input" else best


def _is_weight(case: Case, best: Misread, experiment: RegionExperiment) -> bool:
    """Whether the weight itself is as large as the factor says, or about as the reference's."""
    size = weight_ratio(case, best, experiment)
    if size is None:
        return False
    return abs(size / best.factor - 1) < _SAME or abs(size - 1) < _ROUND


def _weight_or_input(
    case: Case, experiment: RegionExperiment, best: Misread, fitting: list[Misread]
) -> Misread:
    """What a factor of the input stands for, where one of the weight explains as much."""
    for one in fitting:
        if one.what != "weight" or one.shift or one.left > 2 * best.left:
            continue
        ratio = weight_ratio(case, one, experiment)
        if ratio is not None and abs(ratio / one.factor - 1) < _SAME:
            return one
        if ratio is None or abs(ratio - 1) > _SAME:
            return _of_either(best)
    return best


def _of_either(best: Misread) -> Misread:
    """A factor that may be of the weight or of the input."""
    return replace(best, what="weight or input", tensor=None)


def _is_wrong(one: Misread) -> bool:
    if one.shift:
        return not one.step or abs(one.shift) >= 0.6 * one.step
    return abs(one.factor - 1) > _SAME


def _candidates(
    case: Case, experiment: RegionExperiment, grids: IntegerGrids, error: float
) -> Iterator[Misread]:
    own = next((t for t in grids.between if t.count == experiment.truth.size), None)
    inner = _inner(experiment, own)
    truth, target = experiment.truth[inner], experiment.target[inner]
    if truth.size >= 8 and float(np.ptp(truth)) > 0:
        mean = float(np.mean(target - truth))
        yield Misread(
            what="output",
            factor=1.0,
            shift=mean,
            tensor=own,
            left=finite_rms(target - truth - mean),
            error=error,
        )
        square = float(np.sum(np.square(truth)))
        factor = float(np.sum(truth * target)) / square if square else 1.0
        yield Misread(
            what="output",
            factor=factor,
            shift=0.0,
            tensor=own,
            left=finite_rms(target - factor * truth),
            error=error,
        )
    for edge, value in experiment.inputs.items():
        weight = edge.role is Role.PARAMETER
        if value.dtype.kind != "f" or (weight and (value.ndim < 2 or not grids.parameters)):
            continue
        grid = (
            _weight_grid(case, grids, value)
            if weight
            else _input_grid(case, experiment, grids, edge)
        )
        if grid is None and not weight:
            continue
        if grid is not None and not weight:
            yield from _read_as(case, experiment, edge, value, grid, error, inner)
        yield from _fed(
            experiment, edge, value, grid, "weight" if weight else "input", error, inner
        )


def _read_as(
    case: Case,
    experiment: RegionExperiment,
    edge: Edge,
    value: Array,
    grid: Tensor,
    error: float,
    inner: Any,
) -> Iterator[Misread]:
    """What the target itself made of the integers, where it recorded that: another number than the
    one that they were made of."""
    run = case.target
    for op in run.ops if run is not None else ():
        if op_class(op.type) != "dequantize" or not any(e.op == grid.key.op for e in op.inputs):
            continue
        if op.key == experiment.row.target.key.op:
            continue
        tensor = run.tensor(TensorKey(op.key, Role.OUTPUT, 0, grid.key.part)) if run else None
        if run is None or tensor is None or tensor.kept is not Kept.VALUES:
            continue
        read = read_real_values(run, replace(tensor, quantization=None))
        if read is None or read.shape != value.shape or not np.isfinite(read).all():
            continue
        made = experiment.run_with({edge: read.astype(value.dtype)})
        if made is None or made.shape != experiment.target.shape or not float(np.ptp(value)):
            continue
        factor, shift = (float(v) for v in np.polyfit(value.reshape(-1), read.reshape(-1), 1))
        if finite_rms(read - factor * value - shift) > 0.1 * finite_rms(read - value):
            continue
        left = finite_rms((experiment.target - made)[inner])
        if abs(factor - 1) > _SAME / 2:
            yield Misread(
                what="input", factor=factor, shift=0.0, tensor=grid, left=left, error=error
            )
        else:
            yield Misread(
                what="input", factor=1.0, shift=shift, tensor=grid, left=left, error=error
            )


def _fed(
    experiment: RegionExperiment,
    edge: Edge,
    value: Array,
    grid: Tensor | None,
    what: str,
    error: float,
    inner: Any,
) -> Iterator[Misread]:
    """The factor and the shift of what an op reads, solved for where it is linear in it and
    then tried."""
    none = experiment.run_with({edge: np.zeros_like(value)})
    more = experiment.run_with({edge: value + 1})
    for base, slope, shifts in ((none, experiment.truth, False), (experiment.truth, more, True)):
        if base is None or slope is None or base.shape != slope.shape:
            continue
        along = (slope - base)[inner]
        square = float(np.sum(np.square(along)))
        if not square or not np.isfinite(square):
            continue
        found = float(np.sum((experiment.target - base)[inner] * along)) / square
        for _ in range(3):
            # A ReLU bends the line: the place is corrected by what trying it shows.
            changed = value + found if shifts else value * found
            made = experiment.run_with({edge: changed.astype(value.dtype)})
            if made is None or made.shape != experiment.target.shape:
                break
            left = finite_rms((experiment.target - made)[inner])
            yield Misread(
                what=what,
                factor=1.0 if shifts else found,
                shift=found if shifts else 0.0,
                tensor=grid,
                left=left,
                error=error,
            )
            rest = (experiment.target - made)[inner]
            step = float(np.sum(rest * along)) / square
            if abs(step) < 1e-4:
                break
            found += step


def _inner(experiment: RegionExperiment, own: Tensor | None) -> NDArray[np.bool_]:
    """The elements that are not at the ends of the grid, where there is one."""
    inner = experiment.without_masked(
        np.isfinite(experiment.target) & np.isfinite(experiment.truth)
    )
    ends = grid_range(own, experiment.truth.shape) if own is not None else None
    if ends is not None:
        # What stands for the last integer was rounded to the target's own type since.
        near = 1e-6 * (ends[1] - ends[0])
        inside: NDArray[np.bool_] = (
            inner & (experiment.target > ends[0] + near) & (experiment.target < ends[1] - near)
        )
        if np.count_nonzero(inside) >= 8:
            return inside
    return inner


def _input_grid(
    case: Case, experiment: RegionExperiment, grids: IntegerGrids, edge: Edge
) -> Tensor | None:
    row = case.by_reference.get(TensorKey(edge.op, edge.role, edge.index, experiment.region.part))
    if row is None or case.target is None:
        return None
    own = case.target.tensor(row.target.key)
    found = grids.inputs.get(row.target.key)
    return found if found is not None or own is None or own.quantization is None else own


def _weight_grid(case: Case, grids: IntegerGrids, value: Array) -> Tensor | None:
    fitting = [t for t in grids.parameters if t.count == value.size]
    return fitting[0] if len(fitting) == 1 else None


def weight_ratio(case: Case, one: Misread, experiment: RegionExperiment) -> float | None:
    """How large the target's weight is beside the reference's; tells a weight's scale from that
    of what it is multiplied with."""
    run = case.target
    if run is None or one.tensor is None or one.tensor.kept is not Kept.VALUES:
        return None
    values = read_real_values(run, one.tensor)
    if values is None:
        return None
    mine = finite_rms(values)
    sizes = [
        finite_rms(v)
        for e, v in experiment.inputs.items()
        if e.role is Role.PARAMETER and v.size == one.tensor.count and v.dtype.kind == "f"
    ]
    return mine / sizes[0] if sizes and sizes[0] else None
