"""Find the relation of two integer inputs: tokens, positions and masks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.budget import check_time
from syncpoint.diagnosis.weights.relations import Relation

Values = NDArray[np.float64]


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
            words = f"is {target.flat[0]:g} everywhere: the mask is missing"
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
    for row, (old, new) in enumerate(zip(reference_rows, target_rows, strict=True)):
        check_time()
        for side in (1, -1):
            edge = old[-1] if side == 1 else old[0]
            run = int(np.cumprod((old[::-1] if side == 1 else old) == edge).sum())
            rolled = np.roll(old, side * run)
            if 0 < run < length and (rolled == new).all() and not (old == new).all():
                padded[row] = rolled
                changed += 1
                break
    if changed:
        words = "is padded at the opposite end of the sequence"
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
