"""Variants of arithmetic and rounding: another function, swapped operands, broadcast along another
axis, another rounding mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from syncpoint.diagnosis.numpy_ops.elementwise import added, divided, rounded
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest

_FUNCTIONS: dict[str, tuple[str, Any]] = {
    "add": ("a sum", np.add),
    "sub": ("a difference", np.subtract),
    "mul": ("a product", np.multiply),
    "div": ("a quotient", np.true_divide),
    "max": ("a maximum", np.maximum),
    "min": ("a minimum", np.minimum),
}


def vary_arithmetic(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary ops with two operands, powers, rounding and unary functions."""
    bound = tested_op.bound
    if bound is None:
        return
    if tested_op.kind in _FUNCTIONS and len(bound.arrays) == 2:
        yield from _vary_binary_op(tested_op, *bound.arrays)
    elif tested_op.kind == "pow" and len(bound.arrays) == 2:
        base, exponent = bound.arrays
        for other in (1, 2, 3, 0.5, -0.5, -1):
            if np.ndim(exponent) == 0 and other != exponent:
                text = f"uses exponent {other:g} instead of {float(exponent):g}"
                value, setting = (
                    np.power(base, float(other)),
                    ("the exponent", f"{float(exponent):g}"),
                )
                yield Hypothesis("pow-exponent", text, value, setting=setting, simplicity=1)
    elif "mode" in bound.settings and bound.function is not divided:
        yield from _vary_rounding_mode(tested_op)
    elif tested_op.kind in ("sqrt", "rsqrt", "reciprocal", "log", "exp", "square"):
        yield from _vary_unary_function(tested_op, bound.arrays[0])


def _vary_binary_op(tested_op: OpUnderTest, a: Any, b: Any) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    settings = tested_op.bound.settings
    alpha = settings.get("alpha", 1)
    if alpha != 1:
        text = f"ignores its argument alpha ({alpha:g} in the reference, 1 in the target)"
        yield from _propose_if_shape_fits(
            tested_op, "alpha-ignored", text, tested_op.run_with_settings(alpha=1), 2
        )
        value = added(alpha * a, b, 1, settings["sign"])
        text = f"multiplies its first operand by alpha ({alpha:g}) instead of its second"
        yield from _propose_if_shape_fits(tested_op, "alpha-on-first", text, value, 1)
    scaled = alpha * b if alpha != 1 else b
    for kind, (text, function) in _FUNCTIONS.items():
        if kind != tested_op.kind:
            title = f"computes {text} instead of {_FUNCTIONS[tested_op.kind][0]}"
            yield from _propose_if_shape_fits(
                tested_op, f"{kind}-instead", title, function(a, scaled), 1
            )
    if tested_op.kind in ("sub", "div"):
        value = _FUNCTIONS[tested_op.kind][1](scaled, a)
        yield from _propose_if_shape_fits(
            tested_op, "operands-swapped", "swaps its operands", value, 2
        )
    for name, value in (("first", a), ("second", b)):
        text = f"returns its {name} operand instead of {_FUNCTIONS[tested_op.kind][0]}"
        yield from _propose_if_shape_fits(
            tested_op, f"{tested_op.kind}-missing", text, np.asarray(value), 2
        )
    if tested_op.kind == "add":
        value = _as_array(a) + 2 * _as_array(scaled)
        yield from _propose_if_shape_fits(
            tested_op, "added-twice", "adds its second operand twice", value, 1
        )
        value = 2 * _as_array(a) + _as_array(scaled)
        yield from _propose_if_shape_fits(
            tested_op, "added-twice", "adds its first operand twice", value, 1
        )
    if tested_op.kind == "div" or settings.get("mode"):
        for mode, text in (
            ("", "does not round its quotient"),
            ("floor", "rounds its quotient down"),
            ("trunc", "rounds its quotient toward 0"),
        ):
            if mode != settings.get("mode", ""):
                value = divided(a, b, mode)
                reference_mode = settings.get("mode") or "none"
                yield from _propose_if_shape_fits(
                    tested_op,
                    "div-rounding",
                    f"{text}; the rounding of the reference is {reference_mode}",
                    value,
                    2,
                )
    yield from _vary_broadcast_axis(tested_op, a, b)


def _vary_broadcast_axis(tested_op: OpUnderTest, a: Any, b: Any) -> Iterator[Hypothesis]:
    """Broadcast the smaller operand along another axis of the same length."""
    assert tested_op.bound is not None
    a, b = _as_array(a), _as_array(b)
    larger, smaller, is_first_short = (
        (a, b, False) if a.ndim >= b.ndim and a.size >= b.size else (b, a, True)
    )
    sizes = [n for n in smaller.shape if n != 1]
    if len(sizes) != 1 or larger.shape != tested_op.output.shape:
        return
    shape = [1] * (larger.ndim - smaller.ndim) + list(smaller.shape)
    reference_axis = next(i for i, n in enumerate(shape) if n != 1)
    for axis, n in enumerate(larger.shape):
        if n != sizes[0] or axis == reference_axis:
            continue
        respread = smaller.reshape([n if i == axis else 1 for i in range(larger.ndim)])
        value = tested_op.run_bound(
            tested_op.bound.on(respread, b) if is_first_short else tested_op.bound.on(a, respread)
        )
        text = f"broadcasts its operand along axis {axis} instead of axis {reference_axis}"
        yield from _propose_if_shape_fits(tested_op, "broadcast-axis", text, value, 2)


def _vary_rounding_mode(tested_op: OpUnderTest) -> Iterator[Hypothesis]:
    assert tested_op.bound is not None
    x = tested_op.bound.arrays[0]
    reference_mode = tested_op.bound.settings.get("mode", "trunc")
    if x.dtype.kind != "f":
        return
    for mode, text in (
        ("even", "rounds to nearest, ties to even"),
        ("away", "rounds to nearest, ties away from 0"),
        ("floor", "rounds down"),
        ("ceil", "rounds up"),
        ("trunc", "rounds toward 0"),
    ):
        if mode != reference_mode:
            value = rounded(x, mode).astype(tested_op.output.dtype)
            yield Hypothesis(
                "rounding-mode",
                f"{text}; the reference uses {reference_mode}",
                value,
                setting=("the rounding mode", reference_mode),
                simplicity=2,
            )
    half_up = np.floor(x + 0.5).astype(tested_op.output.dtype)
    yield Hypothesis("rounding-mode", "rounds to nearest, ties up", half_up, simplicity=1)


def _vary_unary_function(tested_op: OpUnderTest, x: Array) -> Iterator[Hypothesis]:
    value_by_function = {
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
    for name, value in value_by_function.items():
        if name != tested_op.kind:
            yield from _propose_if_shape_fits(
                tested_op,
                f"{name}-instead",
                f"computes {name} instead of {tested_op.kind}",
                value,
                1,
            )
    yield from _propose_if_shape_fits(
        tested_op,
        f"{tested_op.kind}-missing",
        f"returns its input instead of its {tested_op.kind}",
        x,
        2,
    )


def _as_array(value: Any) -> Array:
    return np.asarray(value)


def _propose_if_shape_fits(
    tested_op: OpUnderTest, kind: str, text: str, value: Any, simplicity: int
) -> Iterator[Hypothesis]:
    """Yield a hypothesis if the value has the shape of the output or broadcasts to it."""
    if value is None:
        return
    value = np.asarray(value)
    if value.shape != tested_op.output.shape:
        if value.ndim > tested_op.output.ndim or value.ndim == 0:
            return
        try:
            value = np.broadcast_to(value, tested_op.output.shape)
        except ValueError:
            return
    yield Hypothesis(kind, text, value, simplicity=simplicity)
