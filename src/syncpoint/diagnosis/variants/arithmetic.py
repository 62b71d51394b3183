"""Arithmetic and rounding: another sign, operands exchanged, a factor ignored, another axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.elementwise import added, divided, rounded
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, Seen

_FUNCTIONS: dict[str, tuple[str, Any]] = {
    "add": ("a sum", np.add),
    "sub": ("a difference", np.subtract),
    "mul": ("a product", np.multiply),
    "div": ("a quotient", np.true_divide),
    "max": ("a maximum", np.maximum),
    "min": ("a minimum", np.minimum),
}


def arithmetic(seen: Seen) -> Iterable[Hypothesis]:
    """For ops of two operands, powers and rounding."""
    bound = seen.bound
    if bound is None:
        return
    if seen.kind in _FUNCTIONS and len(bound.arrays) == 2:
        yield from _two(seen, *bound.arrays)
    elif seen.kind == "pow" and len(bound.arrays) == 2:
        base, exponent = bound.arrays
        for other in (1, 2, 3, 0.5, -0.5, -1):
            if np.ndim(exponent) == 0 and other != exponent:
                text = f"uses exponent {other:g} instead of {float(exponent):g}"
                yield Hypothesis("pow-exponent", text, np.power(base, float(other)), simplicity=1)
    elif "mode" in bound.settings and bound.function is not divided:
        yield from _modes(seen)
    elif seen.kind in ("sqrt", "rsqrt", "reciprocal", "log", "exp", "square"):
        yield from _functions(seen, bound.arrays[0])


def _two(seen: Seen, a: Any, b: Any) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    settings = seen.bound.settings
    alpha = settings.get("alpha", 1)
    if alpha != 1:
        text = f"ignores its argument alpha ({alpha:g} in the reference, 1 in the target)"
        yield from _if(seen, "alpha-ignored", text, seen.changed(alpha=1), 2)
        value = added(alpha * a, b, 1, settings["sign"])
        text = f"multiplies its first operand by alpha ({alpha:g}) instead of its second"
        yield from _if(seen, "alpha-on-first", text, value, 1)
    scaled = alpha * b if alpha != 1 else b
    for kind, (text, function) in _FUNCTIONS.items():
        if kind != seen.kind:
            said = f"computes {text} instead of {_FUNCTIONS[seen.kind][0]}"
            yield from _if(seen, f"{kind}-instead", said, function(a, scaled), 1)
    if seen.kind in ("sub", "div"):
        value = _FUNCTIONS[seen.kind][1](scaled, a)
        yield from _if(seen, "operands-swapped", "swaps its operands", value, 2)
    for name, value in (("first", a), ("second", b)):
        text = f"returns its {name} operand instead of {_FUNCTIONS[seen.kind][0]}"
        yield from _if(seen, f"{seen.kind}-missing", text, np.asarray(value), 2)
    if seen.kind == "add":
        value = _of(a) + 2 * _of(scaled)
        yield from _if(seen, "added-twice", "adds its second operand twice", value, 1)
        value = 2 * _of(a) + _of(scaled)
        yield from _if(seen, "added-twice", "adds its first operand twice", value, 1)
    if seen.kind == "div" or settings.get("mode"):
        for mode, text in (
            ("", "does not round its quotient"),
            ("floor", "rounds its quotient down"),
            ("trunc", "rounds its quotient toward 0"),
        ):
            if mode != settings.get("mode", ""):
                value = divided(a, b, mode)
                own = settings.get("mode") or "none"
                yield from _if(
                    seen,
                    "div-rounding",
                    f"{text}; the rounding of the reference is {own}",
                    value,
                    2,
                )
    yield from _axes(seen, a, b)


def _axes(seen: Seen, a: Any, b: Any) -> Iterator[Hypothesis]:
    """One of the operands spread along another axis of the same length."""
    assert seen.bound is not None
    a, b = _of(a), _of(b)
    long, short, first = (a, b, False) if a.ndim >= b.ndim and a.size >= b.size else (b, a, True)
    sizes = [n for n in short.shape if n != 1]
    if len(sizes) != 1 or long.shape != seen.output.shape:
        return
    shape = [1] * (long.ndim - short.ndim) + list(short.shape)
    own = next(i for i, n in enumerate(shape) if n != 1)
    for axis, n in enumerate(long.shape):
        if n != sizes[0] or axis == own:
            continue
        turned = short.reshape([n if i == axis else 1 for i in range(long.ndim)])
        value = seen.ran(seen.bound.on(turned, b) if first else seen.bound.on(a, turned))
        text = f"broadcasts its operand along axis {axis} instead of axis {own}"
        yield from _if(seen, "broadcast-axis", text, value, 2)


def _modes(seen: Seen) -> Iterator[Hypothesis]:
    assert seen.bound is not None
    x = seen.bound.arrays[0]
    own = seen.bound.settings.get("mode", "trunc")
    if x.dtype.kind != "f":
        return
    for mode, text in (
        ("even", "rounds to nearest, ties to even"),
        ("away", "rounds to nearest, ties away from 0"),
        ("floor", "rounds down"),
        ("ceil", "rounds up"),
        ("trunc", "rounds toward 0"),
    ):
        if mode != own:
            value = rounded(x, mode).astype(seen.output.dtype)
            yield Hypothesis(
                "rounding-mode", f"{text}; the reference uses {own}", value, simplicity=2
            )
    half_up = np.floor(x + 0.5).astype(seen.output.dtype)
    yield Hypothesis("rounding-mode", "rounds to nearest, ties up", half_up, simplicity=1)


def _functions(seen: Seen, x: Array) -> Iterator[Hypothesis]:
    tries = {
        "sqrt": np.sqrt(x),
        "rsqrt": 1 / np.sqrt(x),
        "reciprocal": 1 / x,
        "square": np.square(x),
        "log": np.log(x),
        "log2": np.log2(x),
        "log10": np.log10(x),
        "log1p": np.log1p(x),
        "exp": np.exp(x),
        "exp2": np.exp2(x),
        "expm1": np.expm1(x),
    }
    for name, value in tries.items():
        if name != seen.kind:
            yield from _if(
                seen, f"{name}-instead", f"computes {name} instead of {seen.kind}", value, 1
            )
    yield from _if(
        seen, f"{seen.kind}-missing", f"returns its input instead of its {seen.kind}", x, 2
    )


def _of(value: Any) -> Array:
    return np.asarray(value)


def _if(seen: Seen, kind: str, text: str, value: Any, simplicity: int) -> Iterator[Hypothesis]:
    """A hypothesis where the value has the shape of the output, or spreads to it."""
    if value is None:
        return
    value = np.asarray(value)
    if value.shape != seen.output.shape:
        if value.ndim > seen.output.ndim or value.ndim == 0:
            return
        try:
            value = np.broadcast_to(value, seen.output.shape)
        except ValueError:
            return
    yield Hypothesis(kind, text, value, simplicity=simplicity)
