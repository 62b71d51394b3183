"""What turns one array into another: scaled, permuted, transposed, rounded, changed in places.

Each relation predicts the second array from the first, and holds only where the prediction meets
it to within a floor; so a relation that is named was seen in every element.
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

_ROUNDED: tuple[tuple[str, Any], ...] = (
    ("float16", np.float16),
    ("bfloat16", ml_dtypes.bfloat16),
    ("float8 e4m3", ml_dtypes.float8_e4m3fn),
)
_MOST_SLICES = 2048
"""Axes longer than this are not searched for permutations: the search is quadratic."""
_FEW = 0.25
"""A share of elements or slices up to this is a change in places, not everywhere."""


@dataclass(frozen=True)
class Relation:
    """How the second array is made of the first."""

    kind: str
    words: str
    """Follows the name of the second: `is transposed`, `is 1.5 times the reference's`."""
    made: Values
    """What it predicts."""
    exact: bool = True
    """Whether it gives every number of the second; a mere description does not."""


def distance(one: Values, other: Values) -> float:
    """Norm of the difference over that of the second; inf where shapes or finiteness differ."""
    check_time()
    if one.shape != other.shape:
        return float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        gap = float(np.linalg.norm((one - other).ravel()))
        size = float(np.linalg.norm(other.ravel()))
    if not np.isfinite(gap):
        return float("inf")
    if size == 0:
        return 0.0 if gap == 0 else float("inf")
    return gap / size


def related(reference: Values, target: Values, floor: float) -> Relation | None:
    """The simplest relation that predicts the target to within `floor` of its norm; None where
    they are equal to it already or nothing that is known fits."""
    apart = distance(reference, target)
    if apart <= floor:
        return None
    for relation in _relations(reference, target, floor):
        left = distance(relation.made, target)
        # What is left must be small against the change itself too: where the change is as
        # small as the floor, any relation would fit.
        if left <= floor and left <= 0.05 * apart:
            return relation
    return None


def _relations(reference: Values, target: Values, floor: float) -> Iterator[Relation]:
    if not reference.size or not np.isfinite(reference).all():
        return
    if not target.any():
        yield Relation("zeroed", "is zero everywhere", target)
        return
    if reference.shape == target.shape:
        yield Relation("sign-flipped", "has the opposite sign", -reference)
        yield from _rounded(reference)
        factor = _factor(reference, target)
        if factor:
            words = f"is the reference's multiplied by {factor:.6g}"
            yield Relation("scaled", words, factor * reference)
    yield from _reordered(reference, target)
    if reference.shape == target.shape:
        yield from _permuted(reference, target)
        yield from _scaled_by_slice(reference, target)
        yield from _shifted(reference, target)
        yield from integers(reference)
        yield from _in_places(reference, target, floor)


def _factor(reference: Values, target: Values) -> float:
    """The factor of least squares; 0 where the reference is."""
    square = float(np.vdot(reference, reference))
    return float(np.vdot(reference, target)) / square if square else 0.0


def _rounded(reference: Values) -> Iterator[Relation]:
    for name, kind in _ROUNDED:
        with np.errstate(over="ignore", invalid="ignore"):
            made = reference.astype(np.float32).astype(kind).astype(np.float64)
        if np.isfinite(made).all():
            yield Relation("rounded", f"is the reference's rounded to {name}", made)


def integers(reference: Values) -> Iterator[Relation]:
    """Rounded to a grid of few levels, over all of it or one for each slice of the first axis."""
    for levels in (127, 128, 7, 8):
        for axis in (None, 0):
            if axis == 0 and reference.ndim < 2:
                continue
            over = tuple(range(1, reference.ndim)) if axis == 0 else None
            step = np.abs(reference).max(axis=over, keepdims=True) / levels
            if not (step > 0).all():
                continue
            made = np.clip(np.rint(reference / step), -levels - 1, levels) * step
            each = ", with one scale for each index of axis 0" if axis == 0 else ""
            bits = 8 if levels > 8 else 4
            yield Relation(
                "rounded", f"is the reference's rounded to {bits}-bit integers{each}", made
            )


def _reordered(reference: Values, target: Values) -> Iterator[Relation]:
    """Axes exchanged, really or in how the same elements are read; axes reversed."""
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


def permutation(reference: Values, target: Values, axis: int) -> NDArray[np.int64] | None:
    """Which slice of the reference each slice of the target is most like; None where two would
    be the same."""
    count = reference.shape[axis]
    if not 1 < count <= _MOST_SLICES or reference.shape != target.shape:
        return None
    ours = np.moveaxis(target, axis, 0).reshape(count, -1)
    theirs = np.moveaxis(reference, axis, 0).reshape(count, -1)
    squares = np.square(ours).sum(1)[:, None] + np.square(theirs).sum(1)[None, :]
    apart = squares - 2 * ours @ theirs.T
    found = np.asarray(apart.argmin(1), np.int64)
    if len(set(found.tolist())) != count:
        return None
    return found


def _permuted(reference: Values, target: Values) -> Iterator[Relation]:
    for axis in range(reference.ndim):
        if reference.size == reference.shape[axis] and reference.ndim > 1:
            continue
        order = permutation(reference, target, axis)
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


def _scaled_by_slice(reference: Values, target: Values) -> Iterator[Relation]:
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
            least, most = (scales.min(), scales.max()) if len(off) else (1.0, 1.0)
            words = (
                f"has {len(off)} of {factors.size} {rows} multiplied by factors from"
                f" {least:.4g} to {most:.4g}"
            )
        yield Relation("scaled", words, factors * reference)


def _name_slices(axis: int, rank: int) -> str:
    """Name the slices of an axis: rows and columns of a matrix, else slices."""
    return ("rows", "columns")[axis] if rank == 2 else f"axis-{axis} slices"


def _shifted(reference: Values, target: Values) -> Iterator[Relation]:
    shift = float((target - reference).mean())
    yield Relation("shifted", f"is the reference's plus {shift:.6g}", reference + shift)


def _in_places(reference: Values, target: Values, floor: float) -> Iterator[Relation]:
    """A few slices or elements differ and all others are equal."""
    size = float(np.sqrt(np.mean(np.square(reference)))) or 1.0
    with np.errstate(invalid="ignore"):
        off = ~(np.abs(target - reference) <= floor * size)
    count = int(off.sum())
    for axis in range(reference.ndim):
        over = tuple(a for a in range(reference.ndim) if a != axis)
        hit = np.flatnonzero(off.any(axis=over))
        if reference.ndim < 2 or reference.shape[axis] < 2:
            continue
        if 0 < len(hit) <= max(1, _FEW * reference.shape[axis]):
            places = ", ".join(str(i) for i in hit[:4]) + (" ..." if len(hit) > 4 else "")
            zero = "is zero" if not np.take(target, hit, axis).any() else "differs"
            words = (
                f"{zero} in {len(hit)} of {reference.shape[axis]} slices of axis {axis}"
                f" (index {places}); the rest is equal"
            )
            yield Relation("changed", words, np.where(off, target, reference), exact=False)
            return
    if 0 < count <= _FEW * reference.size:
        at = tuple(int(i) for i in np.unravel_index(int(off.argmax()), off.shape))
        words = (
            f"differs in {count:,} of {reference.size:,} elements (first at {at}); the rest is"
            " equal"
        )
        yield Relation("changed", words, np.where(off, target, reference), exact=False)


def likeness(reference: Values, target: Values) -> str:
    """How alike two arrays are that no relation connects, in words."""
    gap = distance(target, reference)
    norms = float(np.linalg.norm(reference.ravel())) * float(np.linalg.norm(target.ravel()))
    if not norms or not np.isfinite(norms):
        return "differs from the reference's everywhere"
    cosine = float(np.vdot(reference, target)) / norms
    return f"differs by {of_norm(gap)} (cosine similarity {cosine:.4f})"
