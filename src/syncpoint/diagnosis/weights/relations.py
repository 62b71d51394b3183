"""Find the relation between two arrays, weights or inputs: scaled, permuted, transposed, rounded,
shifted, partly changed; relative distance, fit.

Each relation predicts the second array from the first. It holds only if the prediction is within a
tolerance of the second array, so a reported relation was checked in every element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import check_time
from syncpoint.diagnosis.finding_text import of_norm

Values = NDArray[np.float64]

_ROUNDING_TYPES: tuple[tuple[str, Any], ...] = (
    ("float16", np.float16),
    ("bfloat16", ml_dtypes.bfloat16),
    ("float8 e4m3", ml_dtypes.float8_e4m3fn),
)
_MAX_PERMUTED_SLICES = 2048
"""Maximum length of an axis to search for permutations: the search is quadratic."""
_MAX_CHANGED_SHARE = 0.25
"""Maximum share of elements or slices of a partial change."""


@dataclass(frozen=True)
class Relation:
    """How the second array is computed from the first."""

    kind: str
    words: str
    """Follows the name of the second: `is transposed`, `is 1.5 times the reference's`."""
    predicted: Values
    """The second array as predicted from the first."""
    exact: bool = True
    """Whether it predicts every number of the second array; False for a mere description."""


def distance(first: Values, second: Values) -> float:
    """Return the norm of the difference over the second's norm.

    It is inf if the shapes or finiteness differ."""
    check_time()
    if first.shape != second.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        gap = float(np.linalg.norm((first - second).ravel()))
        size = float(np.linalg.norm(second.ravel()))
    if not np.isfinite(gap):
        return float("inf")
    if size == 0:
        return 0.0 if gap == 0 else float("inf")
    return gap / size


def measure_fit(relation: Relation, reference: Values, target: Values) -> tuple[float, float]:
    """Return how far the target is from the reference and from what the relation predicts, both
    over the reference's norm."""
    before, after = distance(target, reference), distance(relation.predicted, target)
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = [float(np.linalg.norm(values.ravel())) for values in (target, reference)]
    return before, after * sizes[0] / sizes[1] if sizes[1] and after else after


def find_relation(reference: Values, target: Values, floor: float) -> Relation | None:
    """Find the simplest relation that predicts the target to within `floor` of its norm; None if
    both are equal or no known relation fits."""
    apart = distance(reference, target)
    if apart <= floor:
        return None
    for relation in _propose_relations(reference, target, floor):
        residual = distance(relation.predicted, target)
        # The residual must also be small relative to the change: if the change is as small as
        # the floor, any relation would fit.
        if residual <= floor and residual <= 0.05 * apart:
            return relation
    return None


def _propose_relations(reference: Values, target: Values, floor: float) -> Iterator[Relation]:
    if not reference.size or not np.isfinite(reference).all():
        return
    if not target.any():
        yield Relation("zeroed", "is zero everywhere", target)
        return
    if reference.shape == target.shape:
        yield Relation("sign-flipped", "has the opposite sign", -reference)
        yield from _propose_rounded(reference)
        factor = _fit_factor(reference, target)
        if factor:
            words = f"is the reference's multiplied by {factor:.6g}"
            yield Relation("scaled", words, factor * reference)
    yield from _propose_reordered(reference, target)
    if reference.shape == target.shape:
        yield from _propose_permuted(reference, target)
        yield from _propose_scaled_slices(reference, target)
        yield from _propose_shifted(reference, target)
        yield from propose_integer_rounding(reference)
        yield from _propose_partial_changes(reference, target, floor)


def _fit_factor(reference: Values, target: Values) -> float:
    """Fit the factor by least squares; 0 if the reference is zero."""
    square = float(np.vdot(reference, reference))
    return float(np.vdot(reference, target)) / square if square else 0.0


def _propose_rounded(reference: Values) -> Iterator[Relation]:
    for name, kind in _ROUNDING_TYPES:
        with np.errstate(over="ignore", invalid="ignore"):
            predicted = reference.astype(np.float32).astype(kind).astype(np.float64)
        if np.isfinite(predicted).all():
            yield Relation("rounded", f"is the reference's rounded to {name}", predicted)


def propose_integer_rounding(reference: Values) -> Iterator[Relation]:
    """Propose rounding to 8- or 4-bit integers, with scales per tensor or per index of axis 0."""
    for levels in (127, 128, 7, 8):
        for axis in (None, 0):
            if axis == 0 and reference.ndim < 2:
                continue
            over = tuple(range(1, reference.ndim)) if axis == 0 else None
            step = np.abs(reference).max(axis=over, keepdims=True) / levels
            if not (step > 0).all():
                continue
            predicted = np.clip(np.rint(reference / step), -levels - 1, levels) * step
            each = ", with one scale for each index of axis 0" if axis == 0 else ""
            bits = 8 if levels > 8 else 4
            yield Relation(
                "rounded", f"is the reference's rounded to {bits}-bit integers{each}", predicted
            )


def _propose_reordered(reference: Values, target: Values) -> Iterator[Relation]:
    """Propose swapped axes, by transposing or by reading the same elements in another shape, and
    reversed axes."""
    if reference.ndim >= 2:
        pairs = [(a, b) for a in range(reference.ndim) for b in range(a + 1, reference.ndim)]
        for a, b in pairs[::-1]:
            swapped = np.swapaxes(reference, a, b)
            if swapped.shape == target.shape:
                words = f"has axes {a} and {b} swapped"
                yield Relation("transposed", words, swapped)
            elif swapped.size == target.size and reference.shape == target.shape:
                words = f"is the reference's with axes {a} and {b} swapped, in the same shape"
                yield Relation("transposed", words, swapped.reshape(target.shape))
                back = np.swapaxes(reference.reshape(swapped.shape), a, b)
                words = f"is the reference's read with axes {a} and {b} swapped"
                yield Relation("transposed", words, back)
    if reference.shape == target.shape:
        for axis in range(reference.ndim):
            if reference.shape[axis] > 1:
                yield Relation(
                    "permuted", f"is reversed along axis {axis}", np.flip(reference, axis)
                )


def find_permutation(reference: Values, target: Values, axis: int) -> NDArray[np.int64] | None:
    """Return the slice of the reference that is nearest to each slice of the target; None if this
    is no permutation."""
    count = reference.shape[axis]
    if not 1 < count <= _MAX_PERMUTED_SLICES or reference.shape != target.shape:
        return None
    target_slices = np.moveaxis(target, axis, 0).reshape(count, -1)
    reference_slices = np.moveaxis(reference, axis, 0).reshape(count, -1)
    squares = np.square(target_slices).sum(1)[:, None] + np.square(reference_slices).sum(1)[None, :]
    distances = squares - 2 * target_slices @ reference_slices.T
    order = np.asarray(distances.argmin(1), np.int64)
    if len(set(order.tolist())) != count:
        return None
    return order


def _propose_permuted(reference: Values, target: Values) -> Iterator[Relation]:
    for axis in range(reference.ndim):
        if reference.size == reference.shape[axis] and reference.ndim > 1:
            continue
        order = find_permutation(reference, target, axis)
        if order is None:
            continue
        moved = np.flatnonzero(order != np.arange(len(order)))
        if not len(moved):
            continue
        first = moved[0]
        words = (
            f"has {len(moved)} of {len(order)} {_name_slices(axis, reference.ndim)} in another"
            f" order (index {first} holds the reference's index {order[first]})"
        )
        yield Relation("permuted", words, np.take(reference, order, axis))


def _propose_scaled_slices(reference: Values, target: Values) -> Iterator[Relation]:
    if reference.ndim < 2:
        return
    for axis in range(reference.ndim):
        over = tuple(a for a in range(reference.ndim) if a != axis)
        if reference.shape[axis] * 2 > reference.size or reference.shape[axis] < 2:
            continue
        square = np.square(reference).sum(over, keepdims=True)
        inner = (reference * target).sum(over, keepdims=True)
        factors = np.divide(inner, square, out=np.ones_like(inner), where=square > 0)
        off = np.flatnonzero(np.abs(factors - 1) > 1e-4)
        scales = factors.reshape(-1)[off]
        rows = _name_slices(axis, reference.ndim)
        if len(off) == 1:
            words = (
                f"has {rows[:-1] if reference.ndim == 2 else rows} {off[0]}"
                f" {f'multiplied by {scales[0]:.4g}' if scales[0] else 'set to zero'};"
                f" the other {factors.size - 1} {rows} equal the reference's"
            )
        else:
            words = (
                f"has {len(off)} of {factors.size} {rows}{_name_range(off)} {_name_factors(scales)}"
            )
        yield Relation("scaled", words, factors * reference)


def _name_range(indices: NDArray[np.intp]) -> str:
    """Name consecutive indices, such as those of one part of a merged weight; "" for others."""
    is_range = len(indices) > 1 and int(indices[-1] - indices[0]) == len(indices) - 1
    return f" ({indices[0]} to {indices[-1]})" if is_range else ""


def _name_factors(scales: Values) -> str:
    """Say by what slices are multiplied, in four digits."""
    ends = (scales.min(), scales.max()) if len(scales) else (1.0, 1.0)
    low, high = (f"{end:.4g}" for end in ends)
    if low != high:
        return f"multiplied by factors from {low} to {high}"
    return "set to zero" if float(low) == 0 else f"multiplied by {low}"


def _name_slices(axis: int, rank: int) -> str:
    """Name the slices of an axis: rows and columns of a matrix, else slices."""
    return ("rows", "columns")[axis] if rank == 2 else f"axis-{axis} slices"


def _propose_shifted(reference: Values, target: Values) -> Iterator[Relation]:
    shift = float((target - reference).mean())
    yield Relation("shifted", f"is the reference's plus {shift:.6g}", reference + shift)


def _propose_partial_changes(reference: Values, target: Values, floor: float) -> Iterator[Relation]:
    """Propose a change of a few slices or elements; all others are equal."""
    size = float(np.sqrt(np.mean(np.square(reference)))) or 1.0
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(target - reference) <= floor * size)
    count = int(off.sum())
    for axis in range(reference.ndim):
        over = tuple(a for a in range(reference.ndim) if a != axis)
        hit = np.flatnonzero(off.any(axis=over))
        if reference.ndim < 2 or reference.shape[axis] < 2:
            continue
        if 0 < len(hit) <= max(1, _MAX_CHANGED_SHARE * reference.shape[axis]):
            places = ", ".join(str(i) for i in hit[:4]) + (" ..." if len(hit) > 4 else "")
            zero = "is zero" if not np.take(target, hit, axis).any() else "differs"
            words = (
                f"{zero} in {len(hit)} of {reference.shape[axis]} slices of axis {axis}"
                f" (index {places}); the rest is equal"
            )
            yield Relation("changed", words, np.where(off, target, reference), exact=False)
            return
    if 0 < count <= _MAX_CHANGED_SHARE * reference.size:
        first_index = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
        words = (
            f"differs in {count:,} of {reference.size:,} elements (first at {first_index});"
            " the rest is equal"
        )
        yield Relation("changed", words, np.where(off, target, reference), exact=False)


def describe_difference(reference: Values, target: Values) -> str:
    """Describe how much two arrays without a known relation differ."""
    gap = distance(target, reference)
    norms = float(np.linalg.norm(reference.ravel())) * float(np.linalg.norm(target.ravel()))
    if not norms or not np.isfinite(norms):
        return "differs from the reference's everywhere"
    cosine = float(np.vdot(reference, target)) / norms
    return f"differs from the reference's by {of_norm(gap)} (cosine similarity {cosine:.4f})"


def group_by_channel(values: NDArray[Any], axis: int) -> Values:
    """Return the values of each channel of `axis` as a row."""
    channels: Values = np.moveaxis(np.asarray(values, np.float64), axis, 0)
    return channels.reshape(len(channels), -1)
