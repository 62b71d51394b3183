"""Variants of rotary embeddings: direction, halves or neighbors, sine and cosine tables, position;
the steps of a rotation recognized by value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest
from syncpoint.matching.op_kinds import op_class
from syncpoint.run.model import Edge

Values = NDArray[np.float64]

_NEIGHBORS = "elements 2i and 2i + 1 (interleaved)"
_HALVES = "elements i and i + width/2 (halves)"
_PAIRS_TEXT = "is part of a rotary embedding that pairs {}; the reference pairs {}"
_SIGN_ADVICE = "check the sign of the sine and of rotate_half in the target's rotary embedding"


def vary_rotary(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary the steps of a rotation: `x * cos + rotated(x) * sin`."""
    if tested_op.kind == "neg":
        x = tested_op.argument(0)
        if x is not None:
            yield Hypothesis("sign-missing", "does not negate its input", x, simplicity=3)
    elif tested_op.kind == "concat":
        yield from _vary_concatenation(tested_op)
    elif tested_op.kind == "slice":
        yield from _vary_slice(tested_op)
    elif tested_op.kind in ("cos", "sin"):
        x = tested_op.argument(0)
        if x is not None:
            other_name, form = ("sine", np.sin) if tested_op.kind == "cos" else ("cosine", np.cos)
            text = f"computes the {other_name} instead of {tested_op.kind}"
            yield Hypothesis("sine-cosine-exchanged", text, form(x), simplicity=3)
    elif tested_op.kind == "arange":
        for step in (1, -1):
            text = f"starts its positions {'one later' if step > 0 else 'one earlier'}"
            yield Hypothesis("position-offset", text, tested_op.output + step, simplicity=3)
    elif tested_op.kind in ("add", "sub"):
        yield from _vary_sum(tested_op)
    elif tested_op.kind == "mul":
        yield from _vary_product(tested_op)


def _vary_concatenation(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary the concatenation of `(-b, a)` from the halves `(a, b)` of the input."""
    parts = [a for a in tested_op.arguments if a is not None]
    if len(parts) != 2 or parts[0].shape != parts[1].shape or parts[0].dtype.kind != "f":
        return
    axis = tested_op.attribute("dim", "axis", default=-1)
    if not isinstance(axis, int):
        return
    first, second = (np.asarray(a, np.float64) for a in parts)
    yield Hypothesis(
        "halves-exchanged",
        "joins its two halves in the opposite order",
        np.concatenate([second, first], axis),
        simplicity=2,
    )
    if not any(op_class(op.type) == "neg" for op in tested_op.ops) and len(tested_op.ops) > 1:
        return
    x = np.concatenate([second, -first], axis)
    yield Hypothesis(
        "rotation-sign",
        "is part of a rotary embedding that turns in the opposite direction",
        -tested_op.output,
        next=_SIGN_ADVICE,
        simplicity=2,
    )
    if axis in (-1, tested_op.output.ndim - 1):
        text = _PAIRS_TEXT.format(_NEIGHBORS, _HALVES)
        advice = _advise_on_pairs(is_by_halves=True)
        value = _rotate_neighbors(x)
        yield Hypothesis("rotation-interleaved", text, value, next=advice, simplicity=1)


def _vary_slice(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Take every second element instead of one half of the last axis, or the reverse."""
    x = tested_op.argument(0)
    if (
        x is None
        or x.ndim < 2
        or x.shape != (*tested_op.output.shape[:-1], 2 * tested_op.output.shape[-1])
    ):
        return
    half = tested_op.output.shape[-1]
    for kind, text, value in (
        ("rotation-interleaved", "takes every second element, from the first on,", x[..., ::2]),
        ("rotation-interleaved", "takes every second element, from the second on,", x[..., 1::2]),
        ("halves-exchanged", "takes the first half", x[..., :half]),
        ("halves-exchanged", "takes the second half", x[..., half:]),
    ):
        yield Hypothesis(kind, f"{text} of the axis", value, simplicity=2)


def _rotate_neighbors(x: Values) -> Values:
    pairs = np.stack([-x[..., 1::2], x[..., 0::2]], -1)
    rotated: Values = pairs.reshape(x.shape)
    return rotated


def _rotate_halves(x: Values) -> Values:
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


def _vary_sum(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Vary the sum of a rotation if both products are in the region."""
    factors = _find_product_factors(tested_op)
    if factors is None or tested_op.output.ndim < 2 or tested_op.output.shape[-1] % 2:
        return
    plain_factors, rotated_factors = factors
    for x, cosine in (plain_factors, plain_factors[::-1]):
        for rotated, sine in (rotated_factors, rotated_factors[::-1]):
            rotate = _find_rotation(x, rotated, tested_op.output.shape)
            if rotate is not None:
                yield from _vary_rotation(x, cosine, sine, rotate is _rotate_halves)
                return


def _find_product_factors(tested_op: OpUnderTest) -> list[list[Values]] | None:
    """Return the factors of the two products that an op adds; None if it does not."""
    product_by_edge = {Edge(op.key): op for op in tested_op.ops if op_class(op.type) == "mul"}
    products = [product_by_edge[e] for e in tested_op.op.inputs if e in product_by_edge]
    factors = [[tested_op.values.get(e) for e in op.inputs[:2]] for op in products]
    float_factors = [[a for a in pair if a is not None and a.dtype.kind == "f"] for pair in factors]
    if [len(pair) for pair in float_factors] != [2, 2]:
        return None
    return [[np.asarray(a, np.float64) for a in pair] for pair in float_factors]


def _find_rotation(
    x: Values, rotated: Values, shape: tuple[int, ...]
) -> Callable[[Values], Values] | None:
    """Return the rotation that maps `x` to `rotated` (halves or neighbors); None if neither."""
    if x.shape != shape or rotated.shape != shape:
        return None
    for rotate in (_rotate_halves, _rotate_neighbors):
        if np.allclose(rotate(x), rotated, rtol=1e-6, atol=1e-9):
            return rotate
    return None


def _vary_rotation(
    x: Values, cosine: Values, sine: Values, is_by_halves: bool
) -> Iterator[Hypothesis]:
    rotate, rotate_otherwise = (
        (_rotate_halves, _rotate_neighbors) if is_by_halves else (_rotate_neighbors, _rotate_halves)
    )
    width = x.shape[-1]
    text = "is part of a rotary embedding that turns in the opposite direction"
    value = x * cosine - rotate(x) * sine
    yield Hypothesis("rotation-sign", text, value, next=_SIGN_ADVICE, simplicity=3)
    text = "does not apply the rotary embedding to its input"
    yield Hypothesis("rotation-missing", text, x, simplicity=3)
    text = "swaps sine and cosine"
    yield Hypothesis("sine-cosine-exchanged", text, x * sine + rotate(x) * cosine, simplicity=2)
    pairs = (_NEIGHBORS, _HALVES)
    text = _PAIRS_TEXT.format(pairs[not is_by_halves], pairs[is_by_halves])
    kind = "rotation-interleaved" if is_by_halves else "rotation-by-halves"
    advice = _advise_on_pairs(is_by_halves)
    value = x * cosine + rotate_otherwise(x) * sine
    yield Hypothesis(kind, text, value, next=advice, simplicity=1)
    if cosine.shape[-1] == width:
        converted = [_convert_table(t, is_by_halves) for t in (cosine, sine)]
        value = x * converted[0] + rotate_otherwise(x) * converted[1]
        yield Hypothesis(kind, text, value, next=advice, simplicity=2)
    half_rotated = x.copy()
    first_half = x[..., : width // 2]
    tables = [t[..., : width // 2] for t in (cosine, sine)]
    half_rotated[..., : width // 2] = first_half * tables[0] + rotate(first_half) * tables[1]
    text = (
        "is part of a rotary embedding that rotates only half of the width; the reference rotates"
        " all of it"
    )
    advice = "set the rotary dimension of the target to the whole width of a head"
    yield Hypothesis("rotation-half", text, half_rotated, next=advice, simplicity=1)
    angle_step = _angle_step(cosine, sine)
    if angle_step is None:
        return
    for direction, step in (("later", angle_step), ("earlier", np.conj(angle_step))):
        angles = (cosine + 1j * sine) * step
        text = f"is part of a rotary embedding with the angles of one position {direction}"
        value = x * angles.real + rotate(x) * angles.imag
        advice = "check the first position id of the target's rotary embedding"
        yield Hypothesis("position-offset", text, value, next=advice, simplicity=2)


def _advise_on_pairs(is_by_halves: bool) -> str:
    """Return the next step for a rotation of other pairs than the reference's."""
    pair = "i with i + width/2 (halves)" if is_by_halves else "2i with 2i + 1 (neighbors)"
    return f"pair element {pair} in the target's rotary embedding, as the reference does"


def _convert_table(table: Values, is_by_halves: bool) -> Values:
    """Convert a table for halves to one for neighbors, or the reverse."""
    half = table.shape[-1] // 2
    if is_by_halves:
        return np.repeat(table[..., :half], 2, -1)
    return np.concatenate([table[..., ::2]] * 2, -1)


def _angle_step(cosine: Values, sine: Values) -> NDArray[np.complex128] | None:
    """Return the rotation from one position to the next; None if it is not known."""
    if cosine.shape != sine.shape or cosine.ndim < 2:
        return None
    position_axis = max(range(cosine.ndim - 1), key=lambda a: cosine.shape[a])
    if cosine.shape[position_axis] < 2:
        return None
    angles = cosine + 1j * sine
    step: NDArray[np.complex128] = np.take(angles, [1], position_axis) / np.take(
        angles, [0], position_axis
    )
    return step


def _vary_product(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    """Swap sine and cosine in a single product; the sign is taken from the target."""
    factors = [a for a in tested_op.arguments if a is not None]
    target = tested_op.region_target
    if len(factors) != 2 or target is None or target.shape != tested_op.output.shape:
        return
    if len(tested_op.ops) > 1 or any(a.dtype.kind != "f" for a in factors):
        return
    x, table = sorted(factors, key=lambda a: -a.size)
    if table.size < 2 or 2 * table.size > x.size or (np.abs(table) > 1 + 1e-6).any():
        return
    other_table = np.sqrt(np.maximum(1 - np.square(np.asarray(table, np.float64)), 0))
    value = x * other_table
    agreement: Array = target * value
    lead = agreement.ndim - table.ndim
    axes = tuple(range(lead)) + tuple(
        lead + a for a in range(table.ndim) if table.shape[a] < agreement.shape[lead + a]
    )
    signs = np.sign(agreement.sum(axes, keepdims=True))
    text = "multiplies by the sine instead of the cosine, or the reverse"
    yield Hypothesis("sine-cosine-exchanged", text, value * signs, simplicity=1)
