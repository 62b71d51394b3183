"""Outputs that are indices: argmax, top-k, sort, pooling.

Two equal scores may be chosen in either order, so indices are judged by the reference's scores
at the places they choose, wherever those scores were recorded.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
"""Scores that are looked at in one piece, in float64: 128 MiB."""
_OPS_WITHOUT_REPEATS = frozenset({"topk", "sort", "argsort"})
"""Ops that choose no place twice; a target that does is wrong, however good its scores."""


@dataclass(frozen=True)
class Scores:
    """What was chosen on each side, in the reference's own scores."""

    target: NDArray[Any]
    reference: NDArray[Any]
    preset: str
    spread: float
    """Greatest distance of a score from the mean of those it competed with."""
    greatest: float

    def as_operands(self, limits: Limits) -> tuple[Operand, Operand]:
        """Both sides as numbers that are equal where a choice is as good as the reference's:
        by no more worse than what the limits call close for a single score."""
        allowed = 6 * self.spread * 10 ** (-limits.psnr[0] / 20) + self.greatest * unit_of(limits)
        with np.errstate(invalid="ignore"):
            good = np.abs(self.target - self.reference) <= allowed
        good |= np.isnan(self.target) & np.isnan(self.reference)
        return (
            Operand(np.where(good, self.reference, self.target), "f64"),
            Operand(self.reference, "f64"),
        )


def select_scores(
    run: Run, key: TensorKey, target: NDArray[Any], reference: NDArray[Any]
) -> Scores | None:
    """The scores behind two index tensors that stand at the op output `key` of the reference.

    None where this is not such an output, its scores are not at hand, or an index is wrong.
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
    mine, theirs = (pick(scores, index, op.attributes) for index in (target, reference))
    if mine is None or theirs is None:
        return None
    if op_kind(op.type) in _OPS_WITHOUT_REPEATS and _has_repeats(
        target, -1 if axis is None else axis
    ):
        return None
    extent = _extent(scores, axis)
    if extent is None:
        return None
    return Scores(mine.astype(np.float64), theirs.astype(np.float64), preset, *extent)


def _recorded_scores(run: Run, edge: Edge, part: Part) -> tuple[NDArray[Any], str] | None:
    """The recorded values that an op chooses from, and their preset; None where they are not at
    hand or are no plain real numbers."""
    tensor = run.tensor(TensorKey(edge.op, edge.role, edge.index, part))
    if tensor is None or tensor.kept is not Kept.VALUES:
        return None
    try:
        scores = run.values(tensor)
    except DamagedError:
        raise  # without its scores the choice would be blamed
    except SyncpointError:
        return None
    if tensor.quantization is not None or scores.dtype.kind == "c" or not scores.size:
        return None
    return scores, preset_of(tensor.dtype)


def _extent(scores: NDArray[Any], axis: int | None) -> tuple[float, float] | None:
    """How far scores lie from the mean of their slice, and how large they are, at most; None
    where none is finite."""
    sizes = [
        size
        for piece in _split_scores(scores, axis)
        if (size := _piece_extent(piece, axis)) is not None
    ]
    if not sizes:
        return None
    return max(spread for spread, _ in sizes), max(greatest for _, greatest in sizes)


def _split_scores(scores: NDArray[Any], axis: int | None) -> Iterator[NDArray[Any]]:
    """The scores in pieces of bounded size, each of which has whole slices along `axis`: a copy of
    all logits of a language model in float64 takes gigabytes."""
    others = [a for a in range(scores.ndim) if axis is not None and a != axis % scores.ndim]
    if scores.size <= _MAX_PIECE_SCORES or not others:
        yield scores
        return
    longest = max(others, key=lambda a: scores.shape[a])
    step = max(_MAX_PIECE_SCORES * scores.shape[longest] // scores.size, 1)
    for start in range(0, scores.shape[longest], step):
        yield scores[(*[slice(None)] * longest, slice(start, start + step))]


def _piece_extent(scores: NDArray[Any], axis: int | None) -> tuple[float, float] | None:
    """The extent of one piece."""
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
    """Pooling counts its indices within the plane of one channel."""
    window = attributes.get("kernel_size")
    spatial = len(window) if isinstance(window, list | tuple) else scores.ndim - 2
    if index.ndim != scores.ndim or not 0 < spatial < scores.ndim:
        return None
    planes = scores.shape[:-spatial]
    flat = scores.reshape(*planes, prod(scores.shape[-spatial:]))
    places = index.reshape(*index.shape[:-spatial], prod(index.shape[-spatial:]))
    return _take_along_axis(flat, places, -1)


def _take_along_axis(scores: NDArray[Any], index: NDArray[Any], axis: int) -> NDArray[Any] | None:
    size = scores.shape[axis]
    if index.ndim != scores.ndim or index.size == 0:
        return None
    if int(index.min()) < -size or int(index.max()) >= size:
        return None
    around = [n for i, n in enumerate(index.shape) if i != axis % index.ndim]
    if around != [n for i, n in enumerate(scores.shape) if i != axis % scores.ndim]:
        return None
    return np.take_along_axis(scores, index.astype(np.int64), axis)
