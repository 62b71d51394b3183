"""Metrics of real tensors that are computed only on request: worst slices, histograms, KL
divergence, top-k agreement; differences: page/tensor_values.py.

They read tensors in place and in their own types, and skip the same elements as the main
measurement: masked, NaN and infinite ones. Scores are float64, so 64-bit integers beyond 2**53 are
rounded.
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
    """The elements with one index on one axis, and their error."""

    axis: int
    index: int
    rel_l2: float
    """‖d‖ / ‖r‖ of the slice. The norm of r counts as at least a tenth of its RMS over the slices,
    so that an almost empty slice cannot be the worst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histograms:
    """Histograms of the values of both sides; no edges if there is no finite value."""

    edges: tuple[float, ...]
    """Evenly spaced over the finite values of both sides; for complex elements the modulus."""
    target_counts: tuple[int, ...]
    """Bin i counts edges[i] <= x < edges[i + 1]; the last bin includes its upper edge."""
    reference_counts: tuple[int, ...]
    target_masked: int
    """Masked positions, which are in no bin: of both sides, and of this side alone."""
    reference_masked: int
    target_non_finite: int
    reference_non_finite: int


@dataclass(frozen=True, slots=True)
class RowKl:
    """KL(softmax r ‖ softmax t) over the rows of a pair of logits, in nats."""

    mean: float | None
    """None if no row has a distribution on both sides; infinite if the target masks a position
    with a probability in the reference."""
    max: float | None
    max_row: int | None
    """Row-major index of that row; the lowest if there are several."""
    rows: int
    """Rows that were measured."""
    undefined: int
    """Rows with a NaN or +inf, or with all positions masked, on either side."""


@dataclass(frozen=True, slots=True)
class TopK:
    """Whether the highest scores have the same indices on both sides.

    An index of the target is right if the reference's score there is as high as the score at the
    index of the reference. So ties in the reference agree. Of equal scores the target chooses the
    lower index.
    """

    top1: float | None
    """Share of the rows whose first index is right."""
    topk: float | None
    """Share of the first k indices that are right, averaged over the rows."""
    rows: int
    undefined: int
    """Rows with a NaN, or with all positions masked, on either side."""


def worst_slice(pair: Pair, axis: int) -> Slice | None:
    """The worst slice along an axis, the lowest index if there are several; None if n/a."""
    slices = _find_worst_slices(pair, [_normalize_axis(pair, axis)])
    return slices[0] if slices else None


def worst_slices(pair: Pair) -> list[Slice]:
    """The worst slice along the channel axis and along the token axis.

    For tensors with two or more axes these are axis 1 and the last axis: channels are axis 1 of
    images (N, C, H, W) and the last axis of sequences (N, T, C), whose axis 1 are tokens. Axes of
    length 1 are skipped.
    """
    shape = pair.target.logical_shape
    if len(shape) < 2:
        return []
    axes = dict.fromkeys((1, len(shape) - 1))
    return _find_worst_slices(pair, [axis for axis in axes if shape[axis] > 1])


def value_histograms(pair: Pair, bins: int = 64) -> Histograms:
    """Histograms of both sides over common edges."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, not {bins}")
    native = native_pair(pair, rules_of(pair))
    value_range = _kernel.value_range(native)
    edges = (
        []
        if isinf(value_range.least)
        else _histogram_edges(value_range.least, value_range.greatest, bins)
    )
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
    """KL(softmax r ‖ softmax t) along an axis of logits; masked positions have probability 0."""
    rows, length = _rows_along_axis(pair, axis)
    divergence = _kernel.softmax_divergence(native_pair(rows, rules_of(rows)), length)
    if not divergence.rows:
        return RowKl(None, None, None, 0, divergence.undefined)
    return RowKl(
        divergence.sum / divergence.rows,
        divergence.greatest,
        divergence.greatest_row,
        divergence.rows,
        divergence.undefined,
    )


def kl_minmax(pair: Pair) -> float | None:
    """KL(P ‖ Q) as other tools report it for any tensor; P is the target, Q the reference.

    Each side is scaled to [0, 1], clamped at the epsilon of float32 from below and divided by its
    sum; a constant side is a uniform distribution. None for complex tensors and if no element is
    compared.
    """
    divergence = _kernel.minmax_divergence(native_pair(pair, rules_of(pair)))
    return divergence.value if divergence.count else None


def topk_agreement(pair: Pair, k: int = 5, axis: int = -1) -> TopK:
    """Whether the k highest scores along an axis have the same indices on both sides.

    Ties: of equal scores the target chooses the lower index. Each index is judged by the score of
    the reference there, so any of several equal ones is right. If several tie for the last of the k
    places, as many count as there are places.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    rows, length = _rows_along_axis(pair, axis)
    agreement = _kernel.rank_agreement(native_pair(rows, rules_of(rows)), length, k)
    if not agreement.rows:
        return TopK(None, None, 0, agreement.undefined)
    return TopK(
        agreement.first / agreement.rows,
        agreement.overlap / agreement.rows,
        agreement.rows,
        agreement.undefined,
    )


def _find_worst_slices(pair: Pair, axes: Sequence[int]) -> list[Slice]:
    shape = pair.target.logical_shape
    spans = [(shape[axis], prod(shape[axis + 1 :])) if shape else (1, 1) for axis in axes]
    worst_of_axes = _kernel.worst_slices(native_pair(pair, rules_of(pair)), spans)
    return [
        Slice(axis, worst.index, worst.rel_l2)
        for axis, worst in zip(axes, worst_of_axes, strict=True)
        if worst.index >= 0
    ]


def _normalize_axis(pair: Pair, axis: int) -> int:
    """The axis counted from the front; a scalar has one axis of length 1."""
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
    # Rounding must not make the edges decrease if there are fewer numbers than bins.
    return [float(x) for x in np.maximum.accumulate(edges)]


def _rows_along_axis(pair: Pair, axis: int) -> tuple[Pair, int]:
    """The pair with an axis moved last, so that its rows are contiguous, and their length."""
    axis = _normalize_axis(pair, axis)
    moved_pair = Pair(_move_axis_last(pair.target, axis), _move_axis_last(pair.reference, axis))
    return moved_pair, (*pair.target.logical_shape, 1)[axis]


def _move_axis_last(side: Operand, axis: int) -> Operand:
    rank = len(side.logical_shape)
    if axis >= rank - 1:
        return side
    if side.shape is not None:
        side = _unpack_nibbles(side)
    quantization = side.quantization
    if quantization is not None and quantization.axis is not None:
        quantized_axis = quantization.axis % rank
        moved = rank - 1 if quantized_axis == axis else quantized_axis - (quantized_axis > axis)
        quantization = replace(quantization, axis=moved)
    return replace(side, data=np.moveaxis(side.array, axis, -1), quantization=quantization)


def _unpack_nibbles(side: Operand) -> Operand:
    """The operand with one byte per element, since nibbles have no strides; this is a copy."""
    assert side.shape is not None
    count = prod(side.shape)
    nibbles = np.empty(2 * side.array.size, np.uint8)
    nibbles[0::2] = side.array & 15
    nibbles[1::2] = side.array >> 4
    return replace(side, data=nibbles[:count].reshape(side.shape), shape=None)
