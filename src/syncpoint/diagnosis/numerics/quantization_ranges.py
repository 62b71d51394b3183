"""Find quantized tensors whose range is too small (values are clipped) or too wide (bits are
wasted), weights with uneven channels; grids behind a row."""

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
from syncpoint.diagnosis.budget import read_real_values
from syncpoint.diagnosis.case import Case
from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.diagnosis.weights.clipped import clip_weight
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.dtypes import DTYPES
from syncpoint.run.model import Edge, Kept, Op, OpKey, Role, Tensor, TensorKey
from syncpoint.run.reader import Run
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]

_MAX_RESIDUAL_SHARE = 0.2
"""Maximum share of the squared error that remains if clipping explains it."""

_MIN_CLIPPING_TO_ROUNDING = 3.0
"""Minimum ratio of clipping error to rounding error; below it, clipping is the usual trade-off
of a calibrated range."""

_MIN_CHANNEL_RATIO = 8.0
"""Minimum ratio of the largest channel to the median one: a per-tensor scale costs three bits."""
_MIN_RANGE_RATIO = 8.0
"""Minimum ratio of a range to its values: three unused bits."""
_MIN_MASK_MAGNITUDE = 1e30


@dataclass(frozen=True, kw_only=True)
class Clipping:
    """Values outside the range of a grid, and the op's error that remains after clipping them."""

    tensor: Tensor
    """The quantized tensor."""
    what: str
    """Which values of the op: `output`, `input` or `weight`."""
    low: float
    high: float
    share: float
    """Share of the values that are outside the range."""
    greatest: float
    """Largest magnitude among the values outside the range."""
    residual: float
    """RMS error that remains if the reference is clipped too."""
    error: float
    """RMS error without clipping."""
    clips_reference: bool = True
    """Whether the reference's values are outside the range too. If not, the values were wrong
    before, and the grid is not to blame."""

    @property
    def explains(self) -> bool:
        """Whether clipping explains most of the error."""
        return self.residual**2 <= _MAX_RESIDUAL_SHARE * self.error**2


def find_integer_grids(case: Case, row: Row) -> IntegerGrids:
    """Find the quantized tensors between an op of the target and the sync points before it,
    including the op's own output."""
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
    """Find the grid whose range explains the op's error best; None if no grid does."""
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
            # The grid includes a fused ReLU: only its upper end clips by mistake.
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
    """Whether the range clips the reference's values too, not only the target's. Ranges are
    calibrated on the reference's values."""
    if reference_values is None:
        return True
    target_loss, reference_loss = (
        finite_rms(v - np.clip(v, *ends)) for v in (values, reference_values)
    )
    return reference_loss >= 0.25 * target_loss


def tensors_with_one_scale(run: Run | None, role: Role) -> Iterator[tuple[Tensor, float]]:
    """Yield the per-tensor quantized tensors of a role with their scale."""
    for tensor in run.tensors if run is not None else ():
        quantization = tensor.quantization
        if tensor.key.role is role and quantization is not None and len(quantization.scale) == 1:
            yield tensor, quantization.scale[0]


def find_clipped_outputs(case: Case) -> list[tuple[Row, Clipping]]:
    """Find quantized outputs whose clipping error is far above their rounding error, worst first.

    This is for runs with a wrong output and no guilty op: the tolerance of an op after a
    quantization includes the whole cost of the quantization, clipping included."""
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
    """Whether a grid has no negative values, as after a fused ReLU."""
    quantization = tensor.quantization
    return quantization is not None and bool(
        (np.abs(ends[0]) < np.min(quantization.scale) / 2).all()
    )


def find_sync_point(case: Case, op: Op, tensor: Tensor) -> Row | None:
    """Find the row with the values before quantization: the row of the quantized tensor itself, of
    its dequantized values, or of the input of the quantization."""
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
    # A value that rounds to the last integer is not clipped.
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


@dataclass(frozen=True)
class UnevenChannels:
    """A weight with a per-tensor scale and channels of very different size."""

    tensor: Tensor
    channel: int
    axis: int
    ratio: float

    @property
    def bits(self) -> float:
        """Number of bits that the median channel does not use."""
        return float(np.log2(self.ratio))


@dataclass(frozen=True, kw_only=True)
class WastedRange:
    """A quantized tensor whose range is far wider than its values."""

    row: Row
    tensor: Tensor
    low: float
    high: float
    """Ends of the range."""
    least: float
    greatest: float
    """Ends of the reference's values."""

    @property
    def bits(self) -> float:
        """Number of bits that are not used."""
        used_width = max(self.greatest, 0.0) - min(self.least, 0.0)
        range_width = self.high - self.low
        return (
            float(np.log2(range_width / used_width))
            if used_width > 0 and np.isfinite(range_width)
            else np.inf
        )


def find_uneven_channels(case: Case) -> Iterator[UnevenChannels]:
    """Find weights whose channels need scales of their own, worst first."""
    run = case.target
    uneven_weights = []
    for tensor, scale in tensors_with_one_scale(run, Role.PARAMETER):
        if len(tensor.shape) < 2 or tensor.kept is not Kept.VALUES or run is None:
            continue
        values = read_real_values(run, tensor)
        if values is None:
            continue
        real = np.abs(values)
        for axis in (0, real.ndim - 1):
            channel_maxima = np.moveaxis(real, axis, 0).reshape(real.shape[axis], -1).max(1)
            median = float(np.median(channel_maxima))
            if len(channel_maxima) >= 4 and channel_maxima.max() >= _MIN_CHANNEL_RATIO * max(
                median, scale / 2
            ):
                ratio = float(channel_maxima.max() / max(median, scale / 2))
                uneven_weights.append(
                    UnevenChannels(tensor, int(np.argmax(channel_maxima)), axis, ratio)
                )
                break
    yield from sorted(uneven_weights, key=lambda weight: -weight.ratio)


def find_wasted_ranges(case: Case) -> Iterator[WastedRange]:
    """Find quantized outputs with a range far wider than the reference's values, worst first."""
    wasted_ranges = []
    for tensor, scale in tensors_with_one_scale(case.target, Role.OUTPUT):
        if DTYPES[tensor.dtype].bits > 8:
            continue
        op = case.op("target", tensor.key.op)
        if op is None or op_class(op.type) in ("reshape", "transpose", "slice", "max_pool"):
            continue
        row = find_sync_point(case, op, tensor)
        reference_values = case.values("reference", row) if row is not None else None
        with np.errstate(all="ignore"):
            ends = grid_range(tensor, (1,))
        if reference_values is None or ends is None or row is None:
            continue
        unmasked_values = reference_values[
            np.isfinite(reference_values) & (np.abs(reference_values) < _MIN_MASK_MAGNITUDE)
        ]
        if not unmasked_values.size:
            continue
        low, high = (float(end[0]) for end in ends)
        if not np.isfinite(scale):
            # A mask with the lowest float is among the values: the range itself overflowed.
            low, high = -np.inf, np.inf
        wasted_range = WastedRange(
            row=row,
            tensor=tensor,
            low=low,
            high=high,
            least=float(unmasked_values.min()),
            greatest=float(unmasked_values.max()),
        )
        if wasted_range.bits >= np.log2(_MIN_RANGE_RATIO):
            wasted_ranges.append(wasted_range)
    yield from sorted(wasted_ranges, key=lambda wasted_range: -wasted_range.bits)


def find_row_behind(case: Case, ops: set[OpKey]) -> Row | None:
    """Find the first row of one of the ops or of an op that depends on them."""
    rows = {row.target.key.op: row for row in reversed(case.computed)}
    reached = set(ops)
    for op in case.target.ops if case.target is not None else ():
        if op.key not in reached and not any(edge.op in reached for edge in op.inputs):
            continue
        if op.key in rows:
            return rows[op.key]
        reached.add(op.key)
    return None
