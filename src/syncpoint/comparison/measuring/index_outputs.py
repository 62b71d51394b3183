"""Outputs that are indices (argmax, top-k, sort, pooling): compare the reference's scores at the
indices of each side, so ties do not count; unsorted top-k.

Equal scores may be chosen in any order. So indices are judged by the reference's scores at these
indices, if the scores were recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncpoint.errors import DamagedError, SyncpointError
from syncpoint.matching.op_kinds import op_kind
from syncpoint.metrics import Operand
from syncpoint.metrics.limits import Limits, preset_of, unit_of
from syncpoint.run.model import Edge, Kept, Part, TensorKey
from syncpoint.run.reader import Run

_INDEX_OUTPUT = {
    **dict.fromkeys(("argmax", "argmin", "argsort"), 0),
    **dict.fromkeys(("topk", "sort", "max", "min", "median", "kthvalue", "mode"), 1),
    **dict.fromkeys(("cummax", "cummin"), 1),
    **{f"max_pool{n}d_with_indices": 1 for n in (1, 2, 3)},
}
"""Which output of an op holds indices into its first input."""


_MAX_PIECE_SCORES = 1 << 24
"""Maximum number of scores to convert to float64 at once: 128 MiB."""
_OPS_WITHOUT_REPEATS = frozenset({"topk", "sort", "argsort"})
"""Ops that choose no index twice; a target that does is wrong, whatever its scores."""


@dataclass(frozen=True)
class Scores:
    """The scores of the reference at the indices of each side."""

    target: NDArray[Any]
    reference: NDArray[Any]
    preset: str
    spread: float
    """Maximum distance of a score from the mean of its slice."""
    max_score: float

    def as_operands(self, limits: Limits) -> tuple[Operand, Operand]:
        """Both sides as numbers that are equal where the choice of the target is as good.

        A choice is as good if its score differs by no more than the limits call close for one
        element.
        """
        max_difference = 6 * self.spread * 10 ** (-limits.psnr[0] / 20) + self.max_score * unit_of(
            limits
        )
        with np.errstate(invalid="ignore"):
            is_as_good = np.abs(self.target - self.reference) <= max_difference
        is_as_good |= np.isnan(self.target) & np.isnan(self.reference)
        return (
            Operand(np.where(is_as_good, self.reference, self.target), "f64"),
            Operand(self.reference, "f64"),
        )


def unordered_axis(run: Run, key: TensorKey) -> int | None:
    """The axis along which an output of a reference op has no defined order, such as that of
    `topk(..., sorted=False)`; None if its order is defined."""
    op = run.op(key.op)
    if op is None or op_kind(op.type) != "topk" or op.attributes.get("sorted") is not False:
        return None
    axis = op.attributes.get("dim", -1)
    return axis if isinstance(axis, int) else None


def sort_along(operand: Operand, axis: int) -> Operand:
    """The operand with its elements in ascending order along an axis."""
    array = operand.array
    if not -array.ndim <= axis < array.ndim:
        return operand
    return replace(operand, data=np.sort(array, axis=axis))


def select_scores(
    run: Run, key: TensorKey, target: NDArray[Any], reference: NDArray[Any]
) -> Scores | None:
    """The scores at two index tensors of the op output `key` of the reference.

    None if the output holds no indices, its scores were not recorded, or an index is out of range.
    """
    op = run.op(key.op)
    if op is None or not op.inputs or _INDEX_OUTPUT.get(op_kind(op.type)) != key.index:
        return None
    if target.dtype.kind not in "iu" or reference.dtype.kind not in "iu":
        return None
    recorded = _recorded_scores(run, op.inputs[0], key.part)
    if recorded is None:
        return None
    scores, preset = recorded
    axis = op.attributes.get("dim")
    if axis is not None and not (isinstance(axis, int) and -scores.ndim <= axis < scores.ndim):
        return None
    pick = _pick_pooled_scores if "pool" in op.type else _pick_scores
    target_scores, reference_scores = (
        pick(scores, index, op.attributes) for index in (target, reference)
    )
    if target_scores is None or reference_scores is None:
        return None
    if op_kind(op.type) in _OPS_WITHOUT_REPEATS and _has_repeats(
        target, -1 if axis is None else axis
    ):
        return None
    extent = _extent(scores, axis)
    if extent is None:
        return None
    unordered = unordered_axis(run, key)
    if unordered is not None:
        target_scores = np.sort(target_scores, axis=unordered)
        reference_scores = np.sort(reference_scores, axis=unordered)
    return Scores(
        target_scores.astype(np.float64), reference_scores.astype(np.float64), preset, *extent
    )


def _recorded_scores(run: Run, edge: Edge, part: Part) -> tuple[NDArray[Any], str] | None:
    """The recorded scores that an op chooses from, and their preset.

    None if they were not recorded or are not plain real numbers.
    """
    tensor = run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
    if tensor is None or tensor.kept is not Kept.VALUES:
        return None
    try:
        scores = run.values(tensor)
    except DamagedError:
        raise  # the choice must not be blamed for damaged scores
    except SyncpointError:
        return None
    if tensor.quantization is not None or scores.dtype.kind == "c" or not scores.size:
        return None
    return scores, preset_of(tensor.dtype)


def _extent(scores: NDArray[Any], axis: int | None) -> tuple[float, float] | None:
    """Maximum distance of a score from the mean of its slice, and maximum absolute score.

    None if no score is finite.
    """
    sizes = [
        size
        for piece in _split_scores(scores, axis)
        if (size := _piece_extent(piece, axis)) is not None
    ]
    if not sizes:
        return None
    return max(spread for spread, _ in sizes), max(max_score for _, max_score in sizes)


def _split_scores(scores: NDArray[Any], axis: int | None) -> Iterator[NDArray[Any]]:
    """The scores in pieces of bounded size, each with complete slices along `axis`.

    A float64 copy of all logits of a language model would take gigabytes.
    """
    others = [a for a in range(scores.ndim) if axis is not None and a != axis % scores.ndim]
    if scores.size <= _MAX_PIECE_SCORES or not others:
        yield scores
        return
    longest = max(others, key=lambda a: scores.shape[a])
    step = max(_MAX_PIECE_SCORES * scores.shape[longest] // scores.size, 1)
    for start in range(0, scores.shape[longest], step):
        yield scores[(*[slice(None)] * longest, slice(start, start + step))]


def _piece_extent(scores: NDArray[Any], axis: int | None) -> tuple[float, float] | None:
    """`_extent` of one piece."""
    wide = scores.astype(np.float64)
    finite = np.where(np.isfinite(wide), wide, np.nan)
    if np.isnan(finite).all():
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # slices without a finite score
        spread = np.nanmax(np.abs(finite - np.nanmean(finite, axis=axis, keepdims=True)))
        return float(spread), float(np.nanmax(np.abs(finite)))


def _has_repeats(index: NDArray[Any], axis: int) -> bool:
    if not index.ndim:
        return False
    ordered = np.sort(index, axis)
    return bool((np.diff(ordered, axis=axis) == 0).any())


def _pick_scores(
    scores: NDArray[Any], index: NDArray[Any], attributes: Mapping[str, Any]
) -> NDArray[Any] | None:
    axis = attributes.get("dim", -1 if index.ndim == scores.ndim else None)
    if axis is None:
        scores, axis = scores.reshape(-1), 0
        index = index.reshape(-1)
    elif not scores.ndim:
        return None
    elif index.ndim == scores.ndim - 1:
        index = np.expand_dims(index, axis)
    return _take_along_axis(scores, index, axis)


def _pick_pooled_scores(
    scores: NDArray[Any], index: NDArray[Any], attributes: Mapping[str, Any]
) -> NDArray[Any] | None:
    """The scores at indices of pooling, which count within the plane of one channel."""
    window = attributes.get("kernel_size")
    spatial = len(window) if isinstance(window, list | tuple) else scores.ndim - 2
    if index.ndim != scores.ndim or not 0 < spatial < scores.ndim:
        return None
    planes = scores.shape[:-spatial]
    flat = scores.reshape(*planes, prod(scores.shape[-spatial:]))
    flat_index = index.reshape(*index.shape[:-spatial], prod(index.shape[-spatial:]))
    return _take_along_axis(flat, flat_index, -1)


def _take_along_axis(scores: NDArray[Any], index: NDArray[Any], axis: int) -> NDArray[Any] | None:
    size = scores.shape[axis]
    if index.ndim != scores.ndim or index.size == 0:
        return None
    if int(index.min()) < -size or int(index.max()) >= size:
        return None
    other_axes = [n for i, n in enumerate(index.shape) if i != axis % index.ndim]
    if other_axes != [n for i, n in enumerate(scores.shape) if i != axis % scores.ndim]:
        return None
    return np.take_along_axis(scores, index.astype(np.int64), axis)
