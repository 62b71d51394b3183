"""Outputs that are indices: argmax, top-k, sort.

Two equal scores may be chosen in either order, so indices are judged by the reference's scores
at the places they choose, wherever those scores were recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.comparison.rows import End
from syncpoint.errors import SyncpointError
from syncpoint.metrics import Operand
from syncpoint.metrics.limits import preset_of
from syncpoint.run.model import Kept, Role, TensorKey
from syncpoint.run.reader import Run

_INDEX_OUTPUT = {"argmax": 0, "argmin": 0, "argsort": 0, "topk": 1, "sort": 1}


@dataclass(frozen=True)
class Scores:
    """What was chosen on each side, in the reference's own scores."""

    target: Operand
    reference: Operand
    preset: str


def chosen_scores(
    run: Run, end: End, target: NDArray[Any], reference: NDArray[Any]
) -> Scores | None:
    """The scores behind two index tensors; None where this is not such an output, or its scores
    are not at hand, or an index is out of range."""
    kind = end.type.removeprefix("aten.").split(".")[0].lower()
    if end.order < 0 or _INDEX_OUTPUT.get(kind) != end.key.index or end.key.role is not Role.OUTPUT:
        return None
    op = run.ops[end.order]
    if not op.inputs:
        return None
    edge = op.inputs[0]
    tensor = run.tensor(TensorKey(edge.op, edge.role, edge.index, end.key.part))
    if tensor is None or tensor.kept is not Kept.VALUES:
        return None
    try:
        scores = run.values(tensor)
    except SyncpointError:
        return None
    picked = [_pick(scores, index, op.attributes) for index in (target, reference)]
    if picked[0] is None or picked[1] is None:
        return None
    preset = preset_of(tensor.dtype, tensor.quantization is not None)
    a, b = (Operand(p, tensor.dtype, tensor.quantization) for p in picked if p is not None)
    return Scores(a, b, preset)


def _pick(scores: NDArray[Any], index: NDArray[Any], attributes: Any) -> NDArray[Any] | None:
    axis = attributes.get("dim", -1 if index.ndim == scores.ndim else None)
    if axis is None:
        scores, axis = scores.reshape(-1), 0
        index = index.reshape(-1)
    elif not scores.ndim:
        return None
    elif index.ndim == scores.ndim - 1:
        index = np.expand_dims(index, axis)
    size = scores.shape[axis]
    if index.ndim != scores.ndim or index.size == 0:
        return None
    if int(index.min()) < -size or int(index.max()) >= size:
        return None
    return np.take_along_axis(scores, index.astype(np.int64), axis)
