"""The weight that an op must have used: solved from what it read and what it gave.

For ops that are linear in their weight, and where enough rows of input are at hand. Whatever
follows inside the same region may scale and shift each channel and cut off at zero, as a bias, a
batch norm and a ReLU do: that is read off the reference's own numbers.
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

_LINEAR = frozenset({"linear", "matmul", "mm"})
_TRANSPOSED = frozenset({"matmul", "mm"})
"""Ops whose weight has a column for each channel."""
_CONVOLUTION = frozenset({"conv", "conv1d", "conv2d", "convolution"})
_MOST = 4096
"""Unknowns of one channel: the solution takes their cube."""
_ROWS = 20_000
_SPARE = 1.25
"""Rows for each unknown: as many rows as unknowns would fit anything."""
_CONDITION = 1e6
_MAX_PATCH_ELEMENTS = 40_000_000
"""Elements of all windows of a convolution, at most."""
_FIT = 1e-4
"""Share of the outputs that the solved weight may leave unexplained."""


@dataclass(frozen=True)
class Effective:
    """A weight as the target must have had it."""

    op: Op
    edge: Edge
    weight: Values
    """In the shape of the reference's."""
    added: Values
    """What each channel got besides, before anything that follows in the region."""
    floor: float
    """How much of its norm may be error of the solution."""


def effective(experiment: RegionExperiment) -> list[Effective]:
    """The weights of the region that could be solved for; none where any doubt is left."""
    found = []
    for op in experiment.ops:
        weights = [e for e in experiment.parameters(op) if experiment.inputs[e].ndim >= 2]
        if len(weights) != 1 or op_kind(op.type) not in _LINEAR | _CONVOLUTION:
            continue
        made = _solved(experiment, op, weights[0])
        if made is not None:
            found.append(made)
    return found if len(found) == 1 else []


@dataclass(frozen=True)
class _System:
    """A linear op as equations: rows of input times the weight give rows of results."""

    rows: Values
    weight: Values
    """One row a channel."""
    target: Values
    truth: Values

    @property
    def is_overdetermined(self) -> bool:
        """Whether there are enough rows for a solution to prove something, and not too many
        unknowns."""
        unknowns = int(self.weight.shape[1])
        return unknowns <= _MOST and len(self.rows) >= _SPARE * (unknowns + 1)

    def picked(self, places: Any) -> _System:
        """The same with some of the rows."""
        rows, target, truth = (v[places] for v in (self.rows, self.target, self.truth))
        return _System(rows, self.weight, target, truth)


def _solved(experiment: RegionExperiment, op: Op, edge: Edge) -> Effective | None:
    weight = np.asarray(experiment.inputs[edge], np.float64)
    system = _system(experiment, op, edge, weight)
    if system is None or not system.is_overdetermined:
        return None
    if len(system.rows) > _ROWS:
        system = system.picked(slice(None, None, len(system.rows) // _ROWS + 1))
    solved = _channels(system.rows, system.weight, system.target, system.truth)
    if solved is None:
        return None
    made, added, floor = solved
    made = made.T if op_kind(op.type) in _TRANSPOSED else made
    return Effective(op, edge, made.reshape(weight.shape), added, floor)


def _system(experiment: RegionExperiment, op: Op, edge: Edge, weight: Values) -> _System | None:
    """The equations of an op, without those of masked results; None where it has no such form."""
    reads = [e for e in op.inputs if e.role is not Role.PARAMETER]
    given = experiment.values.get(reads[0]) if len(reads) == 1 else None
    if given is None or given.dtype.kind != "f":
        return None
    inputs = np.asarray(given, np.float64)
    if op_kind(op.type) in _CONVOLUTION:
        rows = _patches(inputs, weight, op.attributes)
        flat = weight.reshape(weight.shape[0], -1)
    else:
        flat = weight if op_kind(op.type) == "linear" else weight.T
        if weight.ndim != 2 or inputs.shape[-1] != flat.shape[1] or op.inputs[0] == edge:
            return None
        rows = inputs.reshape(-1, inputs.shape[-1])
    target, truth, kept = (
        _by_channel(op, v) for v in (experiment.target, experiment.truth, experiment.kept)
    )
    channels = len(flat)
    if rows is None or target is None or truth is None or target.shape[-1] != channels:
        return None
    if target.size != len(rows) * channels:
        return None
    target, truth = (np.asarray(v, np.float64).reshape(-1, channels) for v in (target, truth))
    system = _System(rows, flat, target, truth)
    return system if kept is None else system.picked(kept.reshape(-1, channels).all(1))


def _by_channel(op: Op, values: NDArray[Any] | None) -> NDArray[Any] | None:
    """A result of an op with its channels last; None where it has none."""
    if values is None or op_kind(op.type) not in _CONVOLUTION:
        return values
    return np.moveaxis(values, 1, -1) if values.ndim >= 3 else None


def _channels(
    rows: Values, flat: Values, target: Values, truth: Values
) -> tuple[Values, Values, float] | None:
    made, added = np.empty_like(flat), np.empty(len(flat))
    with_one = np.concatenate([rows, np.ones((len(rows), 1))], 1)
    whole: Any = None
    worst = 0.0
    for channel in range(len(flat)):
        before = rows @ flat[channel]
        kept = truth[:, channel] != 0
        if kept.sum() < 3:
            return None
        gain, shift = np.polyfit(before[kept], truth[kept, channel], 1)
        left = truth[kept, channel] - gain * before[kept] - shift
        spread = float(np.std(truth[kept, channel]))
        if not gain or not spread or np.abs(left).max() > 1e-6 * spread:
            return None
        positive = target[:, channel] != 0
        if positive.all():
            if whole is None:
                if np.linalg.cond(with_one) > _CONDITION:
                    return None
                whole = np.linalg.pinv(with_one)
            answer = whole @ target[:, channel]
        else:
            if positive.sum() < _SPARE * with_one.shape[1]:
                return None
            answer, _, rank, singular = np.linalg.lstsq(
                with_one[positive], target[positive, channel], rcond=None
            )
            if rank < with_one.shape[1] or singular[0] > _CONDITION * singular[-1]:
                return None
        unexplained = target[positive, channel] - with_one[positive] @ answer
        size = float(np.linalg.norm(target[positive, channel])) or 1.0
        worst = max(worst, float(np.linalg.norm(unexplained)) / size)
        if worst > _FIT:
            return None
        made[channel] = answer[:-1] / gain
        added[channel] = (answer[-1] - shift) / gain
    return made, added, max(1e-5, 100 * worst)


def _patches(given: Values, weight: Values, attributes: Mapping[str, Any]) -> Values | None:
    """The rows that a convolution multiplies with its weight; None where its attributes are
    not those of a plain one."""
    space = weight.ndim - 2
    if given.ndim != weight.ndim or attributes.get("groups", attributes.get("group", 1)) != 1:
        return None
    steps = _steps(attributes, space)
    if steps is None:
        return None
    stride, padding, dilation = steps
    padded = np.pad(given, [(0, 0), (0, 0), *((p, p) for p in padding)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    axes = tuple(range(2, 2 + space))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    places = (slice(None), slice(None), *(slice(None, None, s) for s in stride))
    windows = windows[(*places, *(slice(None, None, d) for d in dilation))]
    # Batch and place first, then what the weight has: channel and kernel.
    order = (0, *axes, 1, *range(2 + space, 2 + 2 * space))
    if windows.size > _MAX_PATCH_ELEMENTS:
        return None
    patches: Values = windows.transpose(order).reshape(-1, int(np.prod(weight.shape[1:])))
    return patches


def _steps(
    attributes: Mapping[str, Any], space: int
) -> tuple[list[int], list[int], list[int]] | None:
    """Stride, padding and dilation of a convolution in PyTorch's terms or ONNX's; None where it
    has another form, or pads its ends unequally."""
    named = [attributes.get(n) for n in ("stride", "padding", "dilation")]
    if "kernel_shape" in attributes or "strides" in attributes:
        pads = list(attributes.get("pads") or [0] * (2 * space))
        if pads[:space] != pads[space:]:
            return None
        named = [attributes.get("strides"), pads[:space], attributes.get("dilations")]
    if any(isinstance(s, str) for s in named) or attributes.get("transposed"):
        return None
    usual = ([1] * space, [0] * space, [1] * space)
    stride, padding, dilation = (
        [int(v) for v in (s if s is not None else u)] for s, u in zip(named, usual, strict=True)
    )
    if any(len(steps) != space for steps in (stride, padding, dilation)):
        return None
    return stride, padding, dilation
