"""Find a wrong scale or zero point: the factor or shift of a quantized input or weight that gives
the target's numbers, and which of the two to blame."""

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
from syncpoint.diagnosis.numerics.quantization_ranges import find_integer_grids
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge, Kept, Role, Tensor, TensorKey
from syncpoint.run.statistics import finite_rms

Array = NDArray[Any]
_MAX_RESIDUAL_SHARE = 0.25
"""Maximum share of the error that may remain."""
_FACTOR_TOLERANCE = 0.02
"""Factors this close to 1 count as 1."""
_WEIGHT_SIZE_TOLERANCE = 0.1
"""Maximum relative difference of a correct weight's RMS, rounding included."""


@dataclass(frozen=True, kw_only=True)
class MisreadGrid:
    """A quantized tensor that is read with a wrong scale or zero point."""

    what: str
    """`output`, `input`, `weight` or `weight or input`."""
    factor: float
    """The target's value over the correct value."""
    shift: float
    """In real numbers, not quantization steps."""
    tensor: Tensor | None
    """The quantized tensor, if it is known which one is misread."""
    residual: float
    error: float

    @property
    def step(self) -> float:
        """The declared scale; 0 if it is not known or per-channel."""
        quantization = self.tensor.quantization if self.tensor is not None else None
        return (
            quantization.scale[0]
            if quantization is not None and len(quantization.scale) == 1
            else 0.0
        )


def find_misread_grid(case: Case, experiment: RegionExperiment) -> MisreadGrid | None:
    """Find the factor or shift that explains an op's error best; None if none does."""
    grids = find_integer_grids(case, experiment.row)
    if not grids and not any(
        _find_input_grid(case, experiment, grids, e) for e in experiment.inputs
    ):
        return None
    error = finite_rms(experiment.counted(experiment.error))
    allowed = max(_MAX_RESIDUAL_SHARE * error, 3 * experiment.noise)
    fitting = [
        candidate
        for candidate in _propose_misreadings(case, experiment, grids, error)
        if candidate.residual <= min(allowed, 0.6 * error) and _is_wrong(candidate)
    ]
    best = min(fitting, key=lambda candidate: candidate.residual, default=None)
    if best is None or best.shift:
        return best
    # The result of a product does not show which of its factors is scaled; the weight itself does.
    if best.what == "weight":
        return best if _is_weight_misread(case, best, experiment) else _blame_either(best)
    return (
        _choose_weight_or_input(case, experiment, best, fitting) if best.what == "input" else best
    )


def _is_weight_misread(case: Case, best: MisreadGrid, experiment: RegionExperiment) -> bool:
    """Whether the weight's RMS confirms the factor, or is about the reference's."""
    ratio = measure_weight_ratio(case, best, experiment)
    if ratio is None:
        return False
    return (
        abs(ratio / best.factor - 1) < _FACTOR_TOLERANCE or abs(ratio - 1) < _WEIGHT_SIZE_TOLERANCE
    )


def _choose_weight_or_input(
    case: Case, experiment: RegionExperiment, best: MisreadGrid, fitting: list[MisreadGrid]
) -> MisreadGrid:
    """Decide between a factor of the input and one of the weight that explains as much."""
    for candidate in fitting:
        if candidate.what != "weight" or candidate.shift or candidate.residual > 2 * best.residual:
            continue
        ratio = measure_weight_ratio(case, candidate, experiment)
        if ratio is not None and abs(ratio / candidate.factor - 1) < _FACTOR_TOLERANCE:
            return candidate
        if ratio is None or abs(ratio - 1) > _FACTOR_TOLERANCE:
            return _blame_either(best)
    return best


def _blame_either(best: MisreadGrid) -> MisreadGrid:
    """Return the candidate as a factor of the weight or the input, undecided."""
    return replace(best, what="weight or input", tensor=None)


def _is_wrong(candidate: MisreadGrid) -> bool:
    if candidate.shift:
        return not candidate.step or abs(candidate.shift) >= 0.6 * candidate.step
    return abs(candidate.factor - 1) > _FACTOR_TOLERANCE


def _propose_misreadings(
    case: Case, experiment: RegionExperiment, grids: IntegerGrids, error: float
) -> Iterator[MisreadGrid]:
    own = next((t for t in grids.between if t.count == experiment.truth.size), None)
    inner = _select_inner_elements(experiment, own)
    truth, target = experiment.truth[inner], experiment.target[inner]
    if truth.size >= 8 and float(np.ptp(truth)) > 0:
        mean = float(np.mean(target - truth))
        yield MisreadGrid(
            what="output",
            factor=1.0,
            shift=mean,
            tensor=own,
            residual=finite_rms(target - truth - mean),
            error=error,
        )
        square = float(np.sum(np.square(truth)))
        factor = float(np.sum(truth * target)) / square if square else 1.0
        yield MisreadGrid(
            what="output",
            factor=factor,
            shift=0.0,
            tensor=own,
            residual=finite_rms(target - factor * truth),
            error=error,
        )
    for edge, value in experiment.inputs.items():
        is_weight = edge.role is Role.PARAMETER
        if value.dtype.kind != "f" or (is_weight and (value.ndim < 2 or not grids.parameters)):
            continue
        grid = (
            _find_weight_grid(case, grids, value)
            if is_weight
            else _find_input_grid(case, experiment, grids, edge)
        )
        if grid is None and not is_weight:
            continue
        if grid is not None and not is_weight:
            yield from _try_dequantized_values(case, experiment, edge, value, grid, error, inner)
        yield from _fit_factor_and_shift(
            experiment, edge, value, grid, "weight" if is_weight else "input", error, inner
        )


def _try_dequantized_values(
    case: Case,
    experiment: RegionExperiment,
    edge: Edge,
    value: Array,
    grid: Tensor,
    error: float,
    inner: Any,
) -> Iterator[MisreadGrid]:
    """Try the dequantized values that the target recorded, if they differ from the values before
    quantization."""
    run = case.target
    for op in run.ops if run is not None else ():
        if op_class(op.type) != "dequantize" or not any(e.op == grid.key.op for e in op.inputs):
            continue
        if op.key == experiment.row.target.key.op:
            continue
        tensor = run.tensor(TensorKey(op.key, Role.OUTPUT, 0, grid.key.part)) if run else None
        if run is None or tensor is None or tensor.kept is not Kept.VALUES:
            continue
        dequantized = read_real_values(run, replace(tensor, quantization=None))
        if (
            dequantized is None
            or dequantized.shape != value.shape
            or not np.isfinite(dequantized).all()
        ):
            continue
        output = experiment.run_with({edge: dequantized.astype(value.dtype)})
        if output is None or output.shape != experiment.target.shape or not float(np.ptp(value)):
            continue
        factor, shift = (
            float(v) for v in np.polyfit(value.reshape(-1), dequantized.reshape(-1), 1)
        )
        if finite_rms(dequantized - factor * value - shift) > 0.1 * finite_rms(dequantized - value):
            continue
        residual = finite_rms((experiment.target - output)[inner])
        if abs(factor - 1) > _FACTOR_TOLERANCE / 2:
            yield MisreadGrid(
                what="input", factor=factor, shift=0.0, tensor=grid, residual=residual, error=error
            )
        else:
            yield MisreadGrid(
                what="input", factor=1.0, shift=shift, tensor=grid, residual=residual, error=error
            )


def _fit_factor_and_shift(
    experiment: RegionExperiment,
    edge: Edge,
    value: Array,
    grid: Tensor | None,
    what: str,
    error: float,
    inner: Any,
) -> Iterator[MisreadGrid]:
    """Fit a factor and a shift of an input, assuming that the op is linear in it, and try them."""
    output_of_zeros = experiment.run_with({edge: np.zeros_like(value)})
    output_of_shifted = experiment.run_with({edge: value + 1})
    for base, slope, shifts in (
        (output_of_zeros, experiment.truth, False),
        (experiment.truth, output_of_shifted, True),
    ):
        if base is None or slope is None or base.shape != slope.shape:
            continue
        direction = (slope - base)[inner]
        square = float(np.sum(np.square(direction)))
        if not square or not np.isfinite(square):
            continue
        estimate = float(np.sum((experiment.target - base)[inner] * direction)) / square
        for _ in range(3):
            # A ReLU makes the op nonlinear: each trial corrects the estimate.
            changed = value + estimate if shifts else value * estimate
            output = experiment.run_with({edge: changed.astype(value.dtype)})
            if output is None or output.shape != experiment.target.shape:
                break
            residual = finite_rms((experiment.target - output)[inner])
            yield MisreadGrid(
                what=what,
                factor=1.0 if shifts else estimate,
                shift=estimate if shifts else 0.0,
                tensor=grid,
                residual=residual,
                error=error,
            )
            unexplained = (experiment.target - output)[inner]
            step = float(np.sum(unexplained * direction)) / square
            if abs(step) < 1e-4:
                break
            estimate += step


def _select_inner_elements(experiment: RegionExperiment, own: Tensor | None) -> NDArray[np.bool_]:
    """Select the finite elements that are not at the ends of the grid, if there is a grid."""
    inner = experiment.without_masked(
        np.isfinite(experiment.target) & np.isfinite(experiment.truth)
    )
    ends = grid_range(own, experiment.truth.shape) if own is not None else None
    if ends is not None:
        # The value of the last integer was rounded to the target's own type.
        margin = 1e-6 * (ends[1] - ends[0])
        inside: NDArray[np.bool_] = (
            inner & (experiment.target > ends[0] + margin) & (experiment.target < ends[1] - margin)
        )
        if np.count_nonzero(inside) >= 8:
            return inside
    return inner


def _find_input_grid(
    case: Case, experiment: RegionExperiment, grids: IntegerGrids, edge: Edge
) -> Tensor | None:
    row = case.by_reference.get(TensorKey(edge.op, edge.role, edge.index, experiment.region.part))
    if row is None or case.target is None:
        return None
    own = case.target.tensor(row.target.key)
    input_grid = grids.inputs.get(row.target.key)
    return input_grid if input_grid is not None or own is None or own.quantization is None else own


def _find_weight_grid(case: Case, grids: IntegerGrids, value: Array) -> Tensor | None:
    fitting = [t for t in grids.parameters if t.count == value.size]
    return fitting[0] if len(fitting) == 1 else None


def measure_weight_ratio(
    case: Case, misread_grid: MisreadGrid, experiment: RegionExperiment
) -> float | None:
    """Return the RMS of the target's weight over the reference's; None if it is not known. It
    distinguishes a wrong scale of the weight from one of the input."""
    run = case.target
    if run is None or misread_grid.tensor is None or misread_grid.tensor.kept is not Kept.VALUES:
        return None
    values = read_real_values(run, misread_grid.tensor)
    if values is None:
        return None
    target_rms = finite_rms(values)
    reference_rms = [
        finite_rms(v)
        for e, v in experiment.inputs.items()
        if e.role is Role.PARAMETER and v.size == misread_grid.tensor.count and v.dtype.kind == "f"
    ]
    return target_rms / reference_rms[0] if reference_rms and reference_rms[0] else None
