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
from syncpoint.diagnosis.weights.clipped import clip_weight
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge, Op, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]
_MAX_RESIDUAL_SHARE = 0.2
"""Of the square of the error at most this is left where clipping explains it."""
_MIN_CLIPPING_TO_ROUNDING = 3.0
"""Cutting off costs so many times what rounding does, or it is how ranges are chosen."""


@dataclass(frozen=True, kw_only=True)
class Clipping:
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
    residual: float
    """Root mean square error that stays when the values are cut."""
    error: float
    """The same before."""
    clips_reference: bool = True
    """Whether the reference's own values are beyond the ends as well: if not, they were wrong
    before, and the grid is not to blame."""

    @property
    def explains(self) -> bool:
        """Whether cutting gives most of what the target has."""
        return self.residual**2 <= _MAX_RESIDUAL_SHARE * self.error**2


def find_integer_grids(case: Case, row: Row) -> IntegerGrids:
    """The integers between an op of the target and the sync points before it; its own too."""
    run = case.target
    if run is None:
        return IntegerGrids()
    paired = {r.target.key for r in case.rows if r.target.key.role is not Role.PARAMETER}
    grids = find_grids_behind(run, row.target.key, paired - {row.target.key})
    own = run.tensor(row.target.key)
    if own is not None and own.quantization is not None:
        grids.between.append(own)
    return grids


def find_clipping(case: Case, experiment: RegionExperiment) -> Clipping | None:
    """The grid whose ends explain the op's error best."""
    clippings = [
        c
        for c in _propose_clippings(case, experiment)
        if c.share > 0 and c.explains and c.clips_reference
    ]
    return min(clippings, key=lambda c: c.residual, default=None)


def _propose_clippings(case: Case, experiment: RegionExperiment) -> Iterator[Clipping]:
    grids = find_integer_grids(case, experiment.row)
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
        residual = finite_rms(experiment.counted(experiment.target - cut))
        output = (low, ends[1])
        clipping = _measure_clipping(
            tensor, "output", output, experiment.truth, residual, before, experiment.kept
        )
        clipping = replace(clipping, low=float(ends[0].min()))
        reference_values = case.values("reference", experiment.row)
        yield replace(
            clipping,
            clips_reference=_clips_reference(ends, experiment.truth, reference_values),
        )
    for edge, value in experiment.inputs.items():
        if edge.role is Role.PARAMETER:
            yield from _propose_clipped_weights(case, experiment, grids, edge, value, error)
            continue
        for tensor, what in _find_input_grids(case, experiment, grids, edge):
            ends = grid_range(tensor, value.shape)
            if ends is None or value.dtype.kind != "f":
                continue
            clipped_output = experiment.run_with({edge: np.clip(value, *ends).astype(value.dtype)})
            if clipped_output is not None and clipped_output.shape == experiment.target.shape:
                residual = finite_rms(experiment.counted(experiment.target - clipped_output))
                clipping = _measure_clipping(tensor, what, ends, value, residual, error)
                row = case.by_reference.get(_tensor_key(edge, experiment))
                reference_values = case.values("reference", row) if row is not None else None
                yield replace(
                    clipping,
                    clips_reference=_clips_reference(ends, value, reference_values),
                )


def _propose_clipped_weights(
    case: Case,
    experiment: RegionExperiment,
    grids: IntegerGrids,
    edge: Edge,
    value: Array,
    error: float,
) -> Iterator[Clipping]:
    for tensor in grids.parameters:
        if tensor.count != value.size or value.dtype.kind != "f" or case.target is None:
            continue
        cut = clip_weight(case.target, tensor, value)
        clipped_output = experiment.run_with({edge: cut.value}) if cut is not None else None
        if cut is None or clipped_output is None or clipped_output.shape != experiment.target.shape:
            continue
        yield Clipping(
            tensor=tensor,
            what="weight",
            low=cut.low,
            high=cut.high,
            share=cut.share,
            greatest=cut.greatest,
            residual=finite_rms(experiment.counted(experiment.target - clipped_output)),
            error=error,
        )


def _find_input_grids(
    case: Case, experiment: RegionExperiment, grids: IntegerGrids, edge: Edge
) -> Iterator[tuple[Tensor, str]]:
    row = case.by_reference.get(_tensor_key(edge, experiment))
    tensor_in = grids.inputs.get(row.target.key) if row is not None else None
    if tensor_in is not None:
        yield tensor_in, "input"


def _tensor_key(edge: Edge, experiment: RegionExperiment) -> TensorKey:
    return TensorKey(edge.op, edge.role, edge.index, experiment.region.part)


def _clips_reference(
    ends: tuple[Array, Array], values: Array, reference_values: Array | None
) -> bool:
    """Whether the reference's own values are cut off too, and not only what the target has in
    their place: ranges are calibrated on the former."""
    if reference_values is None:
        return True
    target_loss, reference_loss = (
        finite_rms(v - np.clip(v, *ends)) for v in (values, reference_values)
    )
    return reference_loss >= 0.25 * target_loss


def tensors_with_one_scale(run: Run | None, role: Role) -> Iterator[tuple[Tensor, float]]:
    """The quantized tensors of a role that have one scale for all, with it."""
    for tensor in run.tensors if run is not None else ():
        quantization = tensor.quantization
        if tensor.key.role is role and quantization is not None and len(quantization.scale) == 1:
            yield tensor, quantization.scale[0]


def find_clipped_outputs(case: Case) -> list[tuple[Row, Clipping]]:
    """Where the target rounds to integers and cuts off far more than it rounds, the worst first.
    For runs that are off with nobody guilty: what rounding to integers costs, ends included, is
    allowed to an op that comes after."""
    clippings = []
    for tensor, scale in tensors_with_one_scale(case.target, Role.OUTPUT):
        op = case.op("target", tensor.key.op)
        if op is None or op_class(op.attributes.get("part_of") or op.type) != "quantize":
            continue
        ends = grid_range(tensor, (1,))
        sync = find_sync_point(case, op, tensor)
        reference_values = case.values("reference", sync) if sync is not None else None
        if ends is None or sync is None or reference_values is None:
            continue
        low = np.full(1, -np.inf) if _begins_at_zero(tensor, ends) else ends[0]
        error = finite_rms(reference_values - np.clip(reference_values, low, ends[1]))
        rounding = scale / np.sqrt(12)
        if error >= _MIN_CLIPPING_TO_ROUNDING * rounding:
            clipping = _measure_clipping(
                tensor, "output", (low, ends[1]), reference_values, rounding, error
            )
            clippings.append((sync, replace(clipping, low=float(ends[0][0]))))
    return sorted(clippings, key=lambda pair: -pair[1].error / pair[1].residual)


def _begins_at_zero(tensor: Tensor, ends: tuple[Array, Array]) -> bool:
    """Whether a grid holds nothing below zero, as one that a ReLU was taken into."""
    quantization = tensor.quantization
    return quantization is not None and bool(
        (np.abs(ends[0]) < np.min(quantization.scale) / 2).all()
    )


def find_sync_point(case: Case, op: Op, tensor: Tensor) -> Row | None:
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


def _measure_clipping(
    tensor: Tensor,
    what: str,
    ends: tuple[Array, Array],
    values: Array,
    residual: float,
    error: float,
    counted: NDArray[np.bool_] | None = None,
) -> Clipping:
    low, high = ends
    # A value that rounds to the last integer is not cut.
    quantization = tensor.quantization
    half_step = 0.5 * np.max(np.abs(quantization.scale)) if quantization is not None else 0.0
    beyond = (values < low - half_step) | (values > high + half_step)
    if counted is not None:
        beyond, values = beyond[counted], values[counted]
    furthest = float(np.abs(values[beyond]).max(initial=0.0))
    return Clipping(
        tensor=tensor,
        what=what,
        low=float(low.min()),
        high=float(high.max()),
        share=float(np.mean(beyond)) if values.size else 0.0,
        greatest=furthest,
        residual=residual,
        error=error,
    )
