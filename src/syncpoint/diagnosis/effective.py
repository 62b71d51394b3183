"""The weight that an op must have used: solved from what it read and what it gave.

For ops that are linear in their weight, and where enough rows of input are at hand. Whatever
follows inside the same region may scale and shift each channel and cut off at zero, as a bias, a
batch norm and a ReLU do: that is read off the reference's own numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.local import Local
from syncpoint.matching.kinds import op_kind
from syncpoint.run.model import Edge, Op, Role

Values = NDArray[np.float64]

_LINEAR = frozenset({"linear", "matmul", "mm"})
_CONVOLUTION = frozenset({"conv", "conv1d", "conv2d", "convolution"})
_MOST = 4096
"""Unknowns of one channel: the solution takes their cube."""
_ROWS = 20_000
_SPARE = 1.25
"""Rows for each unknown: as many rows as unknowns would fit anything."""
_CONDITION = 1e6
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


def effective(local: Local) -> list[Effective]:
    """The weights of the region that could be solved for; none where any doubt is left."""
    found = []
    for op in local.ops:
        weights = [e for e in local.parameters(op) if local.inputs[e].ndim >= 2]
        if len(weights) != 1 or op_kind(op.type) not in _LINEAR | _CONVOLUTION:
            continue
        made = _solved(local, op, weights[0])
        if made is not None:
            found.append(made)
    return found if len(found) == 1 else []


def _solved(local: Local, op: Op, edge: Edge) -> Effective | None:
    weight = np.asarray(local.inputs[edge], np.float64)
    reads = [e for e in op.inputs if e.role is not Role.PARAMETER]
    given = local.values.get(reads[0]) if len(reads) == 1 else None
    if given is None or given.dtype.kind != "f":
        return None
    kind = op_kind(op.type)
    if kind in _CONVOLUTION:
        rows = _patches(np.asarray(given, np.float64), weight, op.attributes)
        flat = weight.reshape(weight.shape[0], -1)
        seen = [np.moveaxis(v, 1, -1) for v in (local.target, local.truth) if v.ndim >= 3]
    else:
        if weight.ndim != 2:
            return None
        flat = weight if kind == "linear" else weight.T
        if given.shape[-1] != flat.shape[1] or op.inputs[0] == edge:
            return None
        rows = np.asarray(given, np.float64).reshape(-1, given.shape[-1])
        seen = [local.target, local.truth]
    if rows is None or len(seen) != 2:
        return None
    channels, unknowns = flat.shape
    if seen[0].shape[-1] != channels or seen[0].size != len(rows) * channels:
        return None
    if not _SPARE * (unknowns + 1) <= len(rows) or unknowns > _MOST:
        return None
    target, truth = (np.asarray(v, np.float64).reshape(-1, channels) for v in seen)
    if len(rows) > _ROWS:
        step = len(rows) // _ROWS + 1
        rows, target, truth = rows[::step], target[::step], truth[::step]
    solved = _channels(rows, flat, target, truth)
    if solved is None:
        return None
    made, added, floor = solved
    made = made if kind != "matmul" and kind != "mm" else made.T
    return Effective(op, edge, made.reshape(weight.shape), added, floor)


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


def _patches(given: Values, weight: Values, attributes: Any) -> Values | None:
    """The rows that a convolution multiplies with its weight; None where its attributes are
    not those of a plain one."""
    space = weight.ndim - 2
    if given.ndim != weight.ndim or attributes.get("groups", attributes.get("group", 1)) != 1:
        return None
    said = [attributes.get(n) for n in ("stride", "padding", "dilation")]
    if "kernel_shape" in attributes or "strides" in attributes:
        pads = list(attributes.get("pads") or [0] * (2 * space))
        if pads[:space] != pads[space:]:
            return None
        said = [attributes.get("strides"), pads[:space], attributes.get("dilations")]
    usual = ([1] * space, [0] * space, [1] * space)
    if any(isinstance(s, str) for s in said) or attributes.get("transposed"):
        return None
    stride, padding, dilation = (
        [int(v) for v in (s if s is not None else u)] for s, u in zip(said, usual, strict=True)
    )
    if len(stride) != space or len(padding) != space or len(dilation) != space:
        return None
    padded = np.pad(given, [(0, 0), (0, 0), *((p, p) for p in padding)])
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    axes = tuple(range(2, 2 + space))
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    at = (slice(None), slice(None), *(slice(None, None, s) for s in stride))
    windows = windows[(*at, *(slice(None, None, d) for d in dilation))]
    # Batch and place first, then what the weight has: channel and kernel.
    order = (0, *axes, 1, *range(2 + space, 2 + 2 * space))
    if windows.size > 40_000_000:
        return None
    found: Values = windows.transpose(order).reshape(-1, int(np.prod(weight.shape[1:])))
    return found
