"""Solve linear equations for the weight that an op must have used, from its inputs and outputs;
patches of a convolution.

This works for ops that are linear in their weight, with enough rows of input. The ops that follow
in the same region may scale and shift each channel and set negative values to zero, as a bias, a
batch norm and a ReLU do. Their scale and shift are fitted to the reference's own numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.experiments.region_experiment import RegionExperiment
from syncpoint.matching.op_kinds import op_kind
from syncpoint.run.model import Edge, Op, Role

Values = NDArray[np.float64]

_LINEAR_KINDS = frozenset({"linear", "matmul", "mm"})
_TRANSPOSED_KINDS = frozenset({"matmul", "mm"})
"""Ops whose weight has a column for each channel."""
_CONVOLUTION_KINDS = frozenset({"conv", "conv1d", "conv2d", "convolution"})
_MAX_UNKNOWNS = 4096
"""Maximum number of unknowns per channel: the solution takes cubic time."""
_MAX_ROWS = 20_000
"""Maximum number of rows of input that are used."""
_MIN_ROWS_PER_UNKNOWN = 1.25
"""Minimum number of rows per unknown: as many rows as unknowns would fit anything."""
_MAX_CONDITION_NUMBER = 1e6
_MAX_PATCH_ELEMENTS = 40_000_000
"""Maximum number of elements in all windows of a convolution."""
_MAX_UNEXPLAINED_SHARE = 1e-4
"""Maximum share of the outputs that the solved weight may leave unexplained."""


@dataclass(frozen=True)
class SolvedWeight:
    """The weight that the target must have used."""

    op: Op
    edge: Edge
    weight: Values
    """In the shape of the reference's weight."""
    added: Values
    """Offset per channel that the target adds, before the ops that follow in the region."""
    floor: float
    """Relative error of the solution."""


def solve_weights(experiment: RegionExperiment) -> list[SolvedWeight]:
    """Solve for the weight of the region; an empty list unless exactly one op has a solution."""
    solved_weights = []
    for op in experiment.ops:
        weights = [e for e in experiment.parameters(op) if experiment.inputs[e].ndim >= 2]
        if len(weights) != 1 or op_kind(op.type) not in _LINEAR_KINDS | _CONVOLUTION_KINDS:
            continue
        solved = _solve_op(experiment, op, weights[0])
        if solved is not None:
            solved_weights.append(solved)
    return solved_weights if len(solved_weights) == 1 else []


@dataclass(frozen=True)
class _LinearSystem:
    """A linear op as equations: rows of input times the weight give rows of the result."""

    rows: Values
    weight: Values
    """One row per channel."""
    target: Values
    truth: Values

    @property
    def is_overdetermined(self) -> bool:
        """Whether there are enough rows for a meaningful solution, and not too many unknowns."""
        unknowns = int(self.weight.shape[1])
        return unknowns <= _MAX_UNKNOWNS and len(self.rows) >= _MIN_ROWS_PER_UNKNOWN * (
            unknowns + 1
        )

    def select_rows(self, places: Any) -> _LinearSystem:
        """Return the system with some of the rows."""
        rows, target, truth = (v[places] for v in (self.rows, self.target, self.truth))
        return _LinearSystem(rows, self.weight, target, truth)


def _solve_op(experiment: RegionExperiment, op: Op, edge: Edge) -> SolvedWeight | None:
    weight = np.asarray(experiment.inputs[edge], np.float64)
    system = _build_system(experiment, op, edge, weight)
    if system is None or not system.is_overdetermined:
        return None
    if len(system.rows) > _MAX_ROWS:
        system = system.select_rows(slice(None, None, len(system.rows) // _MAX_ROWS + 1))
    solved = _solve_channels(system.rows, system.weight, system.target, system.truth)
    if solved is None:
        return None
    solved_rows, added, floor = solved
    solved_rows = solved_rows.T if op_kind(op.type) in _TRANSPOSED_KINDS else solved_rows
    return SolvedWeight(op, edge, solved_rows.reshape(weight.shape), added, floor)


def _build_system(
    experiment: RegionExperiment, op: Op, edge: Edge, weight: Values
) -> _LinearSystem | None:
    """Build the equations of an op without masked results; None if the op has no such form."""
    reads = [e for e in op.inputs if e.role is not Role.PARAMETER]
    input_values = experiment.values.get(reads[0]) if len(reads) == 1 else None
    if input_values is None or input_values.dtype.kind != "f":
        return None
    inputs = np.asarray(input_values, np.float64)
    if op_kind(op.type) in _CONVOLUTION_KINDS:
        rows = _extract_patches(inputs, weight, op.attributes)
        flat = weight.reshape(weight.shape[0], -1)
    else:
        flat = weight if op_kind(op.type) == "linear" else weight.T
        if weight.ndim != 2 or inputs.shape[-1] != flat.shape[1] or op.inputs[0] == edge:
            return None
        rows = inputs.reshape(-1, inputs.shape[-1])
    target, truth, counted = (
        _move_channels_last(op, v) for v in (experiment.target, experiment.truth, experiment.kept)
    )
    channels = len(flat)
    if rows is None or target is None or truth is None or target.shape[-1] != channels:
        return None
    if target.size != len(rows) * channels:
        return None
    target, truth = (np.asarray(v, np.float64).reshape(-1, channels) for v in (target, truth))
    system = _LinearSystem(rows, flat, target, truth)
    return system if counted is None else system.select_rows(counted.reshape(-1, channels).all(1))


def _move_channels_last(op: Op, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """Return a result of an op with its channels last; None if it has no channels."""
    if values is None or op_kind(op.type) not in _CONVOLUTION_KINDS:
        return values
    return np.moveaxis(values, 1, -1) if values.ndim >= 3 else None


def _solve_channels(
    rows: Values, flat: Values, target: Values, truth: Values
) -> tuple[Values, Values, float] | None:
    solved_rows, added = np.empty_like(flat), np.empty(len(flat))
    rows_with_one = np.concatenate([rows, np.ones((len(rows), 1))], 1)
    pseudo_inverse: Any = None
    worst_share = 0.0
    for channel in range(len(flat)):
        before = rows @ flat[channel]
        nonzero = truth[:, channel] != 0
        if nonzero.sum() < 3:
            return None
        gain, shift = np.polyfit(before[nonzero], truth[nonzero, channel], 1)
        residual = truth[nonzero, channel] - gain * before[nonzero] - shift
        spread = float(np.std(truth[nonzero, channel]))
        if not gain or not spread or np.abs(residual).max() > 1e-6 * spread:
            return None
        positive = target[:, channel] != 0
        if positive.all():
            if pseudo_inverse is None:
                if np.linalg.cond(rows_with_one) > _MAX_CONDITION_NUMBER:
                    return None
                pseudo_inverse = np.linalg.pinv(rows_with_one)
            solution = pseudo_inverse @ target[:, channel]
        else:
            if positive.sum() < _MIN_ROWS_PER_UNKNOWN * rows_with_one.shape[1]:
                return None
            solution, _, rank, singular = np.linalg.lstsq(
                rows_with_one[positive], target[positive, channel], rcond=None
            )
            if rank < rows_with_one.shape[1] or singular[0] > _MAX_CONDITION_NUMBER * singular[-1]:
                return None
        unexplained = target[positive, channel] - rows_with_one[positive] @ solution
        size = float(np.linalg.norm(target[positive, channel])) or 1.0
        worst_share = max(worst_share, float(np.linalg.norm(unexplained)) / size)
        if worst_share > _MAX_UNEXPLAINED_SHARE:
            return None
        solved_rows[channel] = solution[:-1] / gain
        added[channel] = (solution[-1] - shift) / gain
    return solved_rows, added, max(1e-5, 100 * worst_share)


def _extract_patches(
    inputs: Values, weight: Values, attributes: Mapping[str, Any]
) -> Values | None:
    """Extract the rows that a convolution multiplies by its weight; None unless it is a plain
    convolution."""
    space = weight.ndim - 2
    if inputs.ndim != weight.ndim or attributes.get("groups", attributes.get("group", 1)) != 1:
        return None
    steps = _read_conv_steps(attributes, space)
    if steps is None:
        return None
    stride, padding, dilation = steps
    padded = np.pad(inputs, [(0, 0), (0, 0), *((p, p) for p in padding)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    axes = tuple(range(2, 2 + space))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    places = (slice(None), slice(None), *(slice(None, None, s) for s in stride))
    windows = windows[(*places, *(slice(None, None, d) for d in dilation))]
    # Batch and position first, then the axes of the weight: channel and kernel.
    order = (0, *axes, 1, *range(2 + space, 2 + 2 * space))
    if windows.size > _MAX_PATCH_ELEMENTS:
        return None
    patches: Values = windows.transpose(order).reshape(-1, int(np.prod(weight.shape[1:])))
    return patches


def _read_conv_steps(
    attributes: Mapping[str, Any], space: int
) -> tuple[list[int], list[int], list[int]] | None:
    """Return stride, padding and dilation from PyTorch or ONNX attributes; None if they have
    another form or the padding is asymmetric."""
    named = [attributes.get(n) for n in ("stride", "padding", "dilation")]
    if "kernel_shape" in attributes or "strides" in attributes:
        pads = list(attributes.get("pads") or [0] * (2 * space))
        if pads[:space] != pads[space:]:
            return None
        named = [attributes.get("strides"), pads[:space], attributes.get("dilations")]
    if any(isinstance(s, str) for s in named) or attributes.get("transposed"):
        return None
    defaults = ([1] * space, [0] * space, [1] * space)
    stride, padding, dilation = (
        [int(v) for v in (s if s is not None else u)] for s, u in zip(named, defaults, strict=True)
    )
    if any(len(steps) != space for steps in (stride, padding, dilation)):
        return None
    return stride, padding, dilation
