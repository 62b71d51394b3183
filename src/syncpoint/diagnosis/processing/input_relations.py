"""How one pipeline's input is made of another's: layout, channel order, scale, normalisation,
rounding, a shift of pixels or tokens, padding, masks. Two of these in one go at most."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.processing.known_normalizations import normalisation_named, scale_named
from syncpoint.diagnosis.processing.token_relations import of_integers
from syncpoint.diagnosis.weights.relations import Relation, distance, likeness

Values = NDArray[np.float64]

_FLOOR = 1e-4
_FURTHEST = 8
"""Pixels that a shift is looked for."""
_CHANNELS = 4


def input_relation(reference: Values, target: Values) -> Relation | None:
    """What turns the reference's input into the target's; None where nothing known does."""
    if not reference.size or not target.size:
        return None
    if not (np.isfinite(reference).all() and np.isfinite(target).all()):
        return None
    whole = all((np.rint(v) == v).all() for v in (reference, target))
    if whole:
        found = of_integers(reference, target)
        if found is not None:
            return found
    for turned in _turned(reference, target):
        if distance(turned.made, target) <= _FLOOR:
            return turned
    turns = [Relation("", "", reference), *_turned(reference, target)]
    for turned in turns:
        if turned.made.shape != target.shape:
            continue
        for change in _valued(turned.made, target):
            if distance(change.made, target) <= _allowed(change):
                return _joined(turned, change)
    for turned in turns:
        for moved in _moved(turned.made, target):
            return _joined(turned, moved)
    return None


def explain_input(ours: Values | None, theirs: Values | None) -> tuple[Relation | None, str]:
    """What turns the reference's input into the target's, where that is known, and in words how
    the two differ if nothing known does."""
    if ours is None or theirs is None:
        return None, "differs; its values are not available"
    if ours.shape != theirs.shape:
        apart = f"has shape {ours.shape}; the reference has {theirs.shape} (shape mismatch)"
    else:
        apart = likeness(theirs, ours)
    return input_relation(theirs, ours), apart


def _allowed(change: Relation) -> float:
    return 1e-6 if change.kind == "rounded" else _FLOOR


def _joined(first: Relation, second: Relation) -> Relation:
    if not first.kind:
        return second
    words = f"{first.words} and {second.words}"
    return Relation(f"{first.kind}+{second.kind}", words, second.made, second.exact)


# Other places of the same values


def _turned(reference: Values, target: Values) -> Iterator[Relation]:
    rank = reference.ndim
    if rank >= 3:
        last, first = rank - 1, rank - 3
        to_last = np.moveaxis(reference, first, last)
        to_first = np.moveaxis(reference, last, first)
        for made, words in (
            (to_last, "has channels last (NHWC); the reference has channels first (NCHW)"),
            (to_first, "has channels first (NCHW); the reference has channels last (NHWC)"),
        ):
            if made.shape == target.shape:
                yield Relation("layout", words, made)
            elif reference.shape == target.shape and made.size == target.size:
                words = f"{words}, but the same shape"
                yield Relation("layout", words, made.reshape(target.shape))
        for axis in sorted({first, last}):
            if reference.shape[axis] in (3, 4):
                order = [2, 1, 0, 3][: reference.shape[axis]]
                made = np.take(reference, order, axis)
                yield Relation("channel-order", "has red and blue swapped (RGB against BGR)", made)
                for turned in (np.moveaxis(made, axis, first), np.moveaxis(made, axis, last)):
                    if turned.shape == target.shape != reference.shape:
                        words = "has red and blue swapped and its channels on another axis"
                        yield Relation("channel-order+layout", words, turned)
    if rank >= 2 and reference.shape == target.shape:
        for axis in range(max(rank - 3, 0), rank):
            made = np.flip(reference, axis)
            yield Relation("flipped", f"is flipped along axis {axis}", made)
    if rank >= 2:
        made = np.swapaxes(reference, -1, -2)
        if made.shape == target.shape:
            yield Relation("transposed", "has its last two axes swapped", made)


# Other values in the same places


def _valued(reference: Values, target: Values) -> Iterator[Relation]:
    yield from _rounded(reference, target)
    square = float(np.vdot(reference, reference))
    factor = float(np.vdot(reference, target)) / square if square else 0.0
    if factor:
        known = scale_named(factor)
        words = f"is {known}" if known else f"is the reference's multiplied by {factor:.6g}"
        yield Relation("scale", words, factor * reference)
    yield from _affine(reference, target)
    yield Relation("clipped", *_clipped(reference, target))


def _rounded(reference: Values, target: Values) -> Iterator[Relation]:
    for name, kind in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        with np.errstate(over="ignore"):
            made = reference.astype(np.float32).astype(kind).astype(np.float64)
        if np.isfinite(made).all():
            yield Relation("rounded", f"is the reference's rounded to {name}", made)
    for steps in (1.0, 255.0):
        for how, act in (("rounded", np.rint), ("rounded down", np.floor), ("truncated", np.trunc)):
            made = act(reference * steps) / steps
            if (made == reference).all():
                continue
            words = (
                f"is {how} to integers" if steps == 1 else f"is {how} to 8 bits (steps of 1/255)"
            )
            yield Relation("rounded", words, made)
            if reference.min() >= -1 and target.max() > 2:
                made = act(reference * 255)
                yield Relation("rounded", f"is multiplied by 255 and {how} to integers", made)


def _affine(reference: Values, target: Values) -> Iterator[Relation]:
    """One gain and shift for all, then one for each channel."""
    for axis in (None, *range(reference.ndim)):
        if axis is not None and not 2 <= reference.shape[axis] <= _CHANNELS:
            continue
        over = tuple(a for a in range(reference.ndim) if a != axis) or None
        count = reference.size if axis is None else reference.size // reference.shape[axis]
        if count < 8:
            continue
        mean = reference.mean(axis=over, keepdims=True)
        other = target.mean(axis=over, keepdims=True)
        spread = np.square(reference - mean).sum(axis=over, keepdims=True)
        if not (spread > 0).all():
            continue
        gain = ((reference - mean) * (target - other)).sum(axis=over, keepdims=True) / spread
        shift = other - gain * mean
        known = normalisation_named(gain.ravel(), shift.ravel())
        each = "" if axis is None else " (per channel)"
        gains, shifts = (", ".join(f"{v:.4g}" for v in x.ravel()) for x in (gain, shift))
        words = f"is the reference's multiplied by {gains} plus {shifts}{each}"
        if known:
            words = f"is {known}"
        yield Relation("normalisation", words, gain * reference + shift)


def _clipped(reference: Values, target: Values) -> tuple[str, Values]:
    low, high = float(target.min()), float(target.max())
    return f"is clipped to {low:.4g} ... {high:.4g}", np.clip(reference, low, high)


# The same picture a little aside


def _moved(reference: Values, target: Values) -> Iterator[Relation]:
    if reference.ndim < 2 or min(reference.shape[-1], target.shape[-1]) < 4:
        return
    picture = reference.ndim >= 3
    if reference.shape == target.shape:
        yield from _whole_pixels(reference, target, picture)
        if picture:
            yield from _part_of_a_pixel(reference, target)


def _whole_pixels(reference: Values, target: Values, picture: bool) -> Iterator[Relation]:
    axes = (-2, -1) if picture else (-1,)
    if picture and reference.shape[-1] <= _CHANNELS < reference.shape[-3]:
        axes = (-3, -2)
    reach = [min(_FURTHEST, reference.shape[a] // 2) for a in axes]
    steps = range(-reach[0], reach[0] + 1)
    more = range(-reach[1], reach[1] + 1) if picture else range(1)
    nearest = sorted(((y, x) for y in steps for x in more), key=lambda s: abs(s[0]) + abs(s[1]))
    sample = (slice(0, 1),) * (reference.ndim - len(axes) if axes[-1] == -1 else 0)
    for y, x in nearest[1:]:
        ours, theirs = target, reference
        for axis, step in zip(axes, (y, x), strict=False):
            length = reference.shape[axis]
            ours = _cut(ours, axis, max(step, 0), length + min(step, 0))
            theirs = _cut(theirs, axis, max(-step, 0), length - max(step, 0))
        # One channel of one sample first: most shifts are wrong, and it is cheap to see.
        if not _like(ours[sample], theirs[sample]) or not _like(ours, theirs):
            continue
        said = [
            f"{abs(s)} along axis {a % reference.ndim}"
            for a, s in zip(axes, (y, x), strict=False)
            if s
        ]
        yield Relation("shift", f"is shifted by {' and '.join(said)}", target, exact=False)
        return


def _like(ours: Values, theirs: Values) -> bool:
    return bool(np.ptp(theirs) > 0) and distance(ours, theirs) <= _FLOOR


def _cut(values: Values, axis: int, start: int, stop: int) -> Values:
    index = [slice(None)] * values.ndim
    index[axis] = slice(start, stop)
    return values[tuple(index)]


def _part_of_a_pixel(reference: Values, target: Values) -> Iterator[Relation]:
    """The target as the reference plus its slopes and its curvature: what a shift of part of a
    pixel, and another way of interpolating, come to."""
    axes = (-3, -2) if reference.shape[-1] <= _CHANNELS < reference.shape[-3] else (-2, -1)
    if min(reference.shape[a] for a in axes) < 5:
        return
    down, right = (np.gradient(reference, axis=a) for a in axes)
    curved = sum(np.gradient(np.gradient(reference, axis=a), axis=a) for a in axes)
    inside = [slice(None)] * reference.ndim
    for axis in axes:
        inside[axis] = slice(2, -2)
    at = tuple(inside)
    basis = np.stack([np.asarray(v)[at].ravel() for v in (down, right, curved)], 1)
    gap = (target - reference)[at].ravel()
    whole = float(np.vdot(gap, gap))
    if not whole or np.linalg.matrix_rank(basis) < 3:
        return
    found, *_ = np.linalg.lstsq(basis, gap, rcond=None)
    left = gap - basis @ found
    if float(np.vdot(left, left)) > 0.3 * whole or max(abs(found[:2])) > 2:
        return
    y, x, blur = (float(v) for v in found)
    if max(abs(y), abs(x)) >= 0.05:
        words = (
            f"is shifted by about {-y:.2f} and {-x:.2f} pixels: another align_corners or"
            " half-pixel rule"
        )
    elif blur > 0:
        words = "is smoother: resized with another interpolation, or with antialiasing"
    else:
        words = "is sharper: resized with another interpolation, or without antialiasing"
    yield Relation("resize", words, target, exact=False)
