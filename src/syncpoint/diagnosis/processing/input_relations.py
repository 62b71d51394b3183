"""Find how one side's model input follows from the other's: layout, channel order, scale,
normalization, shift of pixels or tokens, padding."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import check_time
from syncpoint.diagnosis.processing.known_normalizations import name_normalization, name_scale
from syncpoint.diagnosis.weights.relations import Relation, describe_difference, distance

Values = NDArray[np.float64]

_MAX_DISTANCE = 1e-4
"""Relative distance up to which a relation predicts the target."""
_MAX_SHIFT_PIXELS = 8
_MAX_CHANNELS = 4


def find_input_relation(reference: Values, target: Values) -> Relation | None:
    """Find what turns the reference's input into the target's; None if no known relation does."""
    if not reference.size or not target.size:
        return None
    if not (np.isfinite(reference).all() and np.isfinite(target).all()):
        return None
    are_integers = all((np.rint(v) == v).all() for v in (reference, target))
    if are_integers:
        relation = find_token_relation(reference, target)
        if relation is not None:
            return relation
    for reorder in _propose_reorders(reference, target):
        if distance(reorder.predicted, target) <= _MAX_DISTANCE:
            return reorder
    reorders = [Relation("", "", reference), *_propose_reorders(reference, target)]
    for reorder in reorders:
        if reorder.predicted.shape != target.shape:
            continue
        for change in _propose_changes(reorder.predicted, target):
            if distance(change.predicted, target) <= _max_distance(change):
                return _join(reorder, change)
    for reorder in reorders:
        for shift in _propose_shifts(reorder.predicted, target):
            return _join(reorder, shift)
    return None


def explain_input(target: Values | None, reference: Values | None) -> tuple[Relation | None, str]:
    """Return the relation of the target's input to the reference's, if one is known, and a text
    about the difference if none is."""
    if target is None or reference is None:
        return None, "differs; its values are not available"
    if target.shape != reference.shape:
        text = f"has shape {target.shape}; the reference has {reference.shape} (shape mismatch)"
    else:
        text = describe_difference(reference, target)
    return find_input_relation(reference, target), text


def _max_distance(change: Relation) -> float:
    return 1e-6 if change.kind == "rounded" else _MAX_DISTANCE


def _join(first: Relation, second: Relation) -> Relation:
    if not first.kind:
        return second
    words = f"{first.words} and {second.words}"
    return Relation(f"{first.kind}+{second.kind}", words, second.predicted, second.exact)


# The same values in other positions
def _propose_reorders(reference: Values, target: Values) -> Iterator[Relation]:
    rank = reference.ndim
    if rank >= 3:
        last, first = rank - 1, rank - 3
        to_last = np.moveaxis(reference, first, last)
        to_first = np.moveaxis(reference, last, first)
        for moved, new, old in (
            (to_last, "channels last (NHWC)", "channels first (NCHW)"),
            (to_first, "channels first (NCHW)", "channels last (NHWC)"),
        ):
            if moved.shape == target.shape:
                words = f"has {new}; the reference's has {old}"
                yield Relation("layout", words, moved)
            elif reference.shape == target.shape and moved.size == target.size:
                words = (
                    f"holds data with {new} in a shape with {old}: it was reshaped, not transposed"
                )
                yield Relation("layout", words, moved.reshape(target.shape))
        for axis in sorted({first, last}):
            if reference.shape[axis] in (3, 4):
                order = [2, 1, 0, 3][: reference.shape[axis]]
                swapped = np.take(reference, order, axis)
                yield Relation(
                    "channel-order", "has red and blue swapped (RGB against BGR)", swapped
                )
                for moved in (np.moveaxis(swapped, axis, first), np.moveaxis(swapped, axis, last)):
                    if moved.shape == target.shape != reference.shape:
                        words = "has red and blue swapped and its channels on another axis"
                        yield Relation("channel-order+layout", words, moved)
    if rank >= 2 and reference.shape == target.shape:
        for axis in range(max(rank - 3, 0), rank):
            flipped = np.flip(reference, axis)
            yield Relation("flipped", f"is flipped along axis {axis}", flipped)
    if rank >= 2:
        transposed = np.swapaxes(reference, -1, -2)
        if transposed.shape == target.shape:
            yield Relation("transposed", "has its last two axes swapped", transposed)


# Other values in the same positions
def _propose_changes(reference: Values, target: Values) -> Iterator[Relation]:
    yield from _propose_roundings(reference, target)
    square = float(np.vdot(reference, reference))
    factor = float(np.vdot(reference, target)) / square if square else 0.0
    if factor:
        name = name_scale(factor)
        words = f"is {name}" if name else f"is the reference's multiplied by {factor:.6g}"
        yield Relation("scale", words, factor * reference)
    yield from _propose_affine(reference, target)
    yield Relation("clipped", *_clip(reference, target))


def _propose_roundings(reference: Values, target: Values) -> Iterator[Relation]:
    for name, kind in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        with np.errstate(over="ignore"):
            rounded = reference.astype(np.float32).astype(kind).astype(np.float64)
        if np.isfinite(rounded).all():
            yield Relation("rounded", f"is the reference's rounded to {name}", rounded)
    for steps in (1.0, 255.0):
        for how, act in (("rounded", np.rint), ("rounded down", np.floor), ("truncated", np.trunc)):
            rounded = act(reference * steps) / steps
            if (rounded == reference).all():
                continue
            words = (
                f"is {how} to integers" if steps == 1 else f"is {how} to 8 bits (steps of 1/255)"
            )
            yield Relation("rounded", words, rounded)
            if reference.min() >= -1 and target.max() > 2:
                rounded = act(reference * 255)
                yield Relation("rounded", f"is multiplied by 255 and {how} to integers", rounded)


def _propose_affine(reference: Values, target: Values) -> Iterator[Relation]:
    """Propose one gain and shift for all elements, then one per channel."""
    for axis in (None, *range(reference.ndim)):
        if axis is not None and not 2 <= reference.shape[axis] <= _MAX_CHANNELS:
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
        name = name_normalization(gain.ravel(), shift.ravel())
        gains, shifts = (", ".join(f"{v:.4g}" for v in x.ravel()) for x in (gain, shift))
        if axis is None:
            sign = "-" if shift.item() < 0 else "+"
            words = f"is {gains} * x {sign} {abs(shift.item()):.4g}, where x is the reference's"
        else:
            words = (
                "is a * x + b per channel, where x is the reference's,"
                f" a is {gains} and b is {shifts}"
            )
        if name:
            words = f"is {name}"
        yield Relation("normalisation", words, gain * reference + shift)


def _clip(reference: Values, target: Values) -> tuple[str, Values]:
    low, high = float(target.min()), float(target.max())
    return f"is clipped to {low:.4g} ... {high:.4g}", np.clip(reference, low, high)


# The same image, shifted
def _propose_shifts(reference: Values, target: Values) -> Iterator[Relation]:
    if reference.ndim < 2 or min(reference.shape[-1], target.shape[-1]) < 4:
        return
    is_image = reference.ndim >= 3
    if reference.shape == target.shape:
        yield from _propose_pixel_shift(reference, target, is_image)
        if is_image:
            yield from _propose_subpixel_shift(reference, target)


def _propose_pixel_shift(reference: Values, target: Values, is_image: bool) -> Iterator[Relation]:
    axes = (-2, -1) if is_image else (-1,)
    if is_image and reference.shape[-1] <= _MAX_CHANNELS < reference.shape[-3]:
        axes = (-3, -2)
    reach = [min(_MAX_SHIFT_PIXELS, reference.shape[a] // 2) for a in axes]
    steps = range(-reach[0], reach[0] + 1)
    more = range(-reach[1], reach[1] + 1) if is_image else range(1)
    nearest = sorted(((y, x) for y in steps for x in more), key=lambda s: abs(s[0]) + abs(s[1]))
    sample = (slice(0, 1),) * (reference.ndim - len(axes) if axes[-1] == -1 else 0)
    for y, x in nearest[1:]:
        target_part, reference_part = target, reference
        for axis, step in zip(axes, (y, x), strict=False):
            length = reference.shape[axis]
            target_part = _cut(target_part, axis, max(step, 0), length + min(step, 0))
            reference_part = _cut(reference_part, axis, max(-step, 0), length - max(step, 0))
        # Try one channel of one sample first: most shifts are wrong, and this is cheap.
        if not _is_alike(target_part[sample], reference_part[sample]) or not _is_alike(
            target_part, reference_part
        ):
            continue
        steps_text = [
            f"{_describe_steps(s, is_image, is_down)} (axis {a % reference.ndim})"
            for a, s, is_down in zip(axes, (y, x), (True, False), strict=False)
            if s
        ]
        predicted = target.copy()  # what fills the gap is open
        _cut_all(predicted, axes, (y, x))[...] = reference_part
        words = f"is shifted by {' and '.join(steps_text)}"
        yield Relation("shift", words, predicted, exact=False)
        return


def _describe_steps(step: int, is_image: bool, is_down: bool) -> str:
    """Describe a shift by its size, unit and direction."""
    unit = ("pixel" if is_image else "position") + ("s" if abs(step) > 1 else "")
    if not is_image:
        return f"{abs(step)} {unit} {'later' if step > 0 else 'earlier'}"
    direction = ("down" if step > 0 else "up") if is_down else ("right" if step > 0 else "left")
    return f"{abs(step)} {unit} {direction}"


def _cut_all(values: Values, axes: tuple[int, ...], steps: tuple[int, int]) -> Values:
    """Return the part of the target that a shift moves the reference to."""
    for axis, step in zip(axes, steps, strict=False):
        values = _cut(values, axis, max(step, 0), values.shape[axis] + min(step, 0))
    return values


def _is_alike(target: Values, reference: Values) -> bool:
    return bool(np.ptp(reference) > 0) and distance(target, reference) <= _MAX_DISTANCE


def _cut(values: Values, axis: int, start: int, stop: int) -> Values:
    index = [slice(None)] * values.ndim
    index[axis] = slice(start, stop)
    return values[tuple(index)]


def _propose_subpixel_shift(reference: Values, target: Values) -> Iterator[Relation]:
    """Fit the target as the reference plus its slopes and its curvature: the effect of a shift by a
    part of a pixel, and of another interpolation."""
    axes = (-3, -2) if reference.shape[-1] <= _MAX_CHANNELS < reference.shape[-3] else (-2, -1)
    if min(reference.shape[a] for a in axes) < 5:
        return
    down, right = (np.gradient(reference, axis=a) for a in axes)
    curved = sum(np.gradient(np.gradient(reference, axis=a), axis=a) for a in axes)
    inside = [slice(None)] * reference.ndim
    for axis in axes:
        inside[axis] = slice(2, -2)
    inner = tuple(inside)
    basis = np.stack([np.asarray(v)[inner].ravel() for v in (down, right, curved)], 1)
    gap = (target - reference)[inner].ravel()
    energy = float(np.vdot(gap, gap))
    if not energy or np.linalg.matrix_rank(basis) < 3:
        return
    coefficients, *_ = np.linalg.lstsq(basis, gap, rcond=None)
    residual = gap - basis @ coefficients
    if float(np.vdot(residual, residual)) > 0.3 * energy or max(abs(coefficients[:2])) > 2:
        return
    y, x, blur = (float(v) for v in coefficients)
    if max(abs(y), abs(x)) >= 0.05:
        vertical, horizontal = ("up" if y > 0 else "down"), ("left" if x > 0 else "right")
        words = (
            f"is shifted by about {abs(y):.2f} pixels {vertical} and {abs(x):.2f} {horizontal},"
            " probably because it was resized with another align_corners or half-pixel rule"
        )
    elif blur > 0:
        words = (
            "is smoother, probably because it was resized with another interpolation or antialiased"
        )
    else:
        words = (
            "is sharper, probably because it was resized with another interpolation or not"
            " antialiased"
        )
    predicted = target.copy()  # the border is not fitted
    predicted[inner] = reference[inner] + (basis @ coefficients).reshape(predicted[inner].shape)
    yield Relation("resize", words, predicted, exact=False)


def find_token_relation(reference: Values, target: Values) -> Relation | None:
    """Find what turns the reference's integers into the target's; None if no known relation
    does."""
    if reference.shape != target.shape:
        return _find_length_change(reference, target)
    if (reference == target).all():
        return None
    for relation in _propose_relations(reference, target):
        if (relation.predicted == target).all():
            return relation
    return _find_shift(reference, target)


def _propose_relations(reference: Values, target: Values) -> Iterator[Relation]:
    kinds = np.union1d(reference, target)
    if len(kinds) == 2:
        inverted = kinds.sum() - reference
        yield Relation(
            "mask-inverted",
            "is inverted: it masks the positions that the reference keeps",
            inverted,
        )
        if np.ptp(target) == 0:
            words = f"is {target.flat[0]:g} everywhere; the reference's masks some positions"
            yield Relation("mask-missing", words, target)
        if np.ptp(reference) == 0:
            words = "masks positions; the reference masks none"
            yield Relation("mask-missing", words, target)
    gap = float((target - reference).flat[0])
    if len(kinds) > 2:
        words = f"is off by {gap:+g} everywhere: ids or positions start at another number"
        yield Relation("off-by-one" if abs(gap) == 1 else "offset", words, reference + gap)
    if reference.ndim:
        yield from _propose_padding(reference, target)
        yield Relation("reversed", "is in reverse order", np.flip(reference, -1))


def _propose_padding(reference: Values, target: Values) -> Iterator[Relation]:
    """Propose the same tokens with the padding at the opposite end, row by row."""
    length = reference.shape[-1]
    reference_rows, target_rows = reference.reshape(-1, length), target.reshape(-1, length)
    padded = reference_rows.copy()
    changed = 0
    sides = set()
    for row, (old, new) in enumerate(zip(reference_rows, target_rows, strict=True)):
        check_time()
        for side in (1, -1):
            edge = old[-1] if side == 1 else old[0]
            run = int(np.cumprod((old[::-1] if side == 1 else old) == edge).sum())
            rolled = np.roll(old, side * run)
            if 0 < run < length and (rolled == new).all() and not (old == new).all():
                padded[row] = rolled
                changed += 1
                sides.add(side)
                break
    if changed:
        words = "is padded at the opposite end of the sequence"
        if len(sides) == 1:
            start_or_end = ("start", "end") if sides == {1} else ("end", "start")
            words = "is padded at the {}, the reference's at the {}".format(*start_or_end)
        yield Relation("padding-side", words, padded.reshape(target.shape))


def _find_shift(reference: Values, target: Values) -> Relation | None:
    """Find the same sequence shifted by a few positions; what fills the gap is open."""
    if not reference.ndim or np.ptp(reference) == 0:
        return None
    for step in (1, 2, 3):
        if reference.shape[-1] < 2 * step + 2:
            break
        later, earlier = target[..., step:], reference[..., :-step]
        if (later == earlier).all():
            words = f"is the reference's shifted by {step}: extra tokens stand before it"
            return Relation("sequence-shift", words, target, exact=False)
        later, earlier = reference[..., step:], target[..., :-step]
        if (later == earlier).all():
            words = f"is the reference's without its first {step} tokens"
            return Relation("sequence-shift", words, target, exact=False)
    return None


def _find_length_change(reference: Values, target: Values) -> Relation | None:
    """Find one sequence inside the other, with extra tokens before or after it."""
    if not reference.ndim or reference.shape[:-1] != target.shape[:-1]:
        return None
    longer = target if target.shape[-1] > reference.shape[-1] else reference
    shorter = reference if longer is target else target
    more = longer.shape[-1] - shorter.shape[-1]
    if shorter.shape[-1] < 2:
        return None
    who = "more" if longer is target else "fewer"
    for start in range(more + 1):
        check_time()
        if (longer[..., start : start + shorter.shape[-1]] == shorter).all():
            words = f"has {more} {who} tokens than the reference, {start} of them at the start"
            return Relation("length", words, target, exact=False)
    return None
