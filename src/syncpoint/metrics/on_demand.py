"""Metrics that are computed when somebody asks, or for pairs that are not close.

They read tensors as the main measurement does, in place and in their own types, and leave out the
same elements: masked ones, and those that are NaN or infinite. Scores are float64 here: 64-bit
integers beyond 2**53 are taken as the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isinf, prod

import numpy as np

from syncpoint.metrics import _kernel
from syncpoint.metrics.dtype_rules import rules_of
from syncpoint.metrics.kernel import native_pair
from syncpoint.metrics.pair import Operand, Pair


@dataclass(frozen=True, slots=True)
class Slice:
    """The elements that share one index of one axis, and how far off they are."""

    axis: int
    index: int
    rel_l2: float
    """‖d‖ / ‖r‖ of the slice; the norm of r counts as at least a tenth of what it is in a slice
    on average (root mean square), so that a slice of almost nothing cannot be the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms:
    """How often each value occurs on each side; without a finite value there are no edges."""

    edges: tuple[float, ...]
    """Evenly spaced over the finite values of both sides; of complex elements the modulus."""
    target_counts: tuple[int, ...]
    """Bin i holds edges[i] <= x < edges[i + 1], the last one its upper edge too."""
    reference_counts: tuple[int, ...]
    target_masked: int
    """Mask positions, which are in no bin: those of the pair, and those of this side alone."""
    reference_masked: int
    target_non_finite: int
    reference_non_finite: int


@dataclass(frozen=True, slots=True)
class RowKl:
    """KL(softmax r ‖ softmax t) over the rows of a pair of logits, in nats."""

    mean: float | None
    """None where no row has a distribution on both sides; infinite where a place that has a
    probability in the reference is masked in the target."""
    max: float | None
    max_row: int | None
    """Row-major number of that row; the lowest of several."""
    rows: int
    """Rows that were measured."""
    undefined: int
    """Rows with a NaN or +inf, or with nothing that is not masked, on either side."""


@dataclass(frozen=True, slots=True)
class TopK:
    """Whether the greatest scores are in the same places on both sides.

    A place that the target chooses is right if the reference's score there is as great as that of
    the place the reference would choose, so a tie in the reference is no disagreement. At equal
    scores the target chooses the lower index.
    """

    top1: float | None
    """Share of the rows whose first place is right."""
    topk: float | None
    """Share of the k first places that are right, averaged over the rows."""
    rows: int
    undefined: int
    """Rows with a NaN, or with nothing that is not masked, on either side."""


def worst_slice(pair: Pair, axis: int) -> Slice | None:
    """The worst slice along an axis, the lowest index of several; None where rel_l2 is n/a."""
    found = _find_worst_slices(pair, [_normalize_axis(pair, axis)])
    return found[0] if found else None


def worst_slices(pair: Pair) -> list[Slice]:
    """The worst slice along the channel and along the token axis, whichever is which.

    Of tensors with two axes and more these are axis 1 and the last, once if they are the same:
    channels are axis 1 of images (N, C, H, W) and the last axis of sequences (N, T, C), whose axis
    1 is the token's. Axes of length 1 say nothing and are left out.
    """
    shape = pair.target.logical_shape
    if len(shape) < 2:
        return []
    axes = dict.fromkeys((1, len(shape) - 1))
    return _find_worst_slices(pair, [axis for axis in axes if shape[axis] > 1])


def value_histograms(pair: Pair, bins: int = 64) -> Histograms:
    """Histograms of both sides over common edges."""
    if bins < 1:
        raise ValueError(f"{bins} bins; at least 1 is needed")
    native = native_pair(pair, rules_of(pair))
    found = _kernel.value_range(native)
    edges = [] if isinf(found.least) else _histogram_edges(found.least, found.greatest, bins)
    counts = _kernel.value_histograms(native, edges)
    target, reference = counts.target, counts.reference
    return Histograms(
        edges=tuple(edges),
        target_counts=tuple(target.bins),
        reference_counts=tuple(reference.bins),
        target_masked=target.masked,
        reference_masked=reference.masked,
        target_non_finite=target.non_finite,
        reference_non_finite=reference.non_finite,
    )


def kl(pair: Pair, axis: int = -1) -> float | None:
    """KL(softmax r ‖ softmax t) along an axis of logits, the mean over the rows."""
    return kl_rows(pair, axis).mean


def kl_rows(pair: Pair, axis: int = -1) -> RowKl:
    """KL(softmax r ‖ softmax t) along an axis of logits; masked places have probability 0."""
    rows, length = _rows_along_axis(pair, axis)
    found = _kernel.softmax_divergence(native_pair(rows, rules_of(rows)), length)
    if not found.rows:
        return RowKl(None, None, None, 0, found.undefined)
    return RowKl(
        found.sum / found.rows, found.greatest, found.greatest_row, found.rows, found.undefined
    )


def kl_minmax(pair: Pair) -> float | None:
    """KL(P ‖ Q) as other tools report it for any tensor, P being the target and Q the reference.

    Each side is scaled so that its least value is 0 and its greatest 1, floored at the epsilon of
    float32 and divided by its sum; a constant side is an even distribution. None for complex
    tensors and where no element is compared.
    """
    found = _kernel.minmax_divergence(native_pair(pair, rules_of(pair)))
    return found.value if found.count else None


def topk_agreement(pair: Pair, k: int = 5, axis: int = -1) -> TopK:
    """Whether the k greatest scores along an axis are in the same places on both sides.

    Ties: of equal scores the target chooses the lower index. Each choice is judged by the
    reference's score at its place, so any of several equal ones there is right; where several
    tie for the last of the k places, as many of them count as there is room for.
    """
    if k < 1:
        raise ValueError(f"the {k} first places; at least 1 is needed")
    rows, length = _rows_along_axis(pair, axis)
    found = _kernel.rank_agreement(native_pair(rows, rules_of(rows)), length, k)
    if not found.rows:
        return TopK(None, None, 0, found.undefined)
    return TopK(found.first / found.rows, found.overlap / found.rows, found.rows, found.undefined)


def _find_worst_slices(pair: Pair, axes: Sequence[int]) -> list[Slice]:
    shape = pair.target.logical_shape
    spans = [(shape[axis], prod(shape[axis + 1 :])) if shape else (1, 1) for axis in axes]
    found = _kernel.worst_slices(native_pair(pair, rules_of(pair)), spans)
    return [
        Slice(axis, worst.index, worst.rel_l2)
        for axis, worst in zip(axes, found, strict=True)
        if worst.index >= 0
    ]


def _normalize_axis(pair: Pair, axis: int) -> int:
    """The axis counted from the front; a scalar has one of length 1, as a vector of one."""
    rank = max(len(pair.target.logical_shape), 1)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is not one of shape {pair.target.logical_shape}")
    return axis % rank


def _histogram_edges(least: float, greatest: float, bins: int) -> list[float]:
    if least == greatest:
        half = max(0.5, abs(least) * 1e-12)
        limit = float(np.finfo(np.float64).max)
        least, greatest = max(least - half, -limit), min(greatest + half, limit)
    if isinf(greatest - least):
        edges = np.linspace(least / 2, greatest / 2, bins + 1) * 2
    else:
        edges = np.linspace(least, greatest, bins + 1)
    # Rounding must not make them descend where there are fewer numbers than bins.
    return [float(x) for x in np.maximum.accumulate(edges)]


def _rows_along_axis(pair: Pair, axis: int) -> tuple[Pair, int]:
    """The pair seen with an axis last, so that its rows follow each other, and their length."""
    axis = _normalize_axis(pair, axis)
    turned = Pair(_move_axis_last(pair.target, axis), _move_axis_last(pair.reference, axis))
    return turned, (*pair.target.logical_shape, 1)[axis]


def _move_axis_last(side: Operand, axis: int) -> Operand:
    rank = len(side.logical_shape)
    if axis >= rank - 1:
        return side
    if side.shape is not None:
        side = _unpack_nibbles(side)
    quantization = side.quantization
    if quantization is not None and quantization.axis is not None:
        at = quantization.axis % rank
        moved = rank - 1 if at == axis else at - (at > axis)
        quantization = replace(quantization, axis=moved)
    return replace(side, data=np.moveaxis(side.array, axis, -1), quantization=quantization)


def _unpack_nibbles(side: Operand) -> Operand:
    """One byte an element: nibbles have no strides. The only copy here, of half-byte tensors."""
    assert side.shape is not None
    count = prod(side.shape)
    nibbles = np.empty(2 * side.array.size, np.uint8)
    nibbles[0::2] = side.array & 15
    nibbles[1::2] = side.array >> 4
    return replace(side, data=nibbles[:count].reshape(side.shape), shape=None)
