"""Rotary positions: sign, halves or neighbours, sine and cosine, position, share of the width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge

Values = NDArray[np.float64]


def rotary(seen: Seen) -> Iterable[Hypothesis]:
    """The variants of the steps of a rotation: x * cos + rotated(x) * sin."""
    if seen.kind == "neg":
        x = seen.argument(0)
        if x is not None:
            yield Hypothesis("sign-missing", "does not negate its input", x, simplicity=3)
    elif seen.kind == "concat":
        yield from _halves(seen)
    elif seen.kind == "slice":
        yield from _parts(seen)
    elif seen.kind in ("cos", "sin"):
        x = seen.argument(0)
        if x is not None:
            other, form = ("sine", np.sin) if seen.kind == "cos" else ("cosine", np.cos)
            text = f"computes the {other} instead of {seen.kind}"
            yield Hypothesis("sine-cosine-exchanged", text, form(x), simplicity=3)
    elif seen.kind == "arange":
        for by in (1, -1):
            text = f"starts its positions {'one later' if by > 0 else 'one earlier'}"
            yield Hypothesis("position-offset", text, seen.output + by, simplicity=3)
    elif seen.kind in ("add", "sub"):
        yield from _rotations(seen)
    elif seen.kind == "mul":
        yield from _tables(seen)


def _halves(seen: Seen) -> Iterator[Hypothesis]:
    """(-b, a) where the input is (a, b)."""
    pair = [a for a in seen.arguments if a is not None]
    if len(pair) != 2 or pair[0].shape != pair[1].shape or pair[0].dtype.kind != "f":
        return
    axis = seen.attribute("dim", "axis", default=-1)
    if not isinstance(axis, int):
        return
    first, second = (np.asarray(a, np.float64) for a in pair)
    yield Hypothesis(
        "halves-exchanged",
        "joins its two halves in the opposite order",
        np.concatenate([second, first], axis),
        simplicity=2,
    )
    if not any(op_class(op.type) == "neg" for op in seen.ops) and len(seen.ops) > 1:
        return
    x = np.concatenate([second, -first], axis)
    yield Hypothesis(
        "rotation-sign", "rotates in the opposite direction", -seen.output, simplicity=2
    )
    if axis in (-1, seen.output.ndim - 1):
        text = "rotates neighboring elements instead of halves"
        yield Hypothesis("rotation-interleaved", text, _neighbours(x), simplicity=1)


def _parts(seen: Seen) -> Iterator[Hypothesis]:
    """One half of the last axis where every second place belongs, or the reverse."""
    x = seen.argument(0)
    if x is None or x.ndim < 2 or x.shape != (*seen.output.shape[:-1], 2 * seen.output.shape[-1]):
        return
    half = seen.output.shape[-1]
    for kind, text, value in (
        ("rotation-interleaved", "takes every second element, from the first on,", x[..., ::2]),
        ("rotation-interleaved", "takes every second element, from the second on,", x[..., 1::2]),
        ("halves-exchanged", "takes the first half", x[..., :half]),
        ("halves-exchanged", "takes the second half", x[..., half:]),
    ):
        yield Hypothesis(kind, f"{text} of the axis", value, simplicity=2)


def _neighbours(x: Values) -> Values:
    turned = np.stack([-x[..., 1::2], x[..., 0::2]], -1)
    found: Values = turned.reshape(x.shape)
    return found


def _by_halves(x: Values) -> Values:
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def _rotations(seen: Seen) -> Iterator[Hypothesis]:
    """The whole of it, where its products are in the region."""
    factors = _product_factors(seen)
    if factors is None or seen.output.ndim < 2 or seen.output.shape[-1] % 2:
        return
    straight, turned = factors
    for x, cosine in (straight, straight[::-1]):
        for rotated, sine in (turned, turned[::-1]):
            form = _rotation_form(x, rotated, seen.output.shape)
            if form is not None:
                yield from _whole(x, cosine, sine, form is _by_halves)
                return


def _product_factors(seen: Seen) -> list[list[Values]] | None:
    """The factors of the two products that an op adds up; None where it does not."""
    made = {Edge(op.key): op for op in seen.ops if op_class(op.type) == "mul"}
    products = [made[e] for e in seen.op.inputs if e in made]
    factors = [[seen.values.get(e) for e in op.inputs[:2]] for op in products]
    known = [[a for a in pair if a is not None and a.dtype.kind == "f"] for pair in factors]
    if [len(pair) for pair in known] != [2, 2]:
        return None
    return [[np.asarray(a, np.float64) for a in pair] for pair in known]


def _rotation_form(
    x: Values, rotated: Values, shape: tuple[int, ...]
) -> Callable[[Values], Values] | None:
    """How `rotated` is made of `x`, by halves or by neighbours; None where it is not."""
    if x.shape != shape or rotated.shape != shape:
        return None
    for form in (_by_halves, _neighbours):
        if np.allclose(form(x), rotated, rtol=1e-6, atol=1e-9):
            return form
    return None


def _whole(x: Values, cosine: Values, sine: Values, halves: bool) -> Iterator[Hypothesis]:
    form, other = (_by_halves, _neighbours) if halves else (_neighbours, _by_halves)
    width = x.shape[-1]
    text = "rotates in the opposite direction"
    yield Hypothesis("rotation-sign", text, x * cosine - form(x) * sine, simplicity=3)
    text = "does not rotate its input"
    yield Hypothesis("rotation-missing", text, x, simplicity=3)
    text = "swaps sine and cosine"
    yield Hypothesis("sine-cosine-exchanged", text, x * sine + form(x) * cosine, simplicity=2)
    pairs = ("neighboring elements", "halves")
    text = f"rotates {pairs[not halves]} instead of {pairs[halves]}"
    kind = "rotation-interleaved" if halves else "rotation-by-halves"
    yield Hypothesis(kind, text, x * cosine + other(x) * sine, simplicity=1)
    if cosine.shape[-1] == width:
        laid = [_laid(t, halves) for t in (cosine, sine)]
        yield Hypothesis(kind, text, x * laid[0] + other(x) * laid[1], simplicity=2)
    half = x.copy()
    part = x[..., : width // 2]
    tables = [t[..., : width // 2] for t in (cosine, sine)]
    half[..., : width // 2] = part * tables[0] + form(part) * tables[1]
    text = "rotates only half of its width"
    yield Hypothesis("rotation-half", text, half, simplicity=1)
    turn = _one_place(cosine, sine)
    if turn is None:
        return
    for by, turned in (("later", turn), ("earlier", np.conj(turn))):
        moved = (cosine + 1j * sine) * turned
        text = f"rotates by the angles of one position {by}"
        value = x * moved.real + form(x) * moved.imag
        yield Hypothesis("position-offset", text, value, simplicity=2)


def _laid(table: Values, halves: bool) -> Values:
    """A table that serves halves laid out for neighbours, and the reverse."""
    half = table.shape[-1] // 2
    if halves:
        return np.repeat(table[..., :half], 2, -1)
    return np.concatenate([table[..., ::2]] * 2, -1)


def _one_place(cosine: Values, sine: Values) -> NDArray[np.complex128] | None:
    """By how much the angle grows from place to place."""
    if cosine.shape != sine.shape or cosine.ndim < 2:
        return None
    places = max(range(cosine.ndim - 1), key=lambda a: cosine.shape[a])
    if cosine.shape[places] < 2:
        return None
    angles = cosine + 1j * sine
    found: NDArray[np.complex128] = np.take(angles, [1], places) / np.take(angles, [0], places)
    return found


def _tables(seen: Seen) -> Iterator[Hypothesis]:
    """One product of a rotation on its own: the other table, its sign read off the target."""
    pair = [a for a in seen.arguments if a is not None]
    target = seen.end
    if len(pair) != 2 or target is None or target.shape != seen.output.shape:
        return
    if len(seen.ops) > 1 or any(a.dtype.kind != "f" for a in pair):
        return
    x, table = sorted(pair, key=lambda a: -a.size)
    if table.size < 2 or 2 * table.size > x.size or (np.abs(table) > 1 + 1e-6).any():
        return
    other = np.sqrt(np.maximum(1 - np.square(np.asarray(table, np.float64)), 0))
    value = x * other
    agreed: Array = target * value
    lead = agreed.ndim - table.ndim
    axes = tuple(range(lead)) + tuple(
        lead + a for a in range(table.ndim) if table.shape[a] < agreed.shape[lead + a]
    )
    signs = np.sign(agreed.sum(axes, keepdims=True))
    text = "multiplies by the sine instead of the cosine, or the reverse"
    yield Hypothesis("sine-cosine-exchanged", text, value * signs, simplicity=1)
