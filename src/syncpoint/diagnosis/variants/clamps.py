"""Variants of clamps (missing or other bounds) and of the slope of a leaky ReLU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from syncpoint.diagnosis.numpy_ops.elementwise import clamp, leaky
from syncpoint.diagnosis.variants.protocol import Array, Hypothesis, OpUnderTest


def vary_clamp(tested_op: OpUnderTest) -> Iterable[Hypothesis]:
    """Vary clamps, ReLUs and leaky ReLUs."""
    x = tested_op.argument(0)
    if x is None or x.dtype.kind != "f" or x.shape != tested_op.output.shape:
        return
    bound = tested_op.bound
    if tested_op.kind == "leaky_relu":
        yield from _vary_slope(tested_op, x)
        yield from _fit_bounds(tested_op, tested_op.output, "result")
    elif tested_op.kind == "clamp" and bound is not None and bound.function is clamp:
        lower, upper = bound.settings["lower"], bound.settings["upper"]
        if lower is not None:
            value = clamp(x, None, upper)
            yield Hypothesis(
                "clamp-min-missing", f"ignores its lower bound {lower}", value, simplicity=2
            )
        if upper is not None:
            value = clamp(x, lower, None)
            yield Hypothesis(
                "clamp-max-missing", f"ignores its upper bound {upper}", value, simplicity=2
            )
        yield from _fit_bounds(tested_op, x, "")
    elif tested_op.kind in ("relu", "clamp"):
        yield from _fit_bounds(tested_op, x, "")


def _vary_slope(tested_op: OpUnderTest, x: Array) -> Iterator[Hypothesis]:
    reference_slope = tested_op.bound.settings.get("slope") if tested_op.bound is not None else None
    comparison = (
        f" instead of {reference_slope:g}" if isinstance(reference_slope, int | float) else ""
    )
    for slope in (0.01, 0.1, 0.2, 0.3):
        text = f"uses slope {slope:g}{comparison}"
        yield Hypothesis("leaky-slope", text, leaky(x, slope), simplicity=2)
    if tested_op.target is not None:
        below = tested_op.without_masked((x < 0) & np.isfinite(x) & np.isfinite(tested_op.target))
        energy = float(np.sum(np.square(x[below])))
        if energy:
            slope = float(np.sum(x[below] * tested_op.target[below])) / energy
            text = f"uses slope {slope:.4g}{comparison}"
            yield Hypothesis("leaky-slope", text, leaky(x, slope), simplicity=1, solved=1)


def _fit_bounds(tested_op: OpUnderTest, x: Array, tensor_text: str) -> Iterator[Hypothesis]:
    """Read the bounds off the minimum and maximum of the target."""
    target = tested_op.target
    if target is None or not target.size or not np.isfinite(target).all():
        return
    target_values, input_values = tested_op.counted(target), tested_op.counted(x)
    if not target_values.size:
        return
    lower, upper = float(target_values.min()), float(target_values.max())
    # A bound needs several target elements on it and several input elements beyond it.
    has_lower = np.count_nonzero(target_values == lower) > 1 and bool(
        (input_values < lower).sum() > 1
    )
    has_upper = np.count_nonzero(target_values == upper) > 1 and bool(
        (input_values > upper).sum() > 1
    )
    if not has_lower and not has_upper:
        return
    value = clamp(x, lower if has_lower else None, upper if has_upper else None)
    interval = f"[{lower:.6g}" if has_lower else "(-inf"
    interval += f", {upper:.6g}]" if has_upper else ", inf)"
    text = f"clamps its {tensor_text or 'input'} to {interval}"
    settings = tested_op.bound.settings if tested_op.bound is not None else {}
    if not tensor_text and "lower" in settings and "upper" in settings:
        text += f" instead of [{settings['lower']}, {settings['upper']}]"
    yield Hypothesis(
        "clamp-bounds", text, value, simplicity=1, solved=int(has_lower) + int(has_upper)
    )
